//! Commands and answers, between the protocol's form and fred's.

use fred::bytes::Bytes;
use fred::types::{ClusterHash, CustomCommand, Resp3Frame, Value};
use quorate_core::BackendError;
use quorate_core::protocol::Reply;

/// All arguments are parts of one buffer: one allocation, whatever their number.
pub(crate) fn encoded(command: &[&[u8]]) -> (CustomCommand, Vec<Value>) {
    let mut parts = command.iter().copied();
    let name = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let arguments = &command[command.len().min(1)..];
    let buffer = Bytes::from(arguments.concat());
    let mut start = 0;
    let arguments = arguments.iter().map(|argument| {
        let end = start + argument.len();
        let part = buffer.slice(start..end);
        start = end;
        Value::Bytes(part)
    });
    let arguments = arguments.collect();
    (CustomCommand::new(name, ClusterHash::default(), false), arguments)
}

/// An error answer becomes an error here.
pub(crate) fn decoded(frame: Resp3Frame) -> Result<Reply, BackendError> {
    match frame {
        Resp3Frame::Null => Ok(Reply::Nil),
        Resp3Frame::Number { data, .. } => Ok(Reply::Integer(data)),
        Resp3Frame::SimpleString { data, .. }
        | Resp3Frame::BlobString { data, .. }
        | Resp3Frame::VerbatimString { data, .. } => Ok(Reply::Bytes(data.into())),
        Resp3Frame::SimpleError { data, .. } => Err(BackendError::from_reply(&data)),
        Resp3Frame::BlobError { data, .. } => {
            Err(BackendError::from_reply(&String::from_utf8_lossy(&data)))
        }
        _ => Ok(Reply::Other),
    }
}

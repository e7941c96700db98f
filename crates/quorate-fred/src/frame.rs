//! Commands and answers, between the protocol's form and fred's.

use std::str;

use fred::bytes::Bytes;
use fred::clients::{Client, WithOptions};
use fred::error::{Error, ErrorKind};
use fred::interfaces::{ClientLike, KeysInterface};
use fred::types::{ClusterHash, CustomCommand, Expiration, Key, Resp3Frame, SetOptions, Value};
use quorate_core::BackendError;
use quorate_core::protocol::Reply;

/// What a node says to a command; an error answer is an error.
pub(crate) type Answer = Result<Reply, BackendError>;

/// A command in fred's form.
///
/// `SET` goes by fred's own method, with its options in another order: fred gathers the commands
/// that it knows into few writes, and makes one write of each that it does not know, or that is a
/// script.
pub(crate) enum Command {
    SetNew { key: Key, value: Value, ttl: i64 },
    Other(CustomCommand, Vec<Value>),
}

impl Command {
    pub(crate) fn of(command: &[&[u8]]) -> Self {
        if let [b"SET", key, value, b"NX", b"PX", ttl] = command
            && let Some(ttl) = number(ttl)
        {
            let buffer = Bytes::from([*key, *value].concat());
            let value = Value::Bytes(buffer.slice(key.len()..));
            Self::SetNew { key: Key::from(buffer.slice(..key.len())), value, ttl }
        } else {
            let (name, arguments) = encoded(command);
            Self::Other(name, arguments)
        }
    }

    /// In bytes on the wire, or a little less.
    pub(crate) fn size(&self) -> u64 {
        // `$3\r\nSET\r\n`
        const AROUND: usize = 6;
        let part = |value: &Value| AROUND + value.as_bytes().map_or(0, <[u8]>::len);
        let size = match self {
            // `NX`, `PX` and the ttl are as long as that, too.
            Self::SetNew { key, value, .. } => 6 * AROUND + key.as_bytes().len() + part(value),
            Self::Other(name, arguments) => {
                AROUND + name.cmd.len() + arguments.iter().map(part).sum::<usize>()
            }
        };
        size as u64
    }
}

/// Sends a command and waits for the answer.
///
/// # Errors
///
/// The connection has ended, or is worth nothing any more.
pub(crate) async fn exchange(
    client: &WithOptions<Client>,
    command: Command,
) -> Result<Answer, Error> {
    match command {
        Command::SetNew { key, value, ttl } => {
            let expiry = Some(Expiration::PX(ttl));
            let answer = client.set::<Value, _, _>(key, value, expiry, Some(SetOptions::NX), false);
            match answer.await {
                Ok(value) => Ok(Ok(reply(value))),
                Err(error) if is_answer(&error) => {
                    Ok(Err(BackendError::from_reply(error.details())))
                }
                Err(error) => Err(error),
            }
        }
        Command::Other(name, arguments) => client.custom_raw(name, arguments).await.map(decoded),
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    str::from_utf8(digits).ok()?.parse().ok()
}

/// All arguments are parts of one buffer: one allocation, whatever their number.
fn encoded(command: &[&[u8]]) -> (CustomCommand, Vec<Value>) {
    let (name, arguments) = command.split_first().map_or((&b""[..], command), |(n, a)| (*n, a));
    let hash = ClusterHash::default();
    let name = match name {
        b"EVALSHA" => CustomCommand::new_static("EVALSHA", hash, false),
        name => CustomCommand::new(String::from_utf8_lossy(name).into_owned(), hash, false),
    };
    let buffer = Bytes::from(arguments.concat());
    let mut start = 0;
    let arguments = arguments.iter().map(|argument| {
        let end = start + argument.len();
        let part = buffer.slice(start..end);
        start = end;
        Value::Bytes(part)
    });
    (name, arguments.collect())
}

fn decoded(frame: Resp3Frame) -> Answer {
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
        Resp3Frame::Array { data, .. } => {
            data.into_iter().map(decoded).collect::<Result<_, _>>().map(Reply::List)
        }
        _ => Ok(Reply::Other),
    }
}

/// What fred's own methods make of an answer that is no error.
fn reply(value: Value) -> Reply {
    match value {
        Value::Null => Reply::Nil,
        Value::Integer(number) => Reply::Integer(number),
        Value::String(text) => Reply::Bytes(text.as_bytes().to_vec()),
        Value::Bytes(bytes) => Reply::Bytes(bytes.into()),
        _ => Reply::Other,
    }
}

/// Whether an error of fred's own methods is what the node answered.
///
/// fred gives the same kinds to error answers and to what befalls itself, which it tells in words of
/// its own. `CLUSTERDOWN` is an answer on which it closes the connection.
fn is_answer(error: &Error) -> bool {
    let details = error.details();
    match error.kind() {
        ErrorKind::Unknown => !OF_FRED.contains(&details),
        ErrorKind::Cluster => !details.starts_with("CLUSTERDOWN"),
        ErrorKind::Auth
        | ErrorKind::Config
        | ErrorKind::InvalidArgument
        | ErrorKind::InvalidCommand => true,
        _ => false,
    }
}

/// What fred says of unknown kind when it cannot send a command, or lets go of one.
const OF_FRED: [&str; 5] = [
    "Client is not initialized.",
    "Failed to route command.",
    "Failed to send command to router.",
    "Too many failed write attempts.",
    "channel closed",
];

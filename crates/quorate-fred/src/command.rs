//! Commands and replies in the form of fred.

use fred::bytes::Bytes;
use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::{ClientLike, KeysInterface};
use fred::types::{ClusterHash, CustomCommand, Expiration, Resp3Frame, SetOptions, Value};
use quorate_protocol::{Command, Reply};

use crate::error::is_reply;

/// Sends a command once, and waits for its reply.
///
/// `SET` and `EXISTS` go by the typed methods, the first with its options in another order: fred writes
/// several commands that it knows at once, and each custom one by itself.
pub(crate) async fn exchange(client: &Client, command: &Command) -> Result<Reply, Error> {
    let parts: Vec<&[u8]> = command.parts().collect();
    let value = |part: &[u8]| Value::Bytes(Bytes::copy_from_slice(part));
    if let [b"SET", key, token, b"NX", b"PX", ttl] = parts[..]
        && let Some(ttl) = std::str::from_utf8(ttl).ok().and_then(|ttl| ttl.parse().ok())
    {
        let (expiry, options) = (Some(Expiration::PX(ttl)), Some(SetOptions::NX));
        return of_typed(client.set(key, value(token), expiry, options, false).await);
    }
    if let [b"EXISTS", key] = parts[..] {
        return of_typed(client.exists(key).await);
    }
    let [name, arguments @ ..] = &parts[..] else { return Ok(Reply::Nil) };
    let name = String::from_utf8_lossy(name).into_owned();
    let name = CustomCommand::new(name, ClusterHash::default(), false);
    let arguments = arguments.iter().map(|part| value(part)).collect::<Vec<_>>();
    let frame = client.custom_raw(name, arguments).await?;
    Ok(of_frame(frame))
}

fn of_frame(frame: Resp3Frame) -> Reply {
    match frame {
        Resp3Frame::Null => Reply::Nil,
        Resp3Frame::Number { data, .. } => Reply::Int(data),
        Resp3Frame::SimpleString { data, .. }
        | Resp3Frame::BlobString { data, .. }
        | Resp3Frame::BigNumber { data, .. }
        | Resp3Frame::VerbatimString { data, .. } => Reply::Text(data.into()),
        Resp3Frame::SimpleError { data, .. } => Reply::Error((&*data).into()),
        Resp3Frame::BlobError { data, .. } => Reply::Error(String::from_utf8_lossy(&data).into()),
        Resp3Frame::Array { data, .. } => Reply::List(data.into_iter().map(of_frame).collect()),
        Resp3Frame::Map { data, .. } => {
            let pairs = data.into_iter().flat_map(|(key, value)| [of_frame(key), of_frame(value)]);
            Reply::List(pairs.collect())
        }
        Resp3Frame::Set { data, .. } => Reply::List(data.into_iter().map(of_frame).collect()),
        Resp3Frame::Boolean { data, .. } => Reply::Text(data.to_string().into()),
        Resp3Frame::Double { data, .. } => Reply::Text(data.to_string().into()),
        // No command of ours has another reply.
        _ => Reply::List(Vec::new()),
    }
}

/// The reply to a typed method.
fn of_typed(replied: Result<Value, Error>) -> Result<Reply, Error> {
    match replied {
        Ok(value) => Ok(of_value(value)),
        Err(error) if is_reply(&error) => Ok(Reply::Error(error.details().into())),
        Err(error) => Err(error),
    }
}

fn of_value(value: Value) -> Reply {
    match value {
        Value::Null => Reply::Nil,
        Value::Integer(number) => Reply::Int(number),
        Value::String(text) => Reply::Text(text.as_bytes().to_vec()),
        Value::Bytes(bytes) => Reply::Text(bytes.into()),
        _ => Reply::List(Vec::new()),
    }
}

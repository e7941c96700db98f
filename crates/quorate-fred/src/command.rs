//! Commands and replies in the form of fred.

use fred::bytes::Bytes;
use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::{ClientLike, KeysInterface};
use fred::types::{self, ClusterHash, CustomCommand, Expiration, Resp3Frame, SetOptions};
use quorate_protocol::{Command, Value};

use crate::error::is_reply;

/// Sends a command once, and waits for its reply.
///
/// `SET` and `EXISTS` go by the typed methods, the first with its options in another order: fred writes
/// several commands that it knows at once, and each custom one by itself.
pub(crate) async fn exchange(client: &Client, command: &Command) -> Result<Value, Error> {
    let parts: Vec<&[u8]> = command.parts().collect();
    let value = |part: &[u8]| types::Value::Bytes(Bytes::copy_from_slice(part));
    if let [b"SET", key, token, b"NX", b"PX", ttl, ref get @ ..] = parts[..]
        && let Some(ttl) = std::str::from_utf8(ttl).ok().and_then(|ttl| ttl.parse().ok())
    {
        let (expiry, options) = (Some(Expiration::PX(ttl)), Some(SetOptions::NX));
        return of_typed(client.set(key, value(token), expiry, options, !get.is_empty()).await);
    }
    if let [b"EXISTS", key] = parts[..] {
        return of_typed(client.exists(key).await);
    }
    let [name, arguments @ ..] = &parts[..] else { return Ok(Value::Nil) };
    let name = String::from_utf8_lossy(name).into_owned();
    let name = CustomCommand::new(name, ClusterHash::default(), false);
    let arguments = arguments.iter().map(|part| value(part)).collect::<Vec<_>>();
    let frame = client.custom_raw(name, arguments).await?;
    Ok(of_frame(frame))
}

fn of_frame(frame: Resp3Frame) -> Value {
    match frame {
        Resp3Frame::Null => Value::Nil,
        Resp3Frame::Number { data, .. } => Value::Int(data),
        Resp3Frame::SimpleString { data, .. }
        | Resp3Frame::BlobString { data, .. }
        | Resp3Frame::BigNumber { data, .. }
        | Resp3Frame::VerbatimString { data, .. } => Value::Text(data.into()),
        Resp3Frame::SimpleError { data, .. } => Value::Error((&*data).into()),
        Resp3Frame::BlobError { data, .. } => Value::Error(String::from_utf8_lossy(&data).into()),
        Resp3Frame::Array { data, .. } => Value::List(data.into_iter().map(of_frame).collect()),
        Resp3Frame::Map { data, .. } => {
            let pairs = data.into_iter().flat_map(|(key, value)| [of_frame(key), of_frame(value)]);
            Value::List(pairs.collect())
        }
        Resp3Frame::Set { data, .. } => Value::List(data.into_iter().map(of_frame).collect()),
        Resp3Frame::Boolean { data, .. } => Value::Text(data.to_string().into()),
        Resp3Frame::Double { data, .. } => Value::Text(data.to_string().into()),
        // No command of ours has another reply.
        _ => Value::List(Vec::new()),
    }
}

/// The reply to a typed method.
fn of_typed(replied: Result<types::Value, Error>) -> Result<Value, Error> {
    match replied {
        Ok(value) => Ok(of_value(value)),
        Err(error) if is_reply(&error) => Ok(Value::Error(error.details().into())),
        Err(error) => Err(error),
    }
}

fn of_value(value: types::Value) -> Value {
    match value {
        types::Value::Null => Value::Nil,
        types::Value::Integer(number) => Value::Int(number),
        types::Value::String(text) => Value::Text(text.as_bytes().to_vec()),
        types::Value::Bytes(bytes) => Value::Text(bytes.into()),
        _ => Value::List(Vec::new()),
    }
}

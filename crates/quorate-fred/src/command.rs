//! Commands and replies in the form of fred.

use std::future::ready;

use fred::bytes::Bytes;
use fred::bytes_utils::Str;
use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::{ClientLike, KeysInterface};
use fred::types::{self, ClusterHash, CustomCommand, Expiration, Resp3Frame, SetOptions};
use futures_util::future::{BoxFuture, FutureExt as _, TryFutureExt as _};
use quorate_protocol::{Parts, Value, parts};

use crate::error::is_reply;

/// Sends a command once, and waits for its reply.
///
/// `SET`, `GET` and `EXISTS` go by the typed methods, the first with its options in another order:
/// fred writes several commands that it knows at once, and each script and each custom command by
/// itself.
pub(crate) fn exchange(client: &Client, command: Parts) -> BoxFuture<'_, Result<Value, Error>> {
    // The arguments share the buffer of the command.
    let buffer = Bytes::from(command.into_buffer());
    let parts: Vec<&[u8]> = parts(&buffer).collect();
    let value = |part: &[u8]| types::Value::Bytes(buffer.slice_ref(part));
    if let [b"SET", key, token, b"NX", b"PX", ttl, ref get @ ..] = parts[..]
        && let Some(ttl) = std::str::from_utf8(ttl).ok().and_then(|ttl| ttl.parse().ok())
    {
        let (expiry, options) = (Some(Expiration::PX(ttl)), Some(SetOptions::NX));
        let key = buffer.slice_ref(key);
        return client
            .set(key, value(token), expiry, options, !get.is_empty())
            .map(of_typed)
            .boxed();
    }
    if let [b"GET", key] = parts[..] {
        return client.get(buffer.slice_ref(key)).map(of_typed).boxed();
    }
    let [name, arguments @ ..] = &parts[..] else { return ready(Ok(Value::Nil)).boxed() };
    let name = Str::from_inner(buffer.slice_ref(name)).unwrap_or_default();
    let name = CustomCommand::new(name, ClusterHash::default(), false);
    let arguments = arguments.iter().map(|part| value(part)).collect::<Vec<_>>();
    client.custom_raw(name, arguments).map_ok(of_frame).boxed()
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

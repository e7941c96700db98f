//! Reading what is at a key.

use std::time::Duration;

use quorate_core::BackendError;
use quorate_core::backend::{Holder, Sighting};

use crate::script::Script;
use crate::value::Value;

/// Returns nil, or `{milliseconds left, value}`. -1 is a key without an expiry.
///
/// It writes nothing, so that a replica and a node out of memory run it, too.
pub(super) static INSPECT: Script = Script::new(include_str!("../../scripts/inspect.lua"));

/// What the script found; `None` if the key is free.
pub(super) fn sighted(reply: &Value) -> Result<Option<Sighting>, BackendError> {
    match reply {
        Value::Nil => Ok(None),
        Value::List(list) => match list.as_slice() {
            [Value::Int(left @ -1..), Value::Text(value)] => {
                let left = u64::try_from(*left).ok().map(Duration::from_millis);
                Ok(Some(Sighting::new(Holder::new(value.as_slice()), left)))
            }
            _ => Err(reply.unexpected("a script")),
        },
        _ => Err(reply.unexpected("a script")),
    }
}

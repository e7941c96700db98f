//! Reading what is at a key.

use std::time::Duration;

use quorate_core::backend::{Holder, Sighting};
use quorate_core::{BackendError, Key};

use crate::reply::Reply;
use crate::script::Script;
use crate::transport::{Admission, Transport};

/// Returns nil, or `{milliseconds left, value}`. -1 is a key without an expiry.
///
/// It writes nothing, so that a replica and a node out of memory run it, too.
pub(super) static INSPECT: Script = Script::new(include_str!("../../scripts/inspect.lua"));

/// Reads what is at `key`; `None` if it is free.
pub(crate) async fn inspect<T: Transport>(
    transport: &T,
    key: &Key,
) -> Result<Option<Sighting>, BackendError> {
    let reply = INSPECT.run(transport, Admission::Other, &[key.as_bytes()], &[]).await?;
    match &reply {
        Reply::Nil => Ok(None),
        Reply::List(list) => match list.as_slice() {
            [Reply::Int(left @ -1..), Reply::Text(value)] => {
                let left = u64::try_from(*left).ok().map(Duration::from_millis);
                Ok(Some(Sighting::new(Holder::new(value.as_slice()), left)))
            }
            _ => Err(reply.unexpected("a script")),
        },
        _ => Err(reply.unexpected("a script")),
    }
}

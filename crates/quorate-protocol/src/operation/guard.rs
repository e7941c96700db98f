//! The restart guard: an acquire that compares the node's epoch with its server's `INFO`.
//!
//! - `quorate:guard:epoch2` holds `run_id:master_replid2:second_repl_offset:max_ttl`, the last in
//!   milliseconds, without an expiry. The first changes with a restart, the other two with a
//!   promotion. Deleting the key begins a quarantine. (0.1 keeps an epoch without the two in
//!   `quorate:guard:epoch`.)
//! - `quorate:guard:quarantine` is there while the node is quarantined. Deleting it ends the
//!   quarantine. Without an expiry it lasts until it is deleted.
//!
//! A user of an ACL needs `~quorate:guard:*` and `+info`.

use std::time::Duration;

use quorate_core::{BackendError, BackendErrorKind};

use crate::features::field;

pub(super) const EPOCH: &[u8] = b"quorate:guard:epoch2";

pub(super) const QUARANTINE: &[u8] = b"quorate:guard:quarantine";

/// Whether an epoch is that of the server with this `info`, and its `max_ttl`. As the script
/// compares them.
pub(super) fn read_epoch(epoch: &[u8], info: &[u8]) -> (bool, Option<Duration>) {
    let [run, replid, offset] =
        ["run_id", "master_replid2", "second_repl_offset"].map(|name| field(info, name));
    let known = [run, replid, offset].map(Option::unwrap_or_default).join(":");
    let text = std::str::from_utf8(epoch).unwrap_or_default();
    let (epoch, max_ttl) = text.rsplit_once(':').unwrap_or_default();
    // What is no epoch has a `max_ttl` that no guard has.
    (epoch == known, Some(Duration::from_millis(max_ttl.parse().unwrap_or_default())))
}

/// The error of a node in its quarantine.
pub(super) fn quarantined(left: Duration) -> BackendError {
    let text = format!("quarantined for another {left:.1?}: it restarted, is new or lost its data");
    BackendError::new(BackendErrorKind::Quarantined, text)
}

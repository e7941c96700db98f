//! Code of the user's subscriber or recorder.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of the subscriber or the recorder. Its panic must neither leave a `drop` of ours nor
/// stop a release (A1).
pub(super) fn contain_panic(emit: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(emit));
}

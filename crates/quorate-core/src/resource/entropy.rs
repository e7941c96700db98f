//! What a source of randomness says when it fails.

use std::fmt;

/// Why there are no random bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no random bytes: {reason}")]
pub struct EntropyError {
    reason: String,
}

impl EntropyError {
    /// Creates the error with this reason.
    #[must_use]
    pub fn new(reason: impl fmt::Display) -> Self {
        Self { reason: reason.to_string() }
    }
}

//! What a node keeps at a key.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a node keeps at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sighting {
    /// Whose key it is.
    pub holder: Holder,
    /// How long the node still keeps it. `None` is for good.
    ///
    /// No lock of ours is without an end: another program wrote it.
    pub time_left: Option<Duration>,
}

impl Sighting {
    /// A key of `holder` that is kept for `time_left`.
    #[must_use]
    pub const fn new(holder: Holder, time_left: Option<Duration>) -> Self {
        Self { holder, time_left }
    }
}

/// Whose key it is: what is stored there, of which only sameness can be told.
///
/// Two holders are equal if the bytes are. The bytes themselves are a secret of the holder, since
/// whoever knows them can release the lock: they cannot be read, and `Debug` does not show them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Holder(Arc<[u8]>);

impl Holder {
    /// The holder who stored `value`: a token, or what another program wrote.
    #[must_use]
    pub fn new(value: impl Into<Arc<[u8]>>) -> Self {
        Self(value.into())
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holder(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a6_a_holder_can_be_told_from_another_and_not_read() {
        let (one, other) = (Holder::new(*b"s3cret"), Holder::new(*b"another"));
        assert_eq!(one, Holder::new(b"s3cret".to_vec()));
        assert_ne!(one, other);
        assert_eq!(format!("{one:?}"), "Holder(..)");
        let sighting = Sighting::new(one, None);
        assert!(!format!("{sighting:?}").contains("s3cret"));
    }
}

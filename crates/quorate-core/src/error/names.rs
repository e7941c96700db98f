//! Which lock an error is about.

use std::fmt;

use crate::resource::{Key, write_keys};

/// The keys of a lock, for the front of a text, as errors show them: `a, b, c and 2 more: `. Empty
/// without a key.
#[derive(Debug)]
pub struct Of<'a>(pub(super) &'a [Key]);

impl<'a> Of<'a> {
    /// The keys of a lock.
    #[must_use]
    pub const fn new(keys: &'a [Key]) -> Self {
        Self(keys)
    }
}

/// How many keys a text shows.
const SHOWN: usize = 3;

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write_keys(self.0, SHOWN, f)?;
        f.write_str(": ")
    }
}

//! Which lock an error is about.

use std::fmt;

use crate::resource::{Key, write_keys};

/// The keys of a lock, for the front of a text, as errors show them: `a, b, c and 2 more: `. Empty
/// without a key.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "complete by definition: the keys of a lock")]
pub struct Of<'a>(pub &'a [Key]);

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

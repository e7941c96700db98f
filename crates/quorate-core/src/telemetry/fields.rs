//! How the fields of an event are shown.

use std::fmt::{Display, Formatter, Result};
use std::time::Duration;

use tracing::field::{DisplayValue, display};

use crate::resource::{Key, write_keys};

/// The names of the first eight keys, separated by commas.
pub(super) struct Keys<'a>(pub(super) &'a [Key]);

impl Display for Keys<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write_keys(self.0, 8, f)
    }
}

/// A duration with one decimal place.
pub(super) struct Short(pub(super) Duration);

impl Display for Short {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{:.1?}", self.0)
    }
}

/// The value of a field that may be absent.
pub(super) fn shown(time: Duration) -> DisplayValue<Short> {
    display(Short(time))
}

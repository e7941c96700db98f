//! Wrong ideas that a test can switch on, to prove that the tests see them.
#![allow(unexpected_cfgs, reason = "`quorate_planted` is set by hand")]

/// Whether a test has switched on the wrong idea of this name.
macro_rules! planted {
    ($name:literal) => {
        $crate::algorithm::attempt::planted::is_planted($name)
    };
}
pub(crate) use planted;

#[cfg(not(quorate_planted))]
pub(crate) const fn is_planted(_name: &str) -> bool {
    false
}

#[cfg(quorate_planted)]
pub use on::{is_planted, plant};

#[cfg(quorate_planted)]
mod on {
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<&'static str> = const { Cell::new("") };
    }

    /// Switches on one wrong idea on this thread; the empty name switches all off.
    pub fn plant(name: &'static str) {
        PLANTED.set(name);
    }

    /// Whether this wrong idea is switched on.
    #[must_use]
    pub fn is_planted(name: &str) -> bool {
        PLANTED.get() == name
    }
}

//! Wrong ideas that a test can switch on, to prove that the tests see them.
#![allow(unexpected_cfgs, reason = "`quorate_planted` is set by hand")]

/// Whether a test has switched on the wrong idea of this name.
macro_rules! planted {
    ($name:literal) => {
        $crate::algorithm::attempt::planted::is_on($name)
    };
}
pub(crate) use planted;

#[cfg(not(quorate_planted))]
pub(crate) const fn is_on(_name: &str) -> bool {
    false
}

#[cfg(quorate_planted)]
pub use on::{is_on, switch_on};

#[cfg(quorate_planted)]
mod on {
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<&'static str> = const { Cell::new("") };
    }

    /// Switches on one wrong idea on this thread; the empty name switches all off.
    pub fn switch_on(name: &'static str) {
        PLANTED.set(name);
    }

    /// Whether this wrong idea is switched on.
    #[must_use]
    pub fn is_on(name: &str) -> bool {
        PLANTED.get() == name
    }
}

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
    use std::sync::OnceLock;

    thread_local! {
        /// Every thread begins with the idea that the environment names.
        static ON: Cell<&'static str> = Cell::new(from_environment());
    }

    /// Switches on one wrong idea on this thread; the empty name switches all off.
    pub fn switch_on(name: &'static str) {
        ON.set(name);
    }

    /// Whether this wrong idea is switched on.
    #[must_use]
    pub fn is_on(name: &str) -> bool {
        ON.get() == name
    }

    fn from_environment() -> &'static str {
        static NAME: OnceLock<String> = OnceLock::new();
        NAME.get_or_init(|| std::env::var("QUORATE_PLANTED").unwrap_or_default())
    }
}

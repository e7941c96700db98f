//! Planted bugs: wrong ideas that a test switches on, to prove that the tests notice them.
//!
//! A point in the code reads `planted!("drift_is_ignored")`. It is the constant `false`, so the
//! compiler removes what depends on it, unless the crates are built with `--cfg quorate_planted`.
//! Then it is true on the threads on which the bug of that name is switched on. The points, the rule
//! that each one breaks and the check that finds it are listed in `tests/planted`.

#[cfg(quorate_planted)]
pub use switch::{is_on, switch_on};

/// Whether the planted bug of this name is switched on: never, in this build.
#[cfg(not(quorate_planted))]
#[doc(hidden)]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        false
    };
}

/// Whether the planted bug of this name is switched on.
#[cfg(quorate_planted)]
#[doc(hidden)]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        $crate::planted::is_on($name)
    };
}

#[cfg(quorate_planted)]
mod switch {
    use std::cell::Cell;
    use std::sync::OnceLock;

    thread_local! {
        /// The bug that is switched on; empty for none.
        static ON: Cell<&'static str> = Cell::new(from_environment());
    }

    /// Switches a bug on for this thread, in place of another one; the empty name is none.
    ///
    /// Every thread begins with the bug that the environment names in `QUORATE_PLANTED`.
    pub fn switch_on(name: &'static str) {
        ON.set(name);
    }

    /// Whether the bug of this name is switched on for this thread.
    pub fn is_on(name: &str) -> bool {
        ON.get() == name
    }

    fn from_environment() -> &'static str {
        static NAME: OnceLock<String> = OnceLock::new();
        NAME.get_or_init(|| std::env::var("QUORATE_PLANTED").unwrap_or_default())
    }
}

#[cfg(all(test, quorate_planted))]
mod tests {
    use super::*;

    #[test]
    fn a_bug_is_on_for_the_thread_that_switches_it_on() {
        switch_on("one");
        assert!(is_on("one") && !is_on("other"));
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!is_on("one")));
        });
        switch_on("");
        assert!(!is_on("one"));
    }
}

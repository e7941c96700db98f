//! Fuzz targets: the replies of a node, and texts that users give. Orders of events are explored in `tests/virtual`.
//!
//! In a test run, each target replays its corpus in `__fuzz__`. `cargo xtask fuzz` searches for more.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a target fails by panicking")]

use std::str;

use bolero::check;
use quorate_core::{BackendErrorKind, DetachedLock};
use quorate_protocol::error_of_reply;

mod addresses;
mod replies;

/// Takes numbers from the bytes of an input; zeros after its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn below(&mut self, bound: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % bound
    }
}

/// Any replies to the handshake of a connection and to an operation on it.
#[test]
fn replies() {
    check!().with_iterations(0).for_each(|input: &[u8]| replies::run(&mut Bytes(input)));
}

/// Any text as an error reply: its arguments are not shown (A6), and a script that passes it on changes nothing.
#[test]
fn error_reply() {
    check!().with_iterations(0).for_each(|input: &[u8]| {
        let Ok(text) = str::from_utf8(input) else { return };
        let plain = error_of_reply(text);
        let shown = error_of_reply(&format!("{text}, with args beginning with: 's3cret'"));
        assert!(text.contains("s3cret") || !format!("{shown} {shown:?}").contains("s3cret"));
        let is_plain = !text.starts_with(' ') && !text.contains(char::is_control);
        if is_plain && plain.kind() != BackendErrorKind::Other && !text.contains("script") {
            let place =
                "ERR Error running script (call to f_1): @user_script:7: @user_script: 7: -";
            let inside = error_of_reply(&format!("{place}{text}"));
            assert_eq!(inside.kind(), plain.kind());
        }
    });
}

/// Any text as the address of a node.
#[test]
fn addresses() {
    check!().with_iterations(0).for_each(addresses::run);
}

/// Any text as the record of a detached lock: a record that is read is written as the same lock.
#[test]
fn record() {
    check!().with_iterations(0).for_each(|input: &[u8]| {
        let Ok(text) = str::from_utf8(input) else { return };
        let Ok(lock) = text.parse::<DetachedLock>() else { return };
        let written = lock.encode();
        let read: DetachedLock = written.parse().expect("a lock can be read again");
        assert_eq!(read.encode(), written);
        let parts = |lock: &DetachedLock| (lock.keys().to_vec(), lock.ttl(), lock.fencing_token());
        assert_eq!(parts(&read), parts(&lock));
        assert_eq!(written.to_lowercase(), written);
        assert!(!lock.keys().is_empty() && !lock.ttl().is_zero());
    });
}

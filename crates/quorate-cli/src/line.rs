//! The line that names the holder during a wait (X9).

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use quorate::{LockManager, operators::LockState};
use rustix::termios::tcgetwinsize;
use tokio::time::{Instant, sleep};

use crate::say;

/// From the start to the first line, and from one line to the next.
const EVERY: Duration = Duration::from_secs(1);

/// Clears the line when it is dropped.
struct Cleared;

impl Drop for Cleared {
    fn drop(&mut self) {
        if !say::is_behind() {
            say::text("\r\x1b[K".to_owned());
        }
    }
}

/// Shows the line until it is dropped, if standard error is a terminal and we wait for a holder.
///
/// # Cancel safety
///
/// The future can be dropped at any time.
pub(crate) async fn show(
    manager: &LockManager,
    names: &[String],
    wait: Option<Duration>,
) -> Infallible {
    let Some(wait) = wait.filter(|_| io::stderr().is_terminal()) else { return pending().await };
    let start = Instant::now();
    sleep(EVERY).await;
    let _cleared = Cleared;
    loop {
        let (holder, waited) = (holder(manager, names).await, start.elapsed().as_secs());
        let mut line = format!("{holder}; waiting for {waited} s of {} s", wait.as_secs());
        // A line that wraps cannot be rewritten.
        let size = tcgetwinsize(io::stderr()).ok().filter(|size| size.ws_col > 0);
        say::cut(&mut line, size.map_or(usize::MAX, |size| usize::from(size.ws_col) - 1));
        // Over what a person types, it would be in the way.
        if !say::is_behind() && say::settle(Duration::ZERO) {
            say::text(format!("\r\x1b[K{line}"));
        }
        sleep(EVERY).await;
    }
}

/// The first name that is held, and its holder.
async fn holder(manager: &LockManager, names: &[String]) -> String {
    for name in names {
        let Ok(seen) = manager.inspect(name).await else { continue };
        let by =
            seen.label().map_or_else(|| "another client".to_owned(), |label| format!("{label:?}"));
        let left = seen.time_left().map(|left| format!(", {left:.1?} left")).unwrap_or_default();
        return match (seen.state(), say::shown(name)) {
            (LockState::Free, _) => continue,
            (LockState::Unclear, name) => format!("{name}: no quorum"),
            (LockState::Held, name) => format!("{name}: held by {by}{left}"),
        };
    }
    say::shown(&names.join(" "))
}

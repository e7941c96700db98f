//! The line that says for whom we wait (X9).

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use quorate::{LockManager, LockState};
use rustix::termios::tcgetwinsize;
use tokio::time::{Instant, sleep};
use unicode_width::UnicodeWidthChar as _;

use crate::say;

/// From the start to the first line, and from one line to the next.
const EVERY: Duration = Duration::from_secs(1);

/// Clears the line when it is dropped.
struct Cleared;

impl Drop for Cleared {
    fn drop(&mut self) {
        say::text("\r\x1b[K".to_owned());
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
        let holder = holder(manager, names).await;
        let (waited, wait) = (start.elapsed().as_secs(), wait.as_secs());
        let line = format!("{holder}; waiting for {waited} s of {wait} s");
        // A line that wraps cannot be rewritten.
        let columns = tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
        let columns = if columns == 0 { usize::MAX } else { columns - 1 };
        say::now(format!("\r\x1b[K{}", cut(&line, columns)));
        sleep(EVERY).await;
    }
}

/// The part of the text that fits into so many columns.
fn cut(text: &str, columns: usize) -> &str {
    let mut used = 0;
    let fits = |(_, letter): &(usize, char)| {
        used += letter.width().unwrap_or(0);
        used > columns
    };
    let end = text.char_indices().find(fits).map_or(text.len(), |(index, _)| index);
    &text[..end]
}

/// The first name that is held, and by whom.
async fn holder(manager: &LockManager, names: &[String]) -> String {
    for name in names {
        let Ok(seen) = manager.inspect(name).await else { continue };
        if seen.state() == LockState::Free {
            continue;
        }
        let by = seen.label().map(|label| format!("{label:?}"));
        let by = by.as_deref().unwrap_or("another client");
        return match (seen.state(), seen.time_left()) {
            (LockState::Unclear, _) => format!("{name}: no quorum"),
            (_, Some(left)) => format!("{name}: held by {by}, {left:.1?} left"),
            (_, None) => format!("{name}: held by {by}"),
        };
    }
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x9_a_line_is_cut_by_its_columns() {
        for (text, columns, part) in [
            ("a: held", 7, "a: held"),
            ("a: held", 4, "a: h"),
            // Each of these takes two columns.
            ("夜間バッチ", 5, "夜間"),
            ("夜間バッチ", 4, "夜間"),
            ("a夜", 2, "a"),
            ("夜", 0, ""),
            ("e\u{301}e", 1, "e\u{301}"),
        ] {
            assert_eq!(cut(text, columns), part, "{text} in {columns}");
        }
    }
}

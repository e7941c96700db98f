//! The two streams for people: nothing that is printed, or cannot be, decides about the lock.
//!
//! A thread of its own writes to standard error. A terminal whose output is stopped, or a pipe that
//! is full, keeps that thread and nothing else. A line that cannot be written is dropped.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::getpgrp;
use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp};
use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use crate::exit::{Failure, UNWRITTEN};

/// How long [`settle`] waits before the command starts, and at the end.
pub(crate) const SETTLE: Duration = Duration::from_millis(100);

/// How often it looks.
const LOOK: Duration = Duration::from_millis(1);

/// The texts that are not written yet.
static UNSAID: AtomicUsize = AtomicUsize::new(0);

/// Prints a line on standard error.
pub(crate) fn line(text: impl Display) {
    self::text(format!("quorate: {text}\n"));
}

/// Prints a text on standard error as it is.
pub(crate) fn text(text: String) {
    static WRITER: OnceLock<Option<Sender<String>>> = OnceLock::new();
    UNSAID.fetch_add(1, Ordering::Relaxed);
    let writer = WRITER.get_or_init(|| {
        let (sender, texts) = channel();
        let write_all = move || texts.into_iter().for_each(write);
        thread::Builder::new().spawn(write_all).ok().map(|_| sender)
    });
    match writer {
        // The thread lives as long as the sender.
        Some(writer) => drop(writer.send(text)),
        None => write(text),
    }
}

fn write(text: String) {
    // A terminal under `stty tostop` would stop us, and the command with us.
    let modes = tcgetattr(io::stderr()).map(|set| set.local_modes);
    if !(is_behind() && modes.is_ok_and(|modes| modes.contains(LocalModes::TOSTOP))) {
        let _ = io::stderr().write_all(text.as_bytes());
    }
    UNSAID.fetch_sub(1, Ordering::Relaxed);
}

/// Whether another job has our terminal, which is standard error.
pub(crate) fn is_behind() -> bool {
    tcgetpgrp(io::stderr()).is_ok_and(|front| front != getpgrp())
}

/// Waits until all texts are written, at most for `limit`, and returns whether they are. Blocks the
/// thread.
pub(crate) fn settle(limit: Duration) -> bool {
    let until = Instant::now() + limit;
    while UNSAID.load(Ordering::Relaxed) > 0 && Instant::now() < until {
        thread::sleep(LOOK);
    }
    UNSAID.load(Ordering::Relaxed) == 0
}

/// Whether standard error is no pipe that its reader has closed.
pub(crate) fn is_read() -> bool {
    let errors = io::stderr();
    let mut polled = [PollFd::new(&errors, PollFlags::OUT)];
    let _ = poll(&mut polled, Some(&Timespec::default()));
    !polled[0].revents().contains(PollFlags::ERR)
}

/// Prints a line on standard output.
pub(crate) fn print(line: impl Display) -> io::Result<()> {
    let mut output = io::stdout();
    writeln!(output, "{line}").and_then(|()| output.flush())
}

/// Prints a line of a report on standard output. A reader that has closed it needs no more lines.
pub(crate) fn report(line: impl Display) -> Result<(), Failure> {
    match print(line) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(UNWRITTEN, format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// The columns of a line for people, unless they ask for all of it.
pub(crate) const WIDTH: usize = 100;

/// The beginning of a line, with a sign if that is not all of it.
pub(crate) fn short(mut line: String, columns: usize) -> String {
    if line.width() > columns {
        cut(&mut line, columns - 1);
        line.push('…');
    }
    line
}

/// Cuts the text, so that it fits into so many columns.
pub(crate) fn cut(text: &mut String, columns: usize) {
    while text.width() > columns {
        text.pop();
    }
}

/// A name, with all characters escaped that a terminal would not show as they are.
pub(crate) fn shown(name: &str) -> String {
    escape(name, |letter| letter.escape_debug().to_string())
}

/// The text, with all characters escaped that a terminal would not show as they are.
fn escape(text: &str, escaped: impl Fn(char) -> String) -> String {
    let is_shown = |letter| matches!(letter, ' '..='~') || letter.escape_debug().len() == 1;
    let one = |letter| if is_shown(letter) { letter.to_string() } else { escaped(letter) };
    text.chars().map(one).collect()
}

/// The text of `value` for machines, which people see on terminals as well: with all characters
/// escaped that a terminal would not show as they are.
pub(crate) fn json(value: &Value) -> String {
    let code = |unit: &u16| format!("\\u{unit:04x}");
    escape(&value.to_string(), |letter| letter.encode_utf16(&mut [0; 2]).iter().map(code).collect())
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
            let mut line = text.to_owned();
            cut(&mut line, columns);
            assert_eq!(line, part, "{text} in {columns}");
        }
    }

    #[test]
    fn what_is_escaped_reads_as_the_same_value() {
        let value =
            Value::from("müller \u{1F512} \"a\\b\"\n\u{7f}\u{202e}\u{2066}\u{feff}\u{e0001}");
        let text = json(&value);
        let expected = r#""müller 🔒 \"a\\b\"\n\u007f\u202e\u2066\ufeff\udb40\udc01""#;
        assert_eq!(text, expected);
        assert_eq!(text.parse::<Value>().unwrap(), value);
    }
}

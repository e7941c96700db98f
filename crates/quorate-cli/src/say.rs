//! The two streams for people: nothing that is printed, or cannot be, decides about the lock.
//!
//! A thread of its own writes to standard error. A terminal whose output is stopped, or a pipe that is full, keeps that
//! thread and nothing else. A line that cannot be written is dropped.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::exit::{Failure, UNWRITTEN};

/// How long [`settle`] waits before the command starts, and at the end.
pub(crate) const SETTLE: Duration = Duration::from_millis(100);

enum Message {
    Text(String),
    /// Answered when all that was said before it is written.
    Settle(Sender<()>),
}

/// The texts that are not written yet.
static UNSAID: AtomicUsize = AtomicUsize::new(0);

/// Prints a line on standard error.
pub(crate) fn line(text: impl Display) {
    self::text(format!("quorate: {text}\n"));
}

/// Prints a text on standard error as it is.
pub(crate) fn text(text: String) {
    UNSAID.fetch_add(1, Ordering::Relaxed);
    send(Message::Text(text));
}

/// Prints a text that is worth nothing later: not while an earlier one is unwritten.
pub(crate) fn now(text: String) {
    if UNSAID.load(Ordering::Relaxed) == 0 {
        self::text(text);
    }
}

/// Waits until all texts are written, at most for `limit`. Blocks the thread.
pub(crate) fn settle(limit: Duration) {
    if UNSAID.load(Ordering::Relaxed) > 0 {
        let (sender, written) = channel();
        send(Message::Settle(sender));
        let _ = written.recv_timeout(limit);
    }
}

fn send(message: Message) {
    static WRITER: OnceLock<Option<Sender<Message>>> = OnceLock::new();
    let writer = WRITER.get_or_init(|| {
        let (sender, messages) = channel();
        let write_all = move || messages.into_iter().for_each(write);
        thread::Builder::new().spawn(write_all).ok().map(|_| sender)
    });
    match writer {
        // The thread lives as long as the sender.
        Some(writer) => drop(writer.send(message)),
        None => write(message),
    }
}

fn write(message: Message) {
    match message {
        Message::Text(text) => {
            let _ = io::stderr().write_all(text.as_bytes());
            UNSAID.fetch_sub(1, Ordering::Relaxed);
        }
        Message::Settle(written) => drop(written.send(())),
    }
}

/// Whether standard error is no pipe that its reader has closed.
pub(crate) fn is_read() -> bool {
    let errors = io::stderr();
    let mut polled = [PollFd::new(&errors, PollFlags::OUT)];
    let _ = poll(&mut polled, Some(&Timespec::default()));
    !polled[0].revents().contains(PollFlags::ERR)
}

/// Prints a line of a report on standard output. A reader that has closed it needs no more lines.
pub(crate) fn report(line: impl Display) -> Result<(), Failure> {
    let mut output = io::stdout();
    match writeln!(output, "{line}").and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(UNWRITTEN, format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

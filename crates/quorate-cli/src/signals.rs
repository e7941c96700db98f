//! The signals that are forwarded to the command, or that end the wait for the lock.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// A stream of these signals.
#[derive(Debug)]
pub(crate) struct Signals([(Signal, unix::Signal); 6]);

impl Signals {
    /// Takes the signals over. From now on none of them ends this process.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self([
            (Signal::TERM, unix::signal(SignalKind::terminate())?),
            (Signal::INT, unix::signal(SignalKind::interrupt())?),
            (Signal::HUP, unix::signal(SignalKind::hangup())?),
            (Signal::QUIT, unix::signal(SignalKind::quit())?),
            (Signal::USR1, unix::signal(SignalKind::user_defined1())?),
            (Signal::USR2, unix::signal(SignalKind::user_defined2())?),
        ]))
    }

    /// The next signal.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The exit code of a process that this signal ended.
pub(crate) fn code_of(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)
}

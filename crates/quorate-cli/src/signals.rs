//! The signals that are forwarded to the command, or that end the wait for the lock.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{self, SignalKind};

const FORWARDED: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// TTOU is for a warning, which a process in the background may not print on some terminals.
const STOPS: [Signal; 2] = [Signal::TSTP, Signal::TTOU];

/// Whether this signal asks for a stop until CONT.
pub(crate) fn is_stop(signal: Signal) -> bool {
    STOPS.contains(&signal)
}

/// Stops this process until CONT.
pub(crate) fn stop() {
    // As TSTP does without a handler, TTIN stops nothing where no shell could continue us: behind `ssh -t`, in a container.
    let _ = kill_process(getpid(), Signal::TTIN);
}

/// A stream of these signals.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    /// A process that ignores SIGCHLD never learns the exit code of its child, and a parent may have set that.
    _children: unix::Signal,
}

impl Signals {
    /// Takes the signals over. From now on none of them ends this process.
    pub(crate) fn new() -> io::Result<Self> {
        let streams =
            FORWARDED.iter().map(|signal| stream_of(*signal)).collect::<io::Result<_>>()?;
        Ok(Self { streams, _children: unix::signal(SignalKind::child())? })
    }

    /// Takes over the signals by which a terminal stops a process, too: the command has to stop first.
    pub(crate) fn catch_stops(&mut self) -> io::Result<()> {
        for signal in STOPS {
            self.streams.push(stream_of(signal)?);
        }
        Ok(())
    }

    /// The next signal.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

fn stream_of(signal: Signal) -> io::Result<(Signal, unix::Signal)> {
    Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?))
}

/// The exit code of a process that this signal ended.
pub(crate) fn code_of(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)
}

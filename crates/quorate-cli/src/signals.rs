//! The signals that are forwarded to the command, or that end the wait for the lock.

use std::future::poll_fn;
use std::task::Poll;
use std::{fs, io};

use rustix::process::{Signal, getpgrp, getpid, kill_process};
use rustix::termios::tcgetpgrp;
#[cfg(target_os = "linux")]
use rustix_libc_wrappers::process::SignalExt as _;
use tokio::signal::unix::{self, SignalKind};

/// All signals that end a process and can be caught, but for those of its own faults, and PIPE, which every Rust program
/// ignores.
const FORWARDED: &[Signal] = &[
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::XCPU,
    Signal::XFSZ,
    Signal::ABORT,
    Signal::TRAP,
    Signal::SYS,
    #[cfg(target_os = "linux")]
    Signal::IO,
    #[cfg(target_os = "linux")]
    Signal::POWER,
    #[cfg(target_os = "linux")]
    Signal::STKFLT,
];

/// TTOU is for a program in the background that prints, which some terminals forbid.
const STOPS: [Signal; 2] = [Signal::TSTP, Signal::TTOU];

/// Shells ignore them in their background jobs, because a terminal sends the keys to those as well.
const KEYS: [Signal; 2] = [Signal::INT, Signal::QUIT];

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
    /// A bit for each signal that was ignored when this program began.
    ignored: u64,
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Takes the signals over. From now on none of them ends this process.
    ///
    /// A signal that is ignored stays ignored, here and in the command. But a key that a shell has it ignored for is
    /// ignored as a key only: a `kill` is not.
    pub(crate) fn new() -> io::Result<Self> {
        let mut signals = Self { ignored: ignored(), streams: Vec::new() };
        signals.catch(FORWARDED.iter().copied())?;
        #[cfg(target_os = "linux")]
        signals.catch((0..).map_while(Signal::rt))?;
        Ok(signals)
    }

    /// Takes over the signals by which a terminal stops a process, too: the command has to stop first.
    pub(crate) fn catch_stops(&mut self) -> io::Result<()> {
        self.catch(STOPS)
    }

    fn catch(&mut self, signals: impl IntoIterator<Item = Signal>) -> io::Result<()> {
        for signal in signals {
            if !self.is_ignored(signal) || KEYS.contains(&signal) {
                self.streams.push((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
            }
        }
        Ok(())
    }

    fn is_ignored(&self, signal: Signal) -> bool {
        self.ignored >> (signal.as_raw() - 1) & 1 == 1
    }

    /// The next signal.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn next(&mut self) -> Signal {
        loop {
            let signal = poll_fn(|context| {
                for (signal, stream) in &mut self.streams {
                    if stream.poll_recv(context).is_ready() {
                        return Poll::Ready(*signal);
                    }
                }
                Poll::Pending
            })
            .await;
            if !(self.is_ignored(signal) && is_in_front()) {
                return signal;
            }
        }
    }
}

/// Whether the keys of our terminal signal this process.
fn is_in_front() -> bool {
    let group = fs::File::open("/dev/tty").ok().and_then(|terminal| tcgetpgrp(terminal).ok());
    group.is_some_and(|group| group == getpgrp())
}

/// The signals that this process ignores, where `/proc` tells.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The exit code of a process that this signal ended.
pub(crate) fn code_of(signal: Signal) -> u8 {
    u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX)
}

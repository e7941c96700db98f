//! The signals that are forwarded to the command, or that end the wait for the lock.

use std::fs;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::process::Signal;
#[cfg(target_os = "linux")]
use rustix_libc_wrappers::process::SignalExt as _;
use tokio::signal::unix::{self, SignalKind};

use crate::exit::Failure;
use crate::processes::is_in_front;

/// Signals that end no process or report a fault of the process itself, and PIPE, which every Rust
/// program ignores. Others of that kind cannot be caught, or tokio refuses to.
const OTHERS: [Signal; 9] = [
    Signal::TSTP,
    Signal::TTIN,
    Signal::TTOU,
    Signal::CONT,
    Signal::CHILD,
    Signal::URG,
    Signal::WINCH,
    Signal::BUS,
    Signal::PIPE,
];

/// Shells ignore them in their background jobs, because a terminal sends the keys to those as well.
const KEYS: [Signal; 2] = [Signal::INT, Signal::QUIT];

/// Within this time of the one before, an interrupt is the same key: a wrapper repeats what the
/// terminal sent.
const SAME_KEY: Duration = Duration::from_millis(200);

/// How long after an interrupt that was forwarded a second one kills the command.
const AGAIN: Duration = Duration::from_secs(2);

/// A stream of the signals that end a process.
#[derive(Debug)]
pub(crate) struct Signals {
    /// A bit for each signal that was ignored when this program began.
    ignored: u64,
    /// The command is in our group: a terminal sends the keys to it, too.
    is_shared: bool,
    /// The last interrupt that was forwarded.
    interrupted: Option<Instant>,
    streams: Vec<(Signal, unix::Signal)>,
}

impl Signals {
    /// Takes the signals over. From now on none of them ends this process.
    ///
    /// A signal that is ignored stays ignored, here and in the command. But a key that a shell has
    /// it ignored for is ignored as a key only: a `kill` is not.
    pub(crate) fn new() -> Self {
        let (ignored, streams) = (ignored(), Vec::new());
        let mut signals = Self { ignored, is_shared: false, interrupted: None, streams };
        let named = (1..32).filter_map(Signal::from_named_raw);
        signals.catch(named.filter(|signal| !OTHERS.contains(signal)));
        #[cfg(target_os = "linux")]
        signals.catch((0..).map_while(Signal::rt));
        signals
    }

    /// Before the command begins: takes over its end, and the signals by which a terminal stops a
    /// process, since the command has to stop first. TTOU is for a program in the background that
    /// prints, which some terminals forbid.
    pub(crate) fn begin(&mut self, is_shared: bool) {
        self.is_shared = is_shared;
        self.catch([Signal::CHILD, Signal::TSTP, Signal::TTOU]);
    }

    fn catch(&mut self, signals: impl IntoIterator<Item = Signal>) {
        for signal in signals {
            let is_meant = !self.is_ignored(signal) || KEYS.contains(&signal);
            // If CHILD were ignored, no process would have an exit code.
            if is_meant || signal == Signal::CHILD {
                let stream = unix::signal(SignalKind::from_raw(signal.as_raw()));
                self.streams.extend(stream.map(|stream| (signal, stream)));
            }
        }
    }

    fn is_ignored(&self, signal: Signal) -> bool {
        self.ignored >> (signal.as_raw() - 1) & 1 == 1
    }

    /// The next signal for the command. A repeated interrupt is none, and a second one is KILL.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn next(&mut self) -> Signal {
        loop {
            let signal = poll_fn(|context| {
                let ready = self.streams.iter_mut().find_map(|(signal, stream)| {
                    stream.poll_recv(context).is_ready().then_some(*signal)
                });
                ready.map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            let is_key = KEYS.contains(&signal) && (self.is_shared || self.is_ignored(signal));
            let meant = match signal {
                _ if is_key && is_in_front() => None,
                Signal::INT => meaning(&mut self.interrupted, Instant::now()),
                signal => Some(signal),
            };
            if let Some(signal) = meant {
                return signal;
            }
        }
    }

    /// The end of this process by the next signal.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn end(&mut self) -> Failure {
        let code = 128 + self.next().await.as_raw();
        Failure::new(u8::try_from(code).unwrap_or(u8::MAX), "")
    }
}

/// The signals that this process ignores, where `/proc` lists them.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The signal that an interrupt of now means, behind the last one that was `forwarded`; `None` for
/// a repeated one.
fn meaning(forwarded: &mut Option<Instant>, now: Instant) -> Option<Signal> {
    match forwarded.map(|at| now.duration_since(at)) {
        Some(since) if since < SAME_KEY => None,
        Some(since) if since < AGAIN => Some(Signal::KILL),
        _ => {
            *forwarded = Some(now);
            Some(Signal::INT)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x3_two_interrupts_within_200_ms_are_one_and_a_later_second_one_kills() {
        const FORWARDED: Option<Signal> = Some(Signal::INT);
        const REPEATED: Option<Signal> = None;
        const KILLS: Option<Signal> = Some(Signal::KILL);

        let start = Instant::now();
        for rows in [
            &[(0, FORWARDED), (0, REPEATED), (1, REPEATED), (199, REPEATED), (200, KILLS)][..],
            &[(0, FORWARDED), (150, REPEATED), (250, KILLS)],
            &[(0, FORWARDED), (1_999, KILLS)],
            &[(0, FORWARDED), (2_000, FORWARDED), (2_100, REPEATED), (2_200, KILLS)],
        ] {
            let mut forwarded = None;
            for (at, meant) in rows {
                let now = start + Duration::from_millis(*at);
                assert_eq!(meaning(&mut forwarded, now), *meant, "at {at} of {rows:?}");
            }
        }
    }
}

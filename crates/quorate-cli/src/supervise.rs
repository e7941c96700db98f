//! The command under its lease: signals are forwarded, and nothing of it runs after the lease (X1).

use std::pin::pin;
use std::time::{Duration, Instant};

use quorate::runtime::{Runtime as _, TokioRuntime};
use quorate::{Lease, LeaseEnd};
use rustix::process::Signal;

use crate::child::Running;
use crate::interrupts::{Interrupt, Interrupts};
use crate::signals::{self, Signals};

/// How often what is left is killed: a process that was just born has not got the last KILL.
const KILL_AGAIN: Duration = Duration::from_millis(20);

/// How long what is left of a command that has ended is killed. What is still there then cannot be.
const BURIAL: Duration = Duration::from_secs(1);

/// How the command has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: u8,
    /// Why the command was stopped; `None` if it ended by itself.
    pub(crate) stopped: Option<String>,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Runs,
    /// All of the command was told to stop.
    Stopping {
        kill_at: Instant,
    },
    Killed {
        at: Instant,
    },
}

/// Waits until all of the command has ended, and stops it before the lease ends.
pub(crate) async fn supervise(
    running: &mut Running,
    lease: &Lease,
    kill_after: Duration,
    signals: &mut Signals,
) -> Ended {
    let (runtime, mut lost) = (TokioRuntime::new(), pin!(lease.lost()));
    let (mut is_lost, mut stopped, mut phase) = (false, None, Phase::Runs);
    let mut interrupts = Interrupts::default();
    loop {
        let next = match phase {
            Phase::Runs => runtime.now() + lease.remaining().saturating_sub(kill_after),
            Phase::Stopping { kill_at } => kill_at,
            Phase::Killed { .. } => runtime.now() + KILL_AGAIN,
        };
        tokio::select! {
            biased;
            () = running.ended() => {
                if running.is_over {
                    break;
                }
                // What it left behind does not run without the lock either.
                if matches!(phase, Phase::Runs) {
                    running.terminate(lease);
                    phase = Phase::Stopping { kill_at: runtime.now() + kill_after };
                }
            }
            reason = &mut lost, if !is_lost => {
                is_lost = true;
                phase = match (&reason, phase) {
                    (_, Phase::Killed { .. }) | (LeaseEnd::NotHeld(_), Phase::Stopping { .. }) => phase,
                    (LeaseEnd::NotHeld(_), Phase::Runs) => {
                        running.terminate(lease);
                        Phase::Stopping { kill_at: runtime.now() + kill_after }
                    }
                    _ => kill(running),
                };
                stopped = Some(reason.to_string());
            }
            // A suspend of the machine ends it in time.
            () = runtime.long_sleep_until(next) => match phase {
                // A renewal has succeeded meanwhile.
                Phase::Runs if lease.remaining() > kill_after => {}
                Phase::Runs => {
                    let left = lease.remaining();
                    running.terminate(lease);
                    stopped = Some(format!("no renewal succeeded until {left:.1?} before the end of the lease"));
                    phase = Phase::Stopping { kill_at: runtime.now() + left };
                }
                Phase::Stopping { .. } => phase = kill(running),
                Phase::Killed { at } if running.code.is_some() && at.elapsed() > BURIAL => break,
                Phase::Killed { .. } => running.signal(Signal::KILL),
            },
            signal = signals.next() => match signal {
                _ if signals::is_stop(signal) => running.stop_together(lease).await,
                _ if running.has_from_terminal(signal) => {}
                Signal::INT => match interrupts.handle(Instant::now()) {
                    Interrupt::Forward => running.signal(signal),
                    Interrupt::Repeated => {}
                    Interrupt::Kill => phase = kill(running),
                },
                _ => running.signal(signal),
            },
        }
    }
    Ended { code: running.code.unwrap_or(u8::MAX), stopped }
}

fn kill(running: &Running) -> Phase {
    running.signal(Signal::KILL);
    Phase::Killed { at: Instant::now() }
}

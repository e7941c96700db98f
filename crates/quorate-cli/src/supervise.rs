//! The command under its lease: signals are forwarded, and nothing of it runs after the lease (X1).

use std::time::{Duration, Instant};

use quorate::error::Of;
use quorate::runtime::{Runtime as _, TokioRuntime};
use quorate::{Lease, LeaseEnd};
use rustix::process::Signal;

use crate::child::Running;
use crate::signals::Signals;

/// How often what is left is killed: a process that was just born has not got the last KILL.
const KILL_AGAIN: Duration = Duration::from_millis(20);

/// How long what is left of a command that has ended is killed. What is still there then cannot be.
const BURIAL: Duration = Duration::from_secs(1);

/// The signals by which people and supervisors end a command. One that is stopped gets them when it goes on.
const ENDS: [Signal; 3] = [Signal::TERM, Signal::HUP, Signal::INT];

/// Waits until all of the command has ended, and stops it before the lease ends. Returns its exit code, or why it was
/// stopped.
pub(crate) async fn supervise(
    running: &mut Running,
    lease: &Lease,
    kill_after: Duration,
    signals: &mut Signals,
) -> Result<u8, String> {
    let runtime = TokioRuntime::new();
    // It was asked to stop, and is killed from then on.
    let mut kill_at: Option<Instant> = None;
    let mut stopped = None;
    loop {
        let now = runtime.now();
        let next = match kill_at {
            None => now + lease.remaining().saturating_sub(kill_after),
            Some(at) if at > now => at,
            Some(_) => now + KILL_AGAIN,
        };
        // How long it may go on, if it has to stop.
        let left = tokio::select! {
            biased;
            is_over = running.ended() => match is_over {
                true => break,
                // What it left behind does not run without the lock either.
                false => Some(kill_after),
            },
            reason = lease.lost(), if stopped.is_none() => {
                stopped = Some(reason.to_string());
                Some(if matches!(reason, LeaseEnd::NotHeld(_)) { kill_after } else { Duration::ZERO })
            }
            // Asked to leave: it has the rest of the lease to stop.
            Ok(by) = lease.revoked(), if stopped.is_none() => {
                let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
                stopped = Some(format!("{}revoked{by}", Of::new(lease.keys())));
                Some(lease.remaining())
            }
            // A suspend of the machine ends it in time.
            () = runtime.long_sleep_until(next) => match kill_at {
                // A renewal has succeeded meanwhile.
                None if lease.remaining() > kill_after => None,
                None => {
                    let (left, of) = (lease.remaining(), Of::new(lease.keys()));
                    stopped = Some(format!("{of}no renewal succeeded until {left:.1?} before the end of the lease"));
                    Some(left)
                }
                Some(at) if running.code.is_some() && runtime.now() > at + BURIAL => break,
                Some(_) => Some(Duration::ZERO),
            },
            signal = signals.next() => match signal {
                Signal::KILL => Some(Duration::ZERO),
                Signal::TSTP | Signal::TTOU => {
                    running.stop_together(lease).await;
                    None
                }
                _ => {
                    running.signal(signal);
                    if ENDS.contains(&signal) {
                        running.go_on(lease);
                    }
                    None
                }
            },
        };
        let now = runtime.now();
        match (left, kill_at) {
            (Some(Duration::ZERO), _) => {
                running.signal(Signal::KILL);
                kill_at = Some(kill_at.map_or(now, |at| at.min(now)));
            }
            (Some(left), None) => {
                running.terminate(lease);
                kill_at = Some(now + left);
            }
            _ => {}
        }
    }
    let code = running.code.unwrap_or(u8::MAX);
    stopped.map_or(Ok(code), Err)
}

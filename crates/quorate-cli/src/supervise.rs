//! The command under its lease: signals are forwarded, and nothing of it runs after the lease (X1).

use std::time::{Duration, Instant};

use quorate::Lease;
use quorate::error::Of;
use quorate::runtime::{Runtime as _, TokioRuntime};
use rustix::process::Signal;

use crate::child::Running;
use crate::signals::Signals;

/// How often is looked whether the end of the lease has moved back.
const LOOK: Duration = Duration::from_millis(100);

/// How often what is left is killed: a process that was just born has not got the last KILL.
const KILL_AGAIN: Duration = Duration::from_millis(20);

/// How long what is left of a command that has ended is killed. What is still there then cannot be.
const BURIAL: Duration = Duration::from_secs(1);

/// The signals by which people and supervisors end a command. One that is stopped gets them when it
/// goes on.
const ENDS: [Signal; 3] = [Signal::TERM, Signal::HUP, Signal::INT];

/// Waits until all of the command has ended, and stops it before the lease ends. Returns its exit
/// code, or why it was stopped.
pub(crate) async fn supervise(
    running: &mut Running,
    lease: &Lease,
    kill_after: Duration,
    signals: &mut Signals,
) -> Result<u8, String> {
    let runtime = TokioRuntime::new();
    // When it was asked to stop, and from when on it is killed.
    let mut stop: Option<(Instant, Instant)> = None;
    let (mut stopped, mut is_lost) = (None, false);
    // The end of the lease, as it was last known.
    let mut until = runtime.now();
    loop {
        let now = runtime.now();
        if lease.is_valid() {
            until = now + lease.remaining();
        }
        let next = match stop {
            // The end may move back.
            None => now + lease.remaining().saturating_sub(kill_after).min(LOOK),
            Some((_, at)) if at > now => at,
            Some(_) => now + KILL_AGAIN,
        };
        // From when on it is killed, if it has to stop.
        let kill_at = tokio::select! {
            biased;
            is_over = running.ended() => match is_over {
                true => break,
                // What it left behind does not run without the lock either.
                false => Some(runtime.now() + kill_after),
            },
            // Whatever came before: another one may have the lock. It has the time to stop once.
            reason = lease.lost(), if !is_lost => {
                (is_lost, stopped) = (true, stopped.or_else(|| Some(reason.to_string())));
                let asked = stop.map_or_else(|| runtime.now(), |(asked, _)| asked);
                Some(until.min(asked + kill_after))
            }
            // Asked to leave: it has the rest of the lease to stop.
            Ok(by) = lease.revoked(), if stopped.is_none() => {
                let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
                stopped = Some(format!("{}revoked{by}", Of::new(lease.keys())));
                Some(runtime.now() + lease.remaining())
            }
            // A suspend of the machine ends it in time.
            () = runtime.long_sleep_until(next) => match stop {
                // A renewal has succeeded meanwhile.
                None if lease.remaining() > kill_after => None,
                None => {
                    let (left, of) = (lease.remaining(), Of::new(lease.keys()));
                    stopped = Some(format!(
                        "{of}no renewal succeeded until {left:.1?} before the end of the lease"
                    ));
                    Some(runtime.now() + left)
                }
                Some((_, at)) if running.code.is_some() && runtime.now() > at + BURIAL => break,
                stop => stop.map(|(_, at)| at),
            },
            signal = signals.next() => match signal {
                Signal::KILL => Some(now),
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
        if let Some(kill_at) = kill_at {
            match kill_at <= now {
                true => running.signal(Signal::KILL),
                false if stop.is_none() => running.terminate(lease),
                false => {}
            }
            let (asked, at) = stop.unwrap_or((now, kill_at));
            stop = Some((asked, at.min(kill_at)));
        }
    }
    let code = running.code.unwrap_or(u8::MAX);
    stopped.map_or(Ok(code), Err)
}

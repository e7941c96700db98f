//! The command under its lease: signals are forwarded, and nothing of it runs after the lease (X1).

use std::time::{Duration, Instant};

use quorate::Lease;
use quorate::error::Of;
use quorate::runtime::{Runtime as _, TokioRuntime};
use rustix::process::Signal;

use crate::child::Running;
use crate::session::Session;

/// How often the command, its lease and the nodes are looked at, beside each end of a child. A
/// process that began with SIGCHLD blocked hears of none.
const LOOK: Duration = Duration::from_millis(50);

/// How often what is left is killed: a process that was just born has not got the last KILL.
const KILL_AGAIN: Duration = Duration::from_millis(20);

/// How long what is left of a command that has ended is killed. What is still there then cannot be.
const BURIAL: Duration = Duration::from_secs(1);

/// Waits until all of the command has ended, and stops it before the lease ends. Returns its exit
/// code, or why it was stopped.
pub(crate) async fn supervise(
    running: &mut Running,
    lease: &Lease,
    kill_after: Duration,
    session: &mut Session,
) -> Result<u8, String> {
    let (runtime, of) = (TokioRuntime::new(), Of(lease.keys()));
    // When it was asked to stop, and from when on it is killed.
    let (mut asked, mut kill_at) = (None, None);
    let (mut stopped, mut is_lost) = (None, false);
    // The end of the lease, as it was last known.
    let mut until = runtime.now();
    let code = loop {
        let (now, left) = (runtime.now(), lease.remaining());
        if lease.is_valid() {
            until = now + left;
            // The end may have moved back.
            if kill_at.is_none() && left <= kill_after {
                stopped = Some(format!(
                    "{of}no renewal succeeded until {left:.1?} before the end of the lease"
                ));
                kill_at = Some(until);
            }
        }
        if let Some(code) = running.code() {
            if !running.is_left() || kill_at.is_some_and(|at| now > at + BURIAL) {
                break code;
            }
            // What it left behind does not run without the lock either.
            kill_at = sooner(kill_at, now + kill_after);
        }
        match kill_at {
            Some(at) if at <= now => running.signal(Signal::KILL),
            Some(_) if asked.is_none() => {
                asked = Some(now);
                running.forward(Signal::TERM, lease);
            }
            _ => {}
        }
        session.look();
        if stopped.is_none() {
            session.look_at_risk(lease);
        }
        let next = match kill_at {
            None => now + left.saturating_sub(kill_after),
            Some(at) if at > now => at,
            Some(_) => now + KILL_AGAIN,
        };
        tokio::select! {
            biased;
            // Whatever came before: another one may have the lock. It has the time to stop once.
            reason = lease.lost(), if !is_lost => {
                (is_lost, stopped) = (true, stopped.or_else(|| Some(reason.to_string())));
                let asked = asked.unwrap_or_else(|| runtime.now());
                kill_at = sooner(kill_at, until.min(asked + kill_after));
            }
            // Asked to leave: it has the rest of the lease to stop.
            Ok(by) = lease.revoked(), if stopped.is_none() => {
                let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
                let (why, left) = (format!("{of}revoked{by}"), lease.remaining());
                session.warn(format!("{why}, and {left:.1?} of the lease are left"));
                stopped = Some(why);
                kill_at = sooner(kill_at, runtime.now() + left);
            }
            // A suspend of the machine ends it in time.
            () = runtime.long_sleep_until(next.min(now + LOOK)) => {}
            signal = session.signals.next() => match signal {
                // The next look takes its exit code.
                Signal::CHILD => {}
                Signal::KILL => kill_at = Some(now),
                Signal::TSTP | Signal::TTOU => running.stop_together(lease).await,
                signal => running.forward(signal, lease),
            },
        }
    };
    stopped.map_or(Ok(code), Err)
}

fn sooner(kill_at: Option<Instant>, end: Instant) -> Option<Instant> {
    Some(kill_at.map_or(end, |at| at.min(end)))
}

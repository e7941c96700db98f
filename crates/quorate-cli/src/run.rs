//! `quorate run`: a command under a lock.

use std::convert::Infallible;
use std::future::{IntoFuture as _, pending};
use std::time::Duration;

use quorate::algorithm::lease::SafetyMargin;
use quorate::backend::{Drift, Ttl};
use quorate::error::ExtendError;
use quorate::{LockGuard, LockManager, LockRequest, ReleaseError};

use crate::args::{Common, Run};
use crate::child::Running;
use crate::exit::{Failure, HELD, LOST};
use crate::line;
use crate::nodes::{CLOSE, builder, label};
use crate::period;
use crate::say;
use crate::signals::{self, Signals};
use crate::supervise::{supervise, warn};

/// How long the command has to stop, unless that is over a third of the validity.
const KILL_AFTER: Duration = Duration::from_secs(5);

/// Runs the command, and returns the exit code.
pub(crate) async fn run(common: &Common, run: &Run) -> Result<u8, Failure> {
    let kill_after = kill_after(run)?;
    let names = period::names(&run.names, run.permits, run.once_per)?;
    let manager = builder(common)?.ttl(run.held.ttl()).label(label(run.held.label.as_deref()));
    let manager = manager.build()?;
    let mut signals = Signals::new().map_err(Failure::usage)?;
    let result = under_lock(&manager, common, run, &names, kill_after, &mut signals).await;
    let report = manager.close(CLOSE).await;
    if common.verbose {
        say::line(report);
    }
    match result {
        Err(Failure { code: HELD, .. }) if run.skip || run.once_per.is_some() => Ok(0),
        Err(Failure { code: HELD, text }) => Err(Failure::new(run.held_code, text)),
        result => result,
    }
}

/// How long the command has to stop: at most a third of the validity (X1).
fn kill_after(run: &Run) -> Result<Duration, Failure> {
    let ttl = Ttl::try_from(run.held.ttl()).map_err(Failure::usage)?;
    let most = SafetyMargin::default().validity(Drift::default(), ttl) / 3;
    let given = run.kill_after.unwrap_or_else(|| KILL_AFTER.min(most));
    if given > most {
        let ttl = run.held.ttl();
        let most = Duration::from_millis(u64::try_from(most.as_millis()).unwrap_or(u64::MAX));
        let text = format!(
            "--kill-after {given:?} is over a third of the validity of --ttl {ttl:?}: at most {most:?}"
        );
        return Err(Failure::usage(text));
    }
    Ok(given)
}

async fn under_lock(
    manager: &LockManager,
    common: &Common,
    run: &Run,
    names: &[String],
    kill_after: Duration,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let request = match run.permits {
        Some(_) => manager.lock_any(names),
        None if run.read => manager.read(names),
        None => manager.lock(names),
    };
    let request = request.auto_renew();
    let request = if run.held.fenced { request.fenced() } else { request };
    let wait = run.wait.limit().filter(|_| run.once_per.is_none());
    let guard = acquire(manager, request, names, wait, signals).await?;
    let prefix = common.prefix.as_deref().unwrap_or_default();
    let is_held = |name: &&String| {
        let key = [prefix, name].concat();
        guard.keys().iter().any(|held| held.as_bytes() == key.as_bytes())
    };
    let names: &Vec<String> = &names.iter().filter(is_held).cloned().collect();
    if common.verbose {
        let (names, left) = (names.join(" "), guard.remaining());
        say::line(format!("{names}: acquired, valid for {left:.1?}"));
    }
    signals.catch_stops().map_err(Failure::usage)?;
    say::settle(say::SETTLE);
    let mut running = Running::start(run, names, &guard)?;
    let lease = guard.lease();
    let supervised = supervise(&mut running, &lease, kill_after, signals);
    let warned = async {
        if !common.quiet {
            warn(&lease).await;
        }
        pending::<Infallible>().await
    };
    let ended = tokio::select! {
        biased;
        ended = supervised => ended,
        never = warned => match never {},
    };
    let (lost, unsure) = match run.once_per.filter(|_| ended.code == 0 && ended.stopped.is_none()) {
        // Two periods, so that a machine whose clock is a period slow does not run it again.
        Some(period) => match guard.keep(2 * period.length()).await {
            Ok(()) => (None, None),
            Err(ExtendError::Lost(reason)) => (Some(reason.to_string()), None),
            Err(error) => (None, Some(format!("not kept: {error}"))),
        },
        None => match guard.release().await {
            Ok(()) => (None, None),
            Err(ReleaseError::Lost(reason)) => (Some(reason.to_string()), None),
            Err(error) => (None, Some(error.to_string())),
        },
    };
    match (ended.stopped, lost, unsure) {
        (Some(why), ..) => {
            Err(Failure::new(LOST, format!("the lock was lost, and the command stopped: {why}")))
        }
        (None, Some(why), _) => Err(Failure::new(LOST, format!("the lock was lost: {why}"))),
        (None, None, unsure) => {
            if let Some(why) = unsure.filter(|_| !common.quiet) {
                say::line(why);
            }
            Ok(ended.code)
        }
    }
}

/// Waits for the lock, or for no holder without a `wait`. A signal ends the wait, after what was acquired has been
/// released (X3).
pub(crate) async fn acquire(
    manager: &LockManager,
    request: LockRequest,
    names: &[String],
    wait: Option<Duration>,
    signals: &mut Signals,
) -> Result<LockGuard, Failure> {
    let request = match wait {
        Some(wait) => request.timeout(wait),
        None => request.no_wait(),
    };
    let mut acquiring = request.into_future();
    let signal = tokio::select! {
        biased;
        signal = signals.next() => signal,
        acquired = &mut acquiring => return Ok(acquired?),
        never = line::show(manager, names, wait) => match never {},
    };
    drop(acquiring);
    let _ = manager.close(CLOSE).await;
    Err(Failure::new(signals::code_of(signal), ""))
}

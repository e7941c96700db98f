//! `quorate run`: a command under a lock.

use std::num::NonZeroU16;
use std::time::Duration;

use quorate::algorithm::lease::SafetyMargin;
use quorate::backend::{Drift, Ttl};
use quorate::error::ExtendError;
use quorate::{LockGuard, LockManager, LockRequest, ReleaseError};
use tokio::time::Instant;

use crate::args::{Common, Run};
use crate::child::Running;
use crate::exit::{Failure, HELD, LOST};
use crate::line;
use crate::names::names;
use crate::nodes::{CLOSE, builder, label};
use crate::say;
use crate::signals::{self, Signals};
use crate::supervise::supervise;
use crate::warnings::{Warnings, await_slower_nodes};

/// How long the command has to stop, unless that is over a third of the validity.
const KILL_AFTER: Duration = Duration::from_secs(5);

/// Runs the command, and returns the exit code.
pub(crate) async fn run(common: &Common, run: &Run) -> Result<u8, Failure> {
    let kill_after = kill_after(run)?;
    let names = names(&run.names, run.permits.map(NonZeroU16::get), run.once_per)?;
    let names: Vec<String> = names.into_iter().map(|name| name.text).collect();
    let manager = builder(common)?.ttl(run.held.ttl()).label(label(run.held.label.as_deref()));
    let manager = manager.build()?;
    let mut signals = Signals::new().map_err(Failure::usage)?;
    let mut warnings = Warnings::new(&manager, common.quiet);
    let result =
        under_lock(&manager, common, run, &names, kill_after, &mut signals, &mut warnings).await;
    let report = manager.close(CLOSE).await;
    if result.is_ok() {
        warnings.look();
    }
    if common.verbose {
        say::line(report);
    }
    match result {
        Err(Failure { code: HELD, text }) if run.skip || run.once_per.is_some() && !run.again => {
            if common.verbose {
                say::line(format!("skipped: {}: {text}", which(run, &names)));
            }
            Ok(0)
        }
        Err(Failure { code: HELD, text }) => {
            Err(Failure::new(run.held_code, format!("{}: {text}", which(run, &names))))
        }
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

/// Deletes the mark of a period that is done. A run that is in progress keeps its lock (V7).
async fn forget(manager: &LockManager, name: &str) -> Result<(), Failure> {
    let seen = manager.inspect(name).await.map_err(Failure::usage)?;
    if seen.is_done() {
        manager.delete_seen(name, &seen).await.map_err(Failure::usage)?;
    }
    Ok(())
}

/// The names of an error: all, or of permits the first and the last.
fn which(run: &Run, names: &[String]) -> String {
    match (run.permits, names) {
        (Some(_), [first, .., last]) => format!("no permit of {first} to {last} is free"),
        _ => names.join(" "),
    }
}

async fn under_lock(
    manager: &LockManager,
    common: &Common,
    run: &Run,
    names: &[String],
    kill_after: Duration,
    signals: &mut Signals,
    warnings: &mut Warnings<'_>,
) -> Result<u8, Failure> {
    if let (true, [name]) = (run.again, names) {
        forget(manager, name).await?;
    }
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
    let ended = tokio::select! {
        biased;
        ended = supervised => ended,
        never = warnings.watch(&lease) => match never {},
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
                // That has named the nodes.
                warnings.is_quiet = true;
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
    let mut acquiring = Box::pin(async {
        let begun = Instant::now();
        let guard = request.await?;
        await_slower_nodes(manager, begun.elapsed()).await?;
        Ok(guard)
    });
    let signal = tokio::select! {
        biased;
        signal = signals.next() => signal,
        acquired = &mut acquiring => return acquired,
        never = line::show(manager, names, wait) => match never {},
    };
    drop(acquiring);
    let _ = manager.close(CLOSE).await;
    Err(Failure::new(signals::code_of(signal), ""))
}

//! `quorate run`: a command under a lock.

use std::env;
use std::time::Duration;

use quorate::backend::{Drift, SafetyMargin, Ttl};
use quorate::error::ExtendError;

use crate::args::{Common, Run};
use crate::child::Running;
use crate::exit::{Failure, HELD, LOST, NO_QUORUM};
use crate::names::names;
use crate::say;
use crate::session::Session;
use crate::supervise::supervise;

/// How long the command has to stop, unless that is over a third of the validity.
const KILL_AFTER: Duration = Duration::from_secs(5);

/// Runs the command, and returns the exit code.
pub(crate) async fn run(common: &Common, run: &Run) -> Result<u8, Failure> {
    if let (Some((_, Some(_))), None) = (run.held_codes, run.once_per) {
        return Err(Failure::usage("-E CODE,DONE needs --once-per"));
    }
    let kill_after = kill_after(run)?;
    let names = names(&run.names, run.permits, run.once_per)?;
    let names: Vec<String> = names.into_iter().map(|name| name.text).collect();
    let mut session = Session::open(common, &run.held)?;
    let result = under_lock(&mut session, run, &names, kill_after).await;
    session.close(&result).await;
    let Err(Failure { code: HELD, text, is_done }) = result else { return result };
    let is_skipped = run.skip || (run.once_per.is_some() && !run.again);
    let code = match run.held_codes {
        Some((_, done)) if is_done && run.once_per.is_some() => done.unwrap_or(0),
        Some((held, _)) => held,
        None if is_skipped => 0,
        None => HELD,
    };
    let text = match is_skipped {
        false => text,
        true if common.verbose => format!("skipped: {text}"),
        true => String::new(),
    };
    Err(Failure::new(code, text))
}

/// How long the command has to stop: at most a third of the validity (X1), in whole milliseconds.
fn kill_after(run: &Run) -> Result<Duration, Failure> {
    let ttl = Ttl::try_from(run.held.ttl()).map_err(Failure::usage)?;
    let third = SafetyMargin::default().validity(Drift::default(), ttl) / 3;
    let most = third - Duration::from_nanos(u64::from(third.subsec_nanos() % 1_000_000));
    match run.kill_after.map(Duration::from) {
        None => Ok(KILL_AFTER.min(most)),
        Some(given) if given <= most => Ok(given),
        Some(given) => Err(Failure::usage(format!(
            "--kill-after {given:?} is over a third of the validity of --ttl {:?}: at most \
             {most:?}",
            run.held.ttl()
        ))),
    }
}

async fn under_lock(
    session: &mut Session,
    run: &Run,
    names: &[String],
    kill_after: Duration,
) -> Result<u8, Failure> {
    let manager = &session.manager;
    if let (true, [name]) = (run.again, names) {
        // A run that is in progress keeps its lock (V7).
        let seen = manager.inspect(name).await.map_err(Failure::usage)?;
        if seen.is_done() {
            manager.delete_seen(name, &seen).await.map_err(Failure::usage)?;
        }
    }
    let request = match run.permits {
        Some(_) => manager.lock_any(names),
        None if run.read => manager.read(names),
        None => manager.lock(names),
    };
    let request = request.auto_renew();
    let request = if run.held.fenced { request.fenced() } else { request };
    let wait = run.held.wait().filter(|_| run.once_per.is_none());
    if run.permits.is_none() && !run.read {
        let above = env::var("QUORATE_LOCK").unwrap_or_default();
        // Then this one may wait for its own end.
        for name in names.iter().filter(|name| above.lines().any(|held| held == *name)) {
            let text = "the lock of the command that this one runs in (QUORATE_LOCK)";
            session.warn(format!("{}: {text}", say::shown(name)));
        }
    }
    let guard = session.acquire(request, names, wait).await?;
    // Of permits it is one.
    let is_held =
        |name: &&String| guard.keys().iter().any(|key| key.as_bytes().ends_with(name.as_bytes()));
    let names = names.iter().filter(is_held).cloned().collect::<Vec<_>>();
    let (shown, left) = (say::shown(&names.join(" ")), guard.remaining());
    session.note(format!("{shown}: acquired, valid for {left:.1?}"));
    let _ = say::settle(say::SETTLE);
    let mut running = Running::start(run, &names.join("\n"), &guard, &mut session.signals)?;
    let ended = supervise(&mut running, &guard.lease(), kill_after, session).await;
    let given_back = match run.once_per.filter(|_| ended == Ok(0)) {
        // Two periods, so that a machine whose clock is a period slow does not run it again.
        Some(period) => guard.keep(2 * period.length()).await.map_err(|error| match error {
            ExtendError::Lost(reason) => reason.into(),
            error => Failure::new(NO_QUORUM, format!("not kept: {error}")),
        }),
        None => guard.release().await.map_err(Failure::from),
    };
    let stopped = |why| format!("the lock was lost, and the command stopped: {why}");
    let code = ended.map_err(|why| Failure::new(LOST, stopped(why)))?;
    match given_back {
        Err(failure) if failure.code == LOST => Err(failure),
        Err(unsure) => {
            session.warn(unsure.text);
            // That has named the nodes.
            session.is_quiet = true;
            Ok(code)
        }
        Ok(()) => Ok(code),
    }
}

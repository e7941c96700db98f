//! `quorate run`: a command under a lock.

use std::convert::Infallible;
use std::future::{IntoFuture as _, pending};
use std::time::{Duration, UNIX_EPOCH};

use quorate::algorithm::lease::SafetyMargin;
use quorate::backend::{Drift, Ttl};
use quorate::error::{ExtendError, InvalidRequest};
use quorate::{LockError, LockGuard, LockManager, LockRequest, ReleaseError};
use tokio::time::{Instant, sleep};

use crate::args::{Common, Run};
use crate::child::Running;
use crate::exit::{Failure, HELD, LOST, PERMANENT};
use crate::line;
use crate::nodes::{CLOSE, builder, label};
use crate::signals::{self, Signals};
use crate::supervise::{supervise, warn};

/// The shortest period. The longest is the longest ttl.
const LEAST_PERIOD: Duration = Duration::from_secs(1);

/// How long nodes are waited for that no quorum needed: a node that is away costs that.
const LATE_ANSWERS: Duration = Duration::from_millis(100);

/// Between two looks at them.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Runs the command, and returns the exit code.
pub(crate) async fn run(common: &Common, run: &Run) -> Result<u8, Failure> {
    check_kill_after(run)?;
    let names = names(run)?;
    let manager = builder(common)?.ttl(run.held.ttl).label(label(run.held.label.as_deref()));
    let manager = manager.build()?;
    let mut signals = Signals::new().map_err(Failure::usage)?;
    let result = under_lock(&manager, common, run, &names, &mut signals).await;
    let report = manager.close(CLOSE).await;
    if common.verbose {
        eprintln!("quorate: {report}");
    }
    let is_told = matches!(result, Err(Failure { code: PERMANENT, .. })) || common.quiet;
    if let Some(failure) = one_server(&manager, Duration::ZERO).await.filter(|_| !is_told) {
        eprintln!("quorate: {}", failure.text);
    }
    match result {
        Err(Failure { code: HELD, .. }) if run.skip || run.once_per.is_some() => Ok(0),
        Err(Failure { code: HELD, text }) => Err(Failure::new(run.held_code, text)),
        result => result,
    }
}

/// The command needs time to stop: at most a third of the validity (X1).
fn check_kill_after(run: &Run) -> Result<(), Failure> {
    let ttl = Ttl::try_from(run.held.ttl).map_err(Failure::usage)?;
    let most = SafetyMargin::default().validity(Drift::default(), ttl) / 3;
    if run.kill_after > most {
        let (given, ttl) = (run.kill_after, run.held.ttl);
        let most = Duration::from_millis(u64::try_from(most.as_millis()).unwrap_or(u64::MAX));
        let text = format!(
            "--kill-after {given:?} is over a third of the validity of --ttl {ttl:?}: at most {most:?}"
        );
        return Err(Failure::usage(text));
    }
    Ok(())
}

/// The names to lock: those given, or the name of the period, as [`LockManager::once_per`] has it. With permits, one of them
/// is locked.
fn names(run: &Run) -> Result<Vec<String>, Failure> {
    if let Some(count) = run.permits {
        let [name] = &run.names[..] else { return Err(Failure::usage("--permits needs one name")) };
        return Ok((1..=count.get()).map(|number| format!("{name}#{number}")).collect());
    }
    let Some(period) = run.once_per else { return Ok(run.names.clone()) };
    let [name] = &run.names[..] else { return Err(Failure::usage("--once-per needs one name")) };
    if !(LEAST_PERIOD..=Ttl::MAX).contains(&period) {
        return Err(Failure::usage(InvalidRequest::Period { period }));
    }
    let now = UNIX_EPOCH.elapsed().map_err(Failure::usage)?;
    Ok(vec![format!("{name}@{}", now.as_nanos() / period.as_nanos())])
}

async fn under_lock(
    manager: &LockManager,
    common: &Common,
    run: &Run,
    names: &[String],
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
    if let Some(error) = one_server(manager, LATE_ANSWERS).await {
        let _ = guard.release().await;
        return Err(error);
    }
    let prefix = common.prefix.as_deref().unwrap_or_default();
    let is_held = |name: &&String| {
        let key = [prefix, name].concat();
        guard.keys().iter().any(|held| held.as_bytes() == key.as_bytes())
    };
    let names: &Vec<String> = &names.iter().filter(is_held).cloned().collect();
    if common.verbose {
        let (names, left) = (names.join(" "), guard.remaining());
        eprintln!("quorate: {names}: acquired, valid for {left:.1?}");
    }
    signals.catch_stops().map_err(Failure::usage)?;
    let mut running = Running::start(run, names, &guard)?;
    let lease = guard.lease();
    let supervised = supervise(&mut running, &lease, run.kill_after, signals);
    let warned = async {
        if !common.quiet {
            warn(&lease).await;
        }
        pending::<Infallible>().await
    };
    let ended = tokio::select! {
        biased;
        ended = supervised => ended?,
        never = warned => match never {},
    };
    let (lost, unsure) = match run.once_per.filter(|_| ended.code == 0 && ended.stopped.is_none()) {
        // Two periods, so that a machine whose clock is a period slow does not run it again.
        Some(period) => match guard.keep(2 * period).await {
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
                eprintln!("quorate: {why}");
            }
            Ok(ended.code)
        }
    }
}

/// Two addresses of one server, if that shows within `wait`: a quorum was enough for the lock, and a node behind it may
/// still say which server it is (Q6).
async fn one_server(manager: &LockManager, wait: Duration) -> Option<Failure> {
    let start = Instant::now();
    while manager.nodes().answering() < manager.nodes().nodes().len() && start.elapsed() < wait {
        sleep(LOOK_AGAIN).await;
    }
    let nodes = manager.nodes();
    let (first, second) = nodes.same_server()?;
    let (first, second) = (first.to_owned(), second.to_owned());
    Some(LockError::SameServer { first, second }.into())
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
        acquired = &mut acquiring => return Ok(acquired?),
        signal = signals.next() => signal,
        never = line::show(manager, names, wait) => match never {},
    };
    drop(acquiring);
    let _ = manager.close(CLOSE).await;
    Err(Failure::new(signals::code_of(signal), ""))
}

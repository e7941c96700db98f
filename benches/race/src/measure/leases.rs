//! Many leases of one process.

use std::time::Instant;

use super::Race;
use crate::Outcome;
use crate::contest::QUORATE_REDIS;
use crate::spec::Spec;

/// Measures renewed leases on three nodes for five ttls.
pub(super) fn leases(race: &mut Race<'_>) -> Outcome {
    const NODES: usize = 3;
    let (count, ttl) = race.plan.renewed();
    let setting = format!("renewed, ttl: {ttl:?}, nodes: {NODES}, leases: {count}");
    let spec = Spec::new("leases", QUORATE_REDIS)
        .with("runtime", "current-thread")
        .with("count", count)
        .with("ttl", ttl.as_secs_f64())
        .seconds(ttl * 5);
    let mut worker = race.arena.spawn(&spec, NODES)?;
    let taken = worker.wait_until_ready()?;
    let (before, start) = (race.arena.done(), Instant::now());
    worker.go()?;
    let held = worker.wait_until_done()?;
    let renewals = race.arena.done().since(&before).scripts / NODES as f64;
    let renewals = renewals / start.elapsed().as_secs_f64();
    worker.go()?;
    let released = worker.wait_until_done()?;
    worker.finish()?;
    for report in [taken, held, released] {
        race.book.enter(&report, "leases", &setting, QUORATE_REDIS);
    }
    race.book.add("leases", &setting, QUORATE_REDIS, "renewals/s", renewals);
    race.arena.sweep(&mut race.book, QUORATE_REDIS, &format!("leases, {setting}"));
    Ok(())
}

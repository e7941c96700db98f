//! Many leases of one process.

use std::time::{Duration, Instant};

use super::Race;
use crate::Outcome;
use crate::arena::FIVE;
use crate::contest::{OURS, QUORATE_REDIS};
use crate::spec::Spec;

/// The leases of one process.
struct Leases {
    count: usize,
    ttl: Duration,
    nodes: usize,
    is_renewed: bool,
    /// The time for which the leases are watched.
    time: Duration,
}

pub(super) fn leases(race: &mut Race<'_>) -> Outcome {
    // With `--leases` or `--ttl` only the last row is measured.
    let counts: &[usize] = if race.plan.sets_leases() { &[] } else { &[1, 100, 10_000] };
    let (held, renewed) = if race.plan.quick { (0.05, 0.05) } else { (1.0, 10.0) };
    let (held, renewed) = (Duration::from_secs_f64(held), Duration::from_secs_f64(renewed));
    for &count in race.plan.few(counts, 2) {
        for contestant in OURS {
            let (ttl, nodes) = (Duration::from_secs(60), FIVE);
            Leases { count, ttl, nodes, is_renewed: false, time: held }.sample(race, contestant)?;
            // Long enough for several renewals: leases acquired together are renewed together at first.
            let ttl = Duration::from_secs(10);
            Leases { count, ttl, nodes, is_renewed: true, time: renewed }
                .sample(race, contestant)?;
        }
    }
    let (count, ttl) = race.plan.renewed();
    Leases { count, ttl, nodes: 3, is_renewed: true, time: ttl * 5 }.sample(race, QUORATE_REDIS)
}

impl Leases {
    fn sample(&self, race: &mut Race<'_>, contestant: &str) -> Outcome {
        let Self { count, ttl, nodes, is_renewed, time } = *self;
        let how = if is_renewed { "renewed" } else { "held" };
        let setting = format!("{how}, ttl: {ttl:?}, nodes: {nodes}, leases: {count}");
        let spec = Spec::new("leases", contestant)
            .with("runtime", "current-thread")
            .with("count", count)
            .with("keep", u8::from(is_renewed))
            .with("ttl", ttl.as_secs_f64())
            .seconds(time);
        let mut worker = race.arena.spawn(&spec, nodes)?;
        worker.wait_until_ready()?.enter(&mut race.book, "leases", &setting, contestant);
        let (before, start) = (race.arena.done(), Instant::now());
        worker.go()?;
        let report = worker.wait_until_done()?;
        let seconds = start.elapsed().as_secs_f64();
        let renewals = race.arena.done().since(&before).evals / nodes as f64 / seconds;
        report.enter(&mut race.book, "leases", &setting, contestant);
        race.book.add("leases", &setting, contestant, "renewals/s", renewals);
        worker.go()?;
        worker.wait_until_done()?.enter(&mut race.book, "leases", &setting, contestant);
        worker.finish()?.enter(&mut race.book, "leases", &setting, contestant);
        race.arena.sweep(&mut race.book, contestant, &format!("leases, {setting}"));
        Ok(())
    }
}

//! One process that holds many locks.

use super::Race;
use crate::Outcome;
use crate::arena::FIVE;
use crate::contest::{OURS, QUORATE_REDIS};
use crate::spec::Spec;

pub(super) fn leases(race: &mut Race<'_>) -> Outcome {
    for &count in race.plan.few(&[1, 100, 10_000, 100_000], 2) {
        // The last one takes long, and is not about the client.
        let contestants = if count > 10_000 { &[QUORATE_REDIS][..] } else { &OURS };
        for contestant in contestants {
            sample(race, contestant, count, false)?;
            sample(race, contestant, count, true)?;
        }
    }
    Ok(())
}

fn sample(race: &mut Race<'_>, contestant: &str, count: usize, keeps: bool) -> Outcome {
    let (how, ttl) = match keeps {
        // Those many with a short ttl would be about how fast the machine is.
        true if count <= 10_000 => ("kept alive", 10),
        true => ("kept alive", 60),
        false => ("held", 60),
    };
    // Long enough for several renewals: those of leases taken together come together at first.
    let seconds = match keeps {
        _ if race.plan.quick => 0.05,
        true => 10.0,
        false => 1.0,
    };
    let setting = format!("{how}, ttl: {ttl} s, leases: {count}");
    let spec = Spec::new("leases", contestant)
        .with("runtime", "current-thread")
        .with("count", count)
        .with("keep", u8::from(keeps))
        .with("ttl", ttl)
        .with("seconds", seconds);
    let mut worker = race.arena.spawn(&spec, FIVE)?;
    worker.wait_until_ready()?.enter(&mut race.book, "leases", &setting, contestant);
    let before = race.arena.done();
    let start = std::time::Instant::now();
    worker.go()?;
    let told = worker.wait_until_done()?;
    let time = start.elapsed().as_secs_f64();
    let done = race.arena.done().since(&before);
    told.enter(&mut race.book, "leases", &setting, contestant);
    race.book.add("leases", &setting, contestant, "renewals/s", done.evals / FIVE as f64 / time);
    worker.go()?;
    worker.wait_until_done()?.enter(&mut race.book, "leases", &setting, contestant);
    worker.finish()?.enter(&mut race.book, "leases", &setting, contestant);
    race.arena.sweep(&mut race.book, contestant, &format!("leases, {setting}"));
    Ok(())
}

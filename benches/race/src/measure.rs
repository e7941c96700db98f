//! The measures: what is run, with whom, and how often.

use crate::Outcome;
use crate::arena::Arena;
use crate::book::Book;
use crate::plan::Plan;

mod contention;
mod cycles;
mod leases;

pub(crate) use cycles::HEALTHY;

/// A measure that `--only` can select by name.
pub(crate) struct Measure {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    run: fn(&mut Race<'_>) -> Outcome,
}

const fn measure(
    name: &'static str,
    about: &'static str,
    run: fn(&mut Race<'_>) -> Outcome,
) -> Measure {
    Measure { name, about, run }
}

pub(crate) const MEASURES: &[Measure] = &[
    measure("latency", "one task alone", cycles::latency),
    measure("throughput", "many tasks, each its own locks", cycles::throughput),
    measure("one-node", "a single node, by the number of tasks", cycles::one_node),
    measure("fencing", "what fencing tokens and the restart guard cost", cycles::fencing),
    measure("hung", "one node of five is hung, one task", cycles::hung),
    measure(
        "one-key",
        "sixteen tasks of one process want one lock, held for 1 ms",
        contention::one_key,
    ),
    measure(
        "handover",
        "eight processes want one lock, held for 1 ms, with and without faults",
        contention::handover,
    ),
    measure("waiting", "seven processes wait on a long hold", contention::waiting),
    measure("leases", "many locks held by one process", leases::leases),
];

/// The race that is running.
pub(crate) struct Race<'a> {
    plan: &'a Plan,
    arena: Arena,
    book: Book,
}

/// The most nodes that a measure uses.
pub(crate) const FIVE: usize = 5;

pub(crate) fn run(plan: &Plan) -> Outcome<Book> {
    let mut race = Race { plan, arena: Arena::start(FIVE), book: Book::default() };
    for measure in MEASURES.iter().filter(|measure| plan.includes(measure.name)) {
        let start = std::time::Instant::now();
        if let Err(why) = (measure.run)(&mut race) {
            race.book.failures.push(format!("{}: {why}", measure.name));
            race.arena.mend();
        }
        println!("{}: {:.1} s", measure.name, start.elapsed().as_secs_f64());
    }
    Ok(race.book)
}

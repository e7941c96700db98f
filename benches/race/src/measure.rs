//! The measures: one file each.

use crate::Outcome;
use crate::arena::Arena;
use crate::book::Book;
use crate::plan::Plan;

mod contention;
mod crash;
mod cycles;
mod faults;
mod fencing;
mod leases;
mod refused;
mod stalls;
mod waiting;

pub(crate) use faults::HEALTHY;

/// A measure that `--only` can select by name.
pub(crate) struct Measure {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    run: fn(&mut Race<'_>) -> Outcome,
}

pub(crate) const MEASURES: &[Measure] = &[
    Measure { name: "latency", about: "one task alone", run: cycles::latency },
    Measure {
        name: "throughput",
        about: "many tasks, each its own locks",
        run: cycles::throughput,
    },
    Measure { name: "nodes", about: "one task, by the number of nodes", run: cycles::nodes },
    Measure {
        name: "one-node",
        about: "a single node, by the number of tasks",
        run: cycles::one_node,
    },
    Measure {
        name: "fencing",
        about: "what fencing tokens and the restart guard cost",
        run: fencing::fencing,
    },
    Measure {
        name: "handover",
        about: "contenders for one lock, held for 1 ms",
        run: contention::handover,
    },
    Measure {
        name: "crowd",
        about: "fifty contenders from ten processes, 1 ms",
        run: contention::crowd,
    },
    Measure {
        name: "queue",
        about: "processes that wait for one lock, held for 20 ms, by their number",
        run: contention::queue,
    },
    Measure {
        name: "waiters",
        about: "contenders in one process, by their number",
        run: contention::waiters,
    },
    Measure {
        name: "one-key",
        about: "sixteen tasks of one process want one lock, held for 1 ms",
        run: contention::one_key,
    },
    Measure {
        name: "waiting",
        about: "eight processes wait on a long hold",
        run: waiting::waiting,
    },
    Measure {
        name: "refused",
        about: "tries for a lock that another process holds",
        run: refused::refused,
    },
    Measure {
        name: "killed",
        about: "two of eight waiting processes are killed",
        run: stalls::killed,
    },
    Measure {
        name: "gate",
        about: "the node that keeps the wait queue hangs, eight contenders",
        run: stalls::gate,
    },
    Measure { name: "hung", about: "one node of five is hung, one task", run: faults::hung },
    Measure { name: "dead", about: "one node of five is dead, one task", run: faults::dead },
    Measure {
        name: "memory",
        about: "one node of five is hung, 64 tasks at full load",
        run: faults::memory,
    },
    Measure { name: "crash", about: "the holder is killed, another one waits", run: crash::crash },
    Measure { name: "leases", about: "many locks held by one process", run: leases::leases },
];

/// The race that is running.
pub(crate) struct Race<'a> {
    plan: &'a Plan,
    arena: Arena,
    book: Book,
}

/// The most nodes that a measure uses.
const NODES: usize = 7;

pub(crate) fn run(plan: &Plan) -> Outcome<Book> {
    let mut race = Race { plan, arena: Arena::start(NODES), book: Book::default() };
    for measure in MEASURES.iter().filter(|measure| plan.includes(measure.name)) {
        let start = std::time::Instant::now();
        if let Err(why) = (measure.run)(&mut race) {
            race.book.fail(format!("{}: {why}", measure.name));
            race.arena.mend();
        }
        println!("{}: {:.1} s", measure.name, start.elapsed().as_secs_f64());
    }
    Ok(race.book)
}

//! Instructions of user space and allocations of a cycle. Unlike times, they are about the same on a busy machine.
//!
//! Valgrind counts the instructions of two runs of different length. Their difference is that of the cycles alone.

use std::process::{self, Command};
use std::time::Duration;
use std::{env, fs};

use crate::Outcome;
use crate::arena::Arena;
use crate::contest::ALL;
use crate::measure::job;
use crate::worker::Job;

/// The nodes and the tasks of the columns, and the cycles of the shorter and the longer run.
const COLUMNS: [(usize, usize, [usize; 2]); 4] =
    [(5, 1, [200, 1_200]), (5, 64, [640, 3_840]), (1, 1, [400, 2_400]), (1, 64, [1_280, 7_680])];

/// What stands in front of the table.
const HEAD: &str = "# Instructions\n\n\
Thousands of instructions of user space in a cycle, and its allocations, on one thread: the\n\
difference of two runs of different length under valgrind (`cargo xtask race instructions`). With\n\
one task they vary by some 5 %, with 64 by 1 to 3 %, also on a busy machine.\n\n\
| | 5 nodes, 1 task | 5 nodes, 64 tasks | 1 node, 1 task | 1 node, 64 tasks |\n\
|---|---:|---:|---:|---:|\n";

/// Prints a table of all contestants, or of those that are named. With `--publish` it is kept.
pub(crate) fn main(words: &[String]) -> Outcome {
    let (options, only): (Vec<_>, Vec<_>) = words.iter().partition(|word| *word == "--publish");
    if Command::new("valgrind").arg("--version").output().is_err() {
        return Err("instructions are counted by valgrind, which is not installed".into());
    }
    let arena = Arena::start(5);
    let mut text = HEAD.to_owned();
    for name in ALL.into_iter().filter(|name| only.is_empty() || only.iter().any(|it| *it == name))
    {
        text += &format!("| {name} |");
        for (nodes, tasks, lengths) in COLUMNS {
            let job = |cycles| Job { cycles, count: tasks, ..job("count", name, Duration::ZERO) };
            let [short, long] = lengths.map(|cycles| run(&arena, &job(cycles), nodes));
            let ((short, _), (long, allocations)) = (short?, long?);
            let instructions = (long - short) / (lengths[1] - lengths[0]) as f64;
            text += &format!(" {:.1}; {allocations:.1} |", instructions / 1e3);
        }
        text.push('\n');
    }
    println!("{text}");
    if !options.is_empty() {
        fs::write("benches/INSTRUCTIONS.md", text)?;
    }
    Ok(())
}

/// The instructions of a run, and the allocations of one of its cycles.
fn run(arena: &Arena, job: &Job, nodes: usize) -> Outcome<(f64, f64)> {
    let out = env::temp_dir().join(format!("quorate-race-{}.callgrind", process::id()));
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--tool=callgrind"]);
    command.arg(format!("--callgrind-out-file={}", out.display())).arg(env::current_exe()?);
    let mut worker = arena.spawn_by(command, job, nodes)?;
    let report = worker.wait_until("done")?;
    worker.finish()?;
    let text = fs::read_to_string(&out)?;
    fs::remove_file(&out)?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let allocations = report.metrics.first().map_or(0.0, |(_, value)| *value);
    Ok((total.ok_or("valgrind counted nothing")?.trim().parse()?, allocations))
}

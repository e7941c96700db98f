//! Runs the restarts, and reports. `cargo xtask restarts` builds it and passes its options on.

#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use quorate_restarts::{Guard, Plan, client, run};

const USAGE: &str = "options: --cycles N (1000), --control N (100: cycles without the guard), \
    --nodes 3|5 (both), --ttl MS (1000), --seed N (1)";

fn main() -> ExitCode {
    let mut words = env::args().skip(1).peekable();
    let result = if words.next_if(|word| word == "client").is_some() {
        client::main(words).map_err(|why| why.to_string())
    } else {
        plans(words).and_then(|plans| plans.iter().try_for_each(report))
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn report(plan: &Plan) -> Result<(), String> {
    let Plan { nodes, cycles, ttl, guard, seed, .. } = plan;
    let guard = guard.word();
    println!("{nodes} nodes, {cycles} cycles, ttl {ttl:?}, guard {guard}, seed {seed}");
    let figures = run(plan);
    println!("{figures}");
    figures.judge(plan)
}

/// With the guard, and without it for comparison.
fn plans(mut words: impl Iterator<Item = String>) -> Result<Vec<Plan>, String> {
    let (mut cycles, mut control, mut ttl, mut seed) = (1000, 100, 1000, 1);
    let mut counts = vec![3, 5];
    while let Some(word) = words.next() {
        let value = words.next().and_then(|value| value.parse::<u64>().ok());
        let value = value.ok_or_else(|| format!("{word} takes a number\n{USAGE}"))?;
        match &*word {
            "--cycles" => cycles = value,
            "--control" => control = value,
            "--ttl" => ttl = value,
            "--seed" => seed = value,
            "--nodes" if matches!(value, 3 | 5) => counts = vec![value],
            _ => return Err(format!("{word} {value} is no option\n{USAGE}")),
        }
    }
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mut plans = Vec::new();
    for nodes in counts {
        for (guard, cycles) in [(Guard::On, cycles), (Guard::Off, control)] {
            if cycles > 0 {
                plans.push(Plan {
                    nodes: usize::try_from(nodes).unwrap_or(3),
                    cycles: u32::try_from(cycles).unwrap_or(u32::MAX),
                    ttl: Duration::from_millis(ttl),
                    guard,
                    seed,
                    program: program.clone(),
                });
            }
        }
    }
    Ok(plans)
}

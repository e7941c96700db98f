//! Processes that do what a row of [`WORKLOADS`] says, side by side, and the judge of their holds.

use quorate_tests::judge::{Hold, judge};
use quorate_tests::wait::{LONG_TTL, eventually};
use quorate_tests::{Nodes, Program};

use crate::client::Client;
use crate::workloads::WORKLOADS;

/// Holds of each process, at the least.
const ENOUGH: usize = 20;

pub(crate) fn start_with(words: &[&str], addresses: &[String]) -> Program {
    let words = ["work"].iter().chain(words).copied().chain(addresses.iter().map(String::as_str));
    Program::start(env!("CARGO_BIN_EXE_program"), words)
}

/// Starts one process for each of these clients, without the restart guard, and without a resource.
/// No lease ends before the test does.
pub(crate) fn start_each(name: &str, clients: &[Client], nodes: &Nodes) -> Vec<Program> {
    let (ttl, addresses) = (LONG_TTL.as_millis().to_string(), nodes.addresses());
    let start = |client: &Client| start_with(&[name, client.word(), &ttl, "0", "off"], &addresses);
    clients.iter().map(start).collect()
}

/// What processes have reported. The last line so far may be cut short.
pub(crate) fn holds<'a>(processes: impl IntoIterator<Item = &'a Program>) -> Vec<Hold> {
    let lines = processes.into_iter().flat_map(Program::lines);
    lines.filter_map(|line| line.parse().ok()).collect()
}

/// One holder at a time, tokens that rise, and all that this workload is about.
#[track_caller]
pub(crate) fn assert_right(name: &str, holds: &[Hold]) {
    let row = WORKLOADS.iter().find(|row| row.name == name).expect("a workload");
    let found = judge(holds);
    let wrong = (found.overlaps, found.repeated, found.fallen);
    assert!(wrong == (0, 0, 0) && (row.is_seen)(&found), "{name}: {found:?}");
}

/// Waits until each process has had enough locks more.
fn go_on(processes: &[Program]) {
    let count = |process| holds([process]).len();
    let before: Vec<usize> = processes.iter().map(count).collect();
    eventually("enough holds of each process", || {
        processes.iter().zip(&before).all(|(process, before)| count(process) >= before + ENOUGH)
    });
}

/// Ends processes, judges their holds, and looks for keys that they have left.
fn end(name: &str, mut processes: Vec<Program>, nodes: &Nodes) {
    processes.iter_mut().for_each(|process| drop(process.end()));
    assert_right(name, &holds(&processes));
    let is_left = |(_, key): &(usize, String)| !key.contains("quorate:fence");
    eventually("no key is left", || !nodes.keys_left().iter().any(is_left));
}

/// Two processes with each client, and one with each of them.
pub(crate) fn share(name: &str) {
    let nodes = Nodes::start(3);
    let each = Client::WITH_POOL.map(|client| vec![client, client]);
    for clients in each.into_iter().chain([Client::WITH_POOL.to_vec()]) {
        let processes = start_each(name, &clients, &nodes);
        go_on(&processes);
        end(name, processes, &nodes);
    }
}

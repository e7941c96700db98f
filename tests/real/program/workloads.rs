//! What processes do with locks, one row each: `program work` does it, and a test judges the holds.

#![allow(dead_code, reason = "the program asks, and the tests judge")]

use quorate::{LockManager, LockRequest};
use quorate_tests::judge::{LOCKS, Verdict};

/// Permits of one name.
const PERMITS: usize = 3;

/// The rows, each with what the judge must have seen beside that nothing is wrong.
pub(crate) const WORKLOADS: &[Workload] = &[
    row("locks", 2 * LOCKS, Way::Lock, contended, |found| found.tokens > 0),
    // S1: one holder of each permit.
    row("permits", 4, Way::Lock, permit, |found| found.locks == PERMITS && found.tokens > 0),
    // S6: one holder of both.
    row("both permits", 2, Way::Both, |on, _| on.permit("p", 2), |found| found.locks == 1),
    // RW5: readers beside each other, and no lock beside one.
    row("readers", 4, Way::Read, read_or_lock, |found| found.together > 0 && found.tokens > 0),
    row("blocking", 3, Way::Block, |on, _| on.lock("r"), |found| found.locks == 1),
];

/// A row.
pub(crate) struct Workload {
    /// The word for it in the arguments of the program.
    pub(crate) name: &'static str,
    /// Of each manager.
    pub(crate) tasks: usize,
    pub(crate) way: Way,
    pub(crate) request: Request,
    pub(crate) is_seen: fn(&Verdict) -> bool,
}

/// What the task of this number asks for.
type Request = fn(&LockManager, usize) -> LockRequest;

/// How a task has its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Lock,
    /// As a reader, but for the first task.
    Read,
    /// As two permits at once.
    Both,
    /// On a thread that blocks.
    Block,
}

const fn row(
    name: &'static str,
    tasks: usize,
    way: Way,
    request: Request,
    is_seen: fn(&Verdict) -> bool,
) -> Workload {
    Workload { name, tasks, way, request, is_seen }
}

fn contended(on: &LockManager, task: usize) -> LockRequest {
    on.lock(format!("contended:{}", task % LOCKS)).fenced()
}

fn permit(on: &LockManager, _: usize) -> LockRequest {
    on.permit("p", PERMITS).fenced()
}

fn read_or_lock(on: &LockManager, task: usize) -> LockRequest {
    if task == 0 { on.lock("r").fenced() } else { on.read("r") }
}

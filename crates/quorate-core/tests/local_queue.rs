//! Every order of events around the local queue, for a few tasks and ticks.
//!
//! The nodes are one key that lives until a tick, and may vanish once. An extension and a release are
//! executed, and answered, at any later moment; the extension is executed before the release. Of two
//! tasks, a holder extends by itself once as well.

#![allow(clippy::print_stderr, reason = "what was explored belongs to the result")]
#![expect(clippy::disallowed_methods, reason = "an origin: time passes by hand")]

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use quorate_core::algorithm::local_queue::{
    ExtensionId, Found, LeaseId, LocalQueue, Output, TaskId,
};

/// How many tasks there are, and whether a holder extends by itself.
const SCOPES: [(usize, bool); 2] = [(3, false), (2, true)];
const TICKS: u32 = 5;
const VALID: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Task {
    Waits,
    Competes(LeaseId),
    Given,
    Holds,
    /// Whether the key was at the nodes, and whether the lease was its own, when the guard ended.
    Ends(bool, bool),
    Out,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    queue: LocalQueue,
    tasks: Vec<Task>,
    now: u32,
    /// Until when the nodes keep the key.
    real: u32,
    valid_until: u32,
    holder: Option<usize>,
    extension: Option<(ExtensionId, Option<bool>)>,
    /// The extension by a holder itself, once: executed, and then answered.
    renewal: Option<Option<(LeaseId, bool)>>,
    /// The lease that is held.
    lease: Option<LeaseId>,
    release: Option<(LeaseId, Option<bool>)>,
    others_wait: bool,
    vanished: bool,
    is_closed: bool,
}

struct Run {
    start: Instant,
    tasks: usize,
    has_renewal: bool,
    states: usize,
}

impl World {
    fn at(&self, run: &Run) -> Instant {
        run.start + Duration::from_secs(self.now.into())
    }

    /// Carries out what the machine says; returns what is wrong with it.
    fn drain(&mut self, run: &Run) -> Option<&'static str> {
        while let Some(output) = self.queue.poll_output() {
            match output {
                Output::Compete(task, _) => {
                    self.tasks[task.0 as usize] = Task::Competes(task.lease());
                }
                Output::Cancel(lease) => self.release = Some((lease, None)),
                Output::Release(lease) => {
                    self.release = Some((lease, None));
                    if let Some(holder) = self.holder.take()
                        && self.tasks[holder] == Task::Given
                    {
                        self.tasks[holder] = Task::Waits;
                    }
                }
                Output::Give(TaskId(task), _) => {
                    if self.others_wait {
                        return Some("passed on although another process waits");
                    }
                    if self.valid_until < self.now + VALID / 2 {
                        return Some("passed on with less than half of the validity");
                    }
                    self.holder = Some(task as usize);
                    self.tasks[task as usize] = Task::Given;
                }
                Output::Extend(id) => {
                    if self.extension.replace((id, None)).is_some() {
                        return Some("two extensions are in flight");
                    }
                }
                Output::Lose(_) => {
                    if self.now < self.valid_until && !self.vanished {
                        return Some("a lease is lost before its end");
                    }
                    self.holder = None;
                }
                Output::Refuse(TaskId(task)) => self.tasks[task as usize] = Task::Out,
                Output::Resolve(TaskId(task), outcome) => {
                    let Task::Ends(was_there, was_own) = self.tasks[task as usize] else {
                        return Some("an answer to a task that does not end");
                    };
                    self.tasks[task as usize] = Task::Out;
                    if outcome == Found::Held && !was_there {
                        return Some("confirmed although the key was gone");
                    }
                    if outcome == Found::Lost && was_own && was_there && !self.vanished {
                        return Some("told lost although the key was there");
                    }
                    if outcome == Found::Lost && was_own && self.holder.is_some() {
                        return Some("a passer is told lost");
                    }
                }
            }
        }
        let is_at_rest = self.extension.is_none() && self.release.is_none();
        let ends = self.tasks.iter().any(|task| matches!(task, Task::Ends(..)));
        if is_at_rest && ends {
            return Some("a release() never resolves");
        }
        let is_out = self.tasks.iter().all(|task| *task == Task::Out);
        let later = self.at(run) + Duration::from_secs(2);
        (is_at_rest && is_out && !self.queue.is_idle(later)).then_some("a lease that nobody holds")
    }

    fn end(&mut self, of: usize, is_awaited: bool, now: Instant) {
        let was_own = self.holder == Some(of) && self.now < self.valid_until;
        let is_there = self.now < self.real;
        self.tasks[of] =
            if is_awaited { Task::Ends(is_there && was_own, was_own) } else { Task::Out };
        self.queue.release(TaskId(of as u64), is_awaited, now);
    }

    /// Every step from this state: its name, the next state, what is wrong.
    fn steps(&self, run: &Run) -> Vec<(String, Self, Option<&'static str>)> {
        let now = self.at(run);
        let mut steps = Vec::new();
        let mut step = |name: String, act: &dyn Fn(&mut Self) -> Option<&'static str>| {
            let mut next = self.clone();
            let wrong = act(&mut next).or_else(|| next.drain(run));
            steps.push((name, next, wrong));
        };
        if self.tasks.len() < run.tasks && !self.is_closed {
            step("a task asks".to_owned(), &|next| {
                next.tasks.push(Task::Waits);
                let wish = Some(Duration::MAX);
                next.queue.lock(TaskId(next.tasks.len() as u64 - 1), wish, now);
                None
            });
        }
        for (of, task) in self.tasks.iter().enumerate() {
            if !matches!(task, Task::Holds | Task::Out) {
                step(format!("task {of} drops its future"), &|next| {
                    next.tasks[of] = Task::Out;
                    next.queue.cancel(TaskId(of as u64), now);
                    None
                });
            }
            match *task {
                Task::Competes(lease) if self.now >= self.real => {
                    for others_wait in [false, true] {
                        step(format!("task {of} wins, others wait: {others_wait}"), &|next| {
                            (next.real, next.valid_until) = (next.now + VALID, next.now + VALID);
                            (next.holder, next.others_wait) = (Some(of), others_wait);
                            next.lease = Some(lease);
                            next.tasks[of] = Task::Holds;
                            let (validity, hint) =
                                (Duration::from_secs(VALID.into()), Some(others_wait));
                            next.queue.handle_won(lease, validity, now + validity, hint, now);
                            None
                        });
                    }
                }
                Task::Given => step(format!("task {of} is polled"), &|next| {
                    let is_held = next.queue.handle_polled(TaskId(of as u64), now);
                    if is_held {
                        next.tasks[of] = Task::Holds;
                    }
                    (is_held && next.now >= next.valid_until)
                        .then_some("a receiver gets a lease that has ended")
                }),
                Task::Holds => {
                    for is_awaited in [false, true] {
                        step(format!("task {of} releases, awaited: {is_awaited}"), &|next| {
                            next.end(of, is_awaited, now);
                            None
                        });
                    }
                }
                _ => {}
            }
        }
        if let Some((id, executed)) = self.extension {
            match executed {
                None => step("the extension is executed".to_owned(), &|next| {
                    let is_there = next.now < next.real;
                    if is_there {
                        next.real = next.now + VALID;
                    }
                    next.extension = Some((id, Some(is_there)));
                    None
                }),
                Some(is_there) => step("the extension is answered".to_owned(), &|next| {
                    next.extension = None;
                    if is_there {
                        // The answer came late: the validity counts from an earlier moment.
                        next.valid_until = next.valid_until.max(next.real);
                    }
                    let until = run.start + Duration::from_secs(next.real.into());
                    next.queue.handle_extended(id, is_there.then_some(until));
                    if !is_there {
                        next.queue.handle_lost(id.lease, now);
                    }
                    None
                }),
            }
        }
        match self.renewal {
            None if run.has_renewal
                && self.holder.is_some_and(|of| self.tasks[of] == Task::Holds) =>
            {
                step("the holder's extension is executed".to_owned(), &|next| {
                    let is_there = next.now < next.real;
                    if is_there {
                        next.real = next.now + VALID;
                    }
                    next.renewal = Some(next.lease.map(|lease| (lease, is_there)));
                    None
                });
            }
            Some(Some((lease, is_there))) => {
                step("the holder's extension is answered".to_owned(), &|next| {
                    next.renewal = Some(None);
                    if is_there {
                        next.valid_until = next.valid_until.max(next.real);
                        let until = run.start + Duration::from_secs(next.real.into());
                        next.queue.handle_renewed(lease, until);
                    } else {
                        next.queue.handle_lost(lease, now);
                    }
                    None
                });
            }
            _ => {}
        }
        let is_extending = self.extension.is_some() || matches!(self.renewal, Some(Some(_)));
        let has_left = self.extension.is_none_or(|(_, executed)| executed.is_some());
        match self.release {
            Some((id, None)) if has_left => step("the release is executed".to_owned(), &|next| {
                next.release = Some((id, Some(next.now < next.real)));
                next.real = next.now;
                None
            }),
            Some((id, Some(is_there))) if !is_extending => {
                step("the release is answered".to_owned(), &|next| {
                    next.release = None;
                    let said = if is_there { Found::Held } else { Found::Unconfirmed };
                    next.queue.handle_released(id, said, now);
                    None
                });
            }
            _ => {}
        }
        if !self.vanished && self.now < self.real {
            step("the nodes lose the key".to_owned(), &|next| {
                (next.vanished, next.real) = (true, next.now);
                None
            });
        }
        if !self.is_closed {
            step("close".to_owned(), &|next| {
                next.is_closed = true;
                if let Some(holder) = next.holder.filter(|of| next.tasks[*of] == Task::Given) {
                    next.tasks[holder] = Task::Out;
                }
                next.queue.close(now);
                None
            });
        }
        if self.now < TICKS {
            step("tick".to_owned(), &|next| {
                next.now += 1;
                None
            });
        }
        steps
    }
}

/// Explores both scopes breadth first: the number of states, or what is wrong.
fn explore() -> Result<usize, &'static str> {
    let runs = SCOPES.map(|(tasks, has_renewal)| {
        explore_one(Run { start: Instant::now(), tasks, has_renewal, states: 0 })
    });
    runs.into_iter().sum()
}

fn explore_one(mut run: Run) -> Result<usize, &'static str> {
    let first = World {
        queue: LocalQueue::new(true, Duration::from_secs(100)),
        tasks: Vec::new(),
        now: 0,
        real: 0,
        valid_until: 0,
        holder: None,
        extension: None,
        renewal: None,
        lease: None,
        release: None,
        others_wait: false,
        vanished: false,
        is_closed: false,
    };
    let mut seen = HashSet::from([first.clone()]);
    let mut open = VecDeque::from([first]);
    while let Some(world) = open.pop_front() {
        run.states += 1;
        for (name, next, wrong) in world.steps(&run) {
            if let Some(wrong) = wrong {
                eprintln!("{wrong}, after `{name}` in {world:#?}");
                return Err(wrong);
            }
            if seen.insert(next.clone()) {
                open.push_back(next);
            }
        }
    }
    Ok(run.states)
}

#[test]
fn no_order_of_events_breaks_the_queue() {
    let states = explore().expect("no violation");
    assert!(states > 10_000, "only {states} states were found");
    eprintln!("{states} states");
}

/// Each wrong idea is found by the exploration.
#[cfg(quorate_planted)]
#[test]
fn each_wrong_idea_is_found() {
    for name in [
        "receiver_polls_a_lost_lease",
        "dropped_receiver_keeps_the_lease",
        "extension_before_the_pass_counts",
        "passer_is_told_lost",
        "pass_although_others_wait",
        "pass_late",
    ] {
        quorate_core::planted::switch_on(name);
        let found = explore();
        quorate_core::planted::switch_on("");
        eprintln!("{name}: {found:?}");
        assert!(found.is_err(), "{name} is not found");
    }
}

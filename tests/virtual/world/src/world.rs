//! What all parts of a world need: its draws, what happened in it, and what went wrong.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use quorate_core::{BackendError, BackendErrorKind, LockRequest, Runtime};
use quorate_memory::{Effect, MemoryNode, Rule, Sim};

use crate::dice::Dice;
use crate::history::{AttemptId, What};
use crate::oracle::Violation;
use crate::run::Scene;

pub(crate) type Faults = BTreeMap<&'static str, u64>;

/// All draws of a world come from its seed.
pub(crate) fn dice_of(sim: &Sim) -> Dice {
    let sim = sim.clone();
    Dice::on(move |end| sim.random_below(end))
}

impl Scene {
    pub(crate) fn wrong(&self, what: impl Into<String>) {
        lock(&self.found).0.push(Violation::other(self.sim.elapsed(), what));
    }

    pub(crate) fn wrong_if(&self, is_wrong: bool, what: impl Into<String>) {
        if is_wrong {
            self.wrong(what);
        }
    }

    pub(crate) fn count(&self, kind: &'static str) {
        self.count_all(kind, 1);
    }

    pub(crate) fn count_all(&self, kind: &'static str, count: usize) {
        if count > 0 {
            *lock(&self.found).1.entry(kind).or_default() += count as u64;
        }
    }

    /// Notes something that helps the reader of the history.
    pub(crate) fn note(&self, note: impl Into<String>) {
        self.history.add(self.sim.elapsed(), 0, What::Note(note.into()));
    }

    pub(crate) async fn sleep(&self, time: Duration) {
        self.sim.sleep_until(self.sim.now() + time).await;
    }

    /// No message of a node is lost or late any more.
    pub(crate) fn calm(&self, node: &MemoryNode) {
        node.clear_rules();
        let most = self.plan.latency;
        node.add_rule(Rule::new(Effect::Delay { least: most / 10, most }));
    }

    pub(crate) fn heal(&self) {
        self.nodes.iter().for_each(MemoryNode::heal);
    }

    /// No key of a lock may be on a node. Fencing numbers stay, and so do the keys of the restart guard and the wait
    /// queues, which end by themselves where messages are lost.
    pub(crate) fn no_keys_left(&self, when: &str) {
        for node in &self.nodes {
            let keys =
                node.keys().into_iter().map(|key| String::from_utf8_lossy(&key).into_owned());
            for key in keys.filter(|key| !key.contains("quorate:")) {
                self.wrong(format!("{key} is left on {} {when}", node.name()));
            }
        }
    }

    pub(crate) fn spare(&self) -> usize {
        (self.nodes.len() - 1) / 2
    }

    pub(crate) fn some_nodes(&self, count: usize) -> Vec<&MemoryNode> {
        let mut nodes: Vec<&MemoryNode> = self.nodes.iter().collect();
        while nodes.len() > count {
            nodes.swap_remove(self.dice.below(nodes.len()));
        }
        nodes
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cancel {
    Never,
    AfterPolls(usize),
    After(Duration),
}

impl Cancel {
    pub(crate) async fn or<F: IntoFuture>(self, future: F, sim: &Sim) -> Option<F::Output> {
        let mut future = pin!(Some(future.into_future()));
        let (mut polls, mut timer) = match self {
            Self::Never => (usize::MAX, None),
            Self::AfterPolls(polls) => (polls, None),
            Self::After(time) => (usize::MAX, Some(sim.sleep(time))),
        };
        poll_fn(|context| {
            let is_over =
                timer.as_mut().is_some_and(|timer| timer.as_mut().poll(context).is_ready());
            if let (Some(inner), true) = (future.as_mut().as_pin_mut(), polls > 0 && !is_over) {
                polls -= 1;
                if let Poll::Ready(output) = inner.poll(context) {
                    return Poll::Ready(Some(output));
                }
            }
            if polls > 0 && !is_over {
                return Poll::Pending;
            }
            future.set(None);
            Poll::Ready(None)
        })
        .await
    }
}

pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn fenced(request: LockRequest, fences: bool) -> LockRequest {
    if fences { request.fenced() } else { request }
}

pub(crate) fn attempt_at(node: &MemoryNode, name: &str) -> Option<AttemptId> {
    match node.get(name) {
        Some(quorate_memory::Value::String(token)) => Some(AttemptId::of(token)),
        _ => None,
    }
}

/// The key of a lock's fencing number.
pub(crate) fn counter(name: &str) -> String {
    let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, mix);
    format!("quorate:fence:{}", (hash ^ (hash >> 16)) % 1024)
}

pub(crate) fn loading() -> BackendError {
    BackendError::new(BackendErrorKind::Loading, "LOADING")
}

/// What a resource is called. The third shares the number of fencing tokens with the first.
pub(crate) fn name(resource: usize) -> String {
    format!("resource-{}", if resource == 2 { 397 } else { resource })
}

//! Every subset of nodes fails, in every way: a lock is acquired exactly when a quorum is healthy.

use std::thread;
use std::time::Duration;

use quorate::error::{Answer, NodeAnswer, QuorumFailure};
use quorate::{BackendErrorKind, LockError, LockManager};
use quorate_tests::wait::{times, until, within_limit};
use quorate_tests::{Nodes, RedisServer};

use crate::client::{
    CONNECT_TIMEOUT, Client, LIMIT, all_have, connected, nothing_is_left, on_tokio, unhurried,
    with_each_client,
};

mod fault;

use fault::{Effect, Fault, KEY, Place, ROWS, When};

#[test]
fn every_subset_of_three_nodes_with_redis() {
    every_subset(Client::Redis, 3);
}

#[test]
fn every_subset_of_three_nodes_with_fred() {
    every_subset(Client::Fred, 3);
}

#[test]
fn every_subset_of_five_nodes_with_redis() {
    every_subset(Client::Redis, 5);
}

#[test]
fn every_subset_of_five_nodes_with_fred() {
    every_subset(Client::Fred, 5);
}

/// In a short run, of each row only one set that leaves a bare quorum and one that leaves a node less.
fn is_left_out(row: usize, mask: u32, count: usize) -> bool {
    let (failed, spare) = (mask.count_ones() as usize, (count - 1) / 2);
    let alike = (0..1_u32 << count).filter(|other| other.count_ones() as usize == failed);
    let alike: Vec<u32> = alike.collect();
    times(true, false)
        && (!(spare..=spare + 1).contains(&failed) || alike[row % alike.len()] != mask)
}

/// Every so many rows run one after the other, on nodes of their own, since most of a cell is waiting.
const LANES: usize = 8;

fn every_subset(client: Client, count: usize) {
    thread::scope(|scope| {
        for lane in 0..LANES {
            scope.spawn(move || on_tokio(run_lane(client, count, lane)));
        }
    });
}

async fn run_lane(client: Client, count: usize, lane: usize) {
    let places: Vec<_> = (0..count).map(|_| Place::start()).collect();
    for (row, (when, faults)) in ROWS.into_iter().enumerate().skip(lane).step_by(LANES) {
        for mask in (0_u32..1 << count).filter(|mask| !is_left_out(row, *mask, count)) {
            let mut turn = faults.iter().copied().cycle();
            let mut fault_of = |at| if mask >> at & 1 == 1 { turn.next() } else { None };
            let fault = |at| fault_of(at).unwrap_or(Fault::None);
            let nodes = places.iter().zip((0..count).map(fault)).collect();
            let place = format!("{client:?}, {faults:?}, nodes {mask:0count$b}");
            Cell { client, place, nodes }.run(when).await;
        }
    }
}

/// How long a round waits in vain, and a failed release until it is sent again.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);

const REFUSED_LOGIN: Effect = Effect::Error(BackendErrorKind::Auth);
const FORBIDDEN: Effect = Effect::Error(BackendErrorKind::Permission);

/// One subset of the nodes with its faults.
struct Cell<'a> {
    client: Client,
    place: String,
    /// Each node, and its fault.
    nodes: Vec<(&'a Place, Fault)>,
}

impl Cell<'_> {
    async fn run(&self, when: When) {
        let manager = self.manager();
        if when == When::Later {
            // Connects to all nodes, and leaves nothing there.
            let guard = manager.lock("warm").await.expect(&self.place);
            let have = |(it, _): &(&Place, _)| it.node.get("warm").is_some();
            until(&self.place, || self.nodes.iter().all(have)).await;
            // Where a round is short, it may be unconfirmed, and goes on.
            drop(guard.release().await);
            self.be_emptied().await;
        }
        self.nodes.iter().for_each(|(it, fault)| fault.strike(it));
        let locked = within_limit(&self.place, manager.lock(KEY).no_wait()).await;
        match (locked, self.has_quorum()) {
            (Ok(guard), true) => guard.release().await.expect(&self.place),
            (Err(error), false) => self.judge(&error),
            (locked, _) => panic!("{}: {locked:?}", self.place),
        }
        // All at once: each restart takes time.
        thread::scope(|scope| {
            for (it, fault) in &self.nodes {
                scope.spawn(|| fault.undo(it));
            }
        });
        self.work_again(&manager).await;
        // A node that failed a release is named by the report, and may have a key left (C8).
        let report = manager.close(LIMIT).await;
        let is_named = |address: String| report.nodes().any(|name: &str| address.ends_with(name));
        for (it, fault) in &self.nodes {
            let left = it.node.keys();
            let place = &self.place;
            assert!(left.is_empty() || is_named(fault.address(it)), "{place}: {left:?}, {report}");
            it.node.flushall();
        }
    }

    async fn be_emptied(&self) {
        until(&self.place, || self.nodes.iter().all(|(it, _)| it.node.keys().is_empty())).await;
    }

    fn manager(&self) -> LockManager {
        let addresses: Vec<_> = self.nodes.iter().map(|(it, fault)| fault.address(it)).collect();
        let limit = if self.has_quorum() { CONNECT_TIMEOUT } else { NODE_TIMEOUT };
        let nodes = connected!(self.client, &addresses, |it| it.connect_timeout(limit));
        unhurried(nodes).node_timeout(NODE_TIMEOUT).build().unwrap()
    }

    fn has_quorum(&self) -> bool {
        self.count(Effect::Nothing) > self.spare()
    }

    fn spare(&self) -> usize {
        (self.nodes.len() - 1) / 2
    }

    fn count(&self, wanted: Effect) -> usize {
        self.nodes.iter().filter(|(_, fault)| fault.effect() == wanted).count()
    }

    fn judge(&self, error: &LockError) {
        let place = format!("{}: {error}", self.place);
        let (LockError::Held(failure) | LockError::NoQuorum(failure)) = error else {
            panic!("{place}")
        };
        self.judge_answers(failure, &place);
        let refusing = self.count(Effect::Refusal);
        let unknown = self.nodes.len() - self.count(Effect::Nothing) - refusing;
        let could_be = if error.is_held() { refusing > 0 } else { unknown > self.spare() };
        assert!(could_be, "{place}");
    }

    /// Checks the answer of each node. More than can be spared have a reason.
    fn judge_answers(&self, failure: &QuorumFailure, place: &str) {
        let mut named = 0;
        for (NodeAnswer { name, answer, .. }, (it, fault)) in
            failure.nodes().iter().zip(&self.nodes)
        {
            assert!(fault.address(it).ends_with(&**name), "{place}: {name}");
            // A node that was never connected is silent for its connect limit.
            let is_silent = match answer {
                Answer::NoReply { .. } => true,
                Answer::Failed(error) => error.kind() == BackendErrorKind::TimedOut,
                _ => false,
            };
            match (fault.effect(), answer) {
                (_, Answer::NoReply { is_over: false } | Answer::NotAsked)
                | (Effect::Nothing, Answer::Granted) => {}
                (Effect::Silence, _) if is_silent => named += 1,
                (Effect::Refusal, Answer::Refused { .. }) => named += 1,
                (Effect::Error(kind), Answer::Failed(error)) if error.kind() == kind => named += 1,
                (effect, answer) => panic!("{place}: {effect:?} at {name} is {answer:?}"),
            }
        }
        assert!(named > self.spare(), "{place}: only {named} nodes are named");
    }

    /// Nothing is left behind, and a node that is healed works again.
    async fn work_again(&self, manager: &LockManager) {
        self.be_emptied().await;
        // An error that only an operator can mend ends a lock at once, and a connection that was refused
        // for it is not made again at once.
        let refused = self.count(REFUSED_LOGIN) + self.count(FORBIDDEN);
        let anew = (refused > self.spare()).then(|| self.manager());
        let again = anew.as_ref().unwrap_or(manager).lock(KEY).await.expect(&self.place);
        drop(again.release().await);
        self.be_emptied().await;
        if let Some(anew) = anew {
            let _ = anew.close(LIMIT).await;
        }
    }
}

/// The first lock must not pay for it.
#[test]
fn a_restart_while_idle_costs_no_lock() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(3);
        let manager = client.manager(&nodes);
        let guard = manager.lock("r").await.unwrap();
        all_have(&nodes, "r").await;
        guard.release().await.unwrap();
        nothing_is_left(&nodes).await;
        nodes.iter().for_each(RedisServer::restart);
        manager.lock("r").await.unwrap().release().await.unwrap();
    });
}

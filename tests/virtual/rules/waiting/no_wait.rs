//! O8: requests that wait for no holder. Of those that ask at the same moment exactly one gets the lock.

use std::time::Duration;

use quorate_core::{LockError, LockGuard, LockManager};
use quorate_memory::{Effect, Fault, MemoryNode, Rule, Sim, SimClient};

use crate::backends::Odd;
use crate::world::{Ended, MS, World, spawned};

/// Two node timeouts of the default ttl.
const SOON: Duration = Duration::from_secs(1);

/// Processes at different distances from the nodes, 0.1 to 0.5 ms, that ask at the same moment.
struct Contest {
    sim: Sim,
    nodes: Vec<MemoryNode>,
    clients: Vec<SimClient>,
    /// Of each process, once it knows: its guard, or that the lock is held.
    results: Vec<Ended<Result<LockGuard, LockError>>>,
}

impl Contest {
    fn begin(seed: u64, nodes: usize, processes: usize, kind: &str) -> Self {
        let sim = Sim::new(seed);
        let nodes = MemoryNode::cluster(nodes, sim.clone());
        let (least, most) = (100 * MS / 1_000, 500 * MS / 1_000);
        for node in &nodes {
            node.add_rule(Rule::new(Effect::Delay { least, most }));
        }
        match kind {
            "one slow" => nodes[0].inject(Fault::Slow(20 * MS)),
            "one hung" => nodes[0].inject(Fault::Hung),
            "one dead" => nodes[0].inject(Fault::Dead),
            _ => {}
        }
        let mut contest = Self { sim, nodes, clients: Vec::new(), results: Vec::new() };
        for _ in 0..processes {
            let client = contest.sim.client(0);
            let seen = contest.nodes.iter().map(|node| match kind {
                "pools" => node.unordered().seen_by(&client),
                _ => node.seen_by(&client),
            });
            let locks = match kind {
                "no names" => LockManager::builder(
                    seen.map(|node| Odd::new(&node).named(node.name()).without_names()),
                ),
                _ => LockManager::builder(seen),
            };
            let locks = locks.runtime(client.clone()).build().unwrap();
            let asks = async move { locks.lock("job").no_wait().await };
            contest.results.push(spawned(&client, asks));
            contest.clients.push(client);
        }
        contest
    }

    /// How many processes have the lock, and how many know that another has it.
    fn count(&self) -> (usize, usize) {
        let mut count = (0, 0);
        for result in &self.results {
            match &*result.lock().unwrap() {
                Some(Ok(_)) => count.0 += 1,
                Some(Err(error)) if error.is_held() => count.1 += 1,
                Some(Err(error)) => panic!("{error}"),
                None => {}
            }
        }
        count
    }
}

impl Drop for Contest {
    fn drop(&mut self) {
        self.sim.end();
    }
}

#[test]
fn o8_of_those_that_ask_together_exactly_one_gets_the_lock() {
    for kind in ["", "pools", "one slow", "one hung", "one dead", "no names"] {
        for (nodes, processes, seeds) in
            [(3, 2, 30), (3, 5, 20), (5, 5, 20), (3, 40, 2), (5, 40, 2)]
        {
            for seed in 0..seeds {
                let contest = Contest::begin(seed, nodes, processes, kind);
                contest.sim.advance(SOON);
                let (winners, others) = contest.count();
                let place = format!("{kind}, {nodes} nodes, {processes} processes, seed {seed}");
                if kind == "no names" {
                    // The first one is not known, and a quorum of refusals without a name is *held*.
                    assert!(winners <= 1, "{place}: {winners} have it, {others} know");
                } else {
                    assert_eq!((winners, others), (1, processes - 1), "{place}");
                }
            }
        }
    }
}

/// A process that dies in its first round keeps its keys on some nodes until the ttl. No other waits for it.
#[test]
fn o8_the_first_one_may_die() {
    for seed in 0..60 {
        let contest = Contest::begin(seed, 5, 5, "");
        contest.sim.advance((200 + 10 * u32::try_from(seed).unwrap()) * MS / 1_000);
        let dead = &contest.clients[usize::try_from(seed).unwrap() % 5];
        dead.kill();
        contest.sim.advance(SOON);
        let (winners, others) = contest.count();
        let keys: Vec<_> = contest.nodes.iter().filter_map(|node| node.get("job")).collect();
        let most = keys.iter().map(|key| keys.iter().filter(|other| *other == key).count()).max();
        assert!(winners <= 1, "seed {seed}: {winners}");
        assert!(most.is_some_and(|most| most >= 3), "seed {seed}: some process has it");
        assert!(others >= 3, "seed {seed}: {others} of the others know");
    }
}

#[test]
fn o8_a_holder_is_told_at_once_and_a_hung_node_costs_no_node_timeout() {
    for hung in [0, 1] {
        let (world, _guard) = World::complete(3).held();
        world.inject(..hung, Fault::Hung);
        let start = world.sim.elapsed();
        let tried = world.sim.block_on(world.manager().try_lock("r")).unwrap();
        assert!(tried.is_none());
        let took = world.sim.elapsed() - start;
        assert!(took <= 4 * MS, "{took:?}");
        assert_eq!(world.log.tokens().len(), 2, "one round");
    }
}

/// The lock is held on two of three nodes, and one of them hangs: one refusal, one grant, one silence.
#[test]
fn o8_a_holder_that_no_quorum_names_is_held_in_the_end() {
    let world = World::complete(3);
    world.occupy(1..);
    world.inject(2.., Fault::Hung);
    let start = world.sim.elapsed();
    let error = world.sim.block_on(world.manager().lock("r").no_wait()).unwrap_err();
    assert!(error.is_held(), "{error}");
    let rounds = world.log.tokens().len();
    assert!((2..=10).contains(&rounds), "a fresh token for each of {rounds} rounds");
    let took = world.sim.elapsed() - start;
    assert!(took <= SOON + 500 * MS, "two node timeouts, and the answers to the undo: {took:?}");
}

/// Four nodes of five would grant, two of them slowly. Another client has a key on the fifth.
#[test]
fn o8_slow_nodes_do_not_lose_every_round() {
    let world = World::complete(5);
    world.occupy(..1);
    world.inject(3.., Fault::Slow(20 * MS));
    assert!(world.sim.block_on(world.manager().try_lock("r")).unwrap().is_some());
}

#[test]
fn o8_too_few_nodes_are_no_split_vote() {
    let world = World::complete(3);
    world.occupy(2..);
    world.inject(..2, Fault::Dead);
    let error = world.sim.block_on(world.manager().try_lock("r")).unwrap_err();
    assert!(matches!(error, LockError::NoQuorum(_)), "{error}");
    assert_eq!(world.log.tokens().len(), 1, "one round");
}

/// The settings are those of the request, and *held* is no error.
#[test]
fn a_request_can_be_tried_with_settings() {
    let (world, manager) = World::complete(3).and_manager();
    let tried = || manager.lock("r").ttl(3 * SOON).label("web-3").try_now();
    let guard = world.run(tried()).unwrap().unwrap();
    assert!(guard.remaining() > 2 * SOON && guard.remaining() < 3 * SOON);
    assert!(world.run(tried()).unwrap().is_none());
    let held = world.run(world.manager().lock("r").no_wait()).unwrap_err();
    assert_eq!(held.held_by(), Some("web-3"));
    world.inject(..2, Fault::Dead);
    assert!(!world.run(manager.lock("other").try_now()).unwrap_err().is_held());
}

//! Q1–Q6, on managers. The bare rule is tested where it stands, in `quorate-core`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quorate_core::backend::Capabilities;
use quorate_core::error::Answer;
use quorate_core::{
    AdoptError, BackendError, BackendErrorKind, BuildError, ExtendError, LockBackend, LockError,
    LockManager, ReleaseError,
};
use quorate_memory::{Fault, MemoryNode, Sim, Value};
use quorate_protocol::error_of_reply;

use crate::backends::{Begins, Odd, begin};
use crate::world::{MS, SECOND, World};

#[test]
fn q1_a_quorum_of_the_configured_nodes_for_every_operation() {
    for count in 1..=7 {
        for dead in 0..=count {
            let quorate = count - dead > count / 2;
            let world = World::new(count);
            let manager = world.manager();
            let guard = world.sim.block_on(manager.lock("held").no_wait()).unwrap();
            world.inject(..dead, Fault::Dead);
            let lock = world.sim.block_on(manager.lock("other").no_wait());
            let extended = world.sim.block_on(guard.extend());
            let released = world.sim.block_on(guard.release());
            let state = format!("{dead} of {count} dead");
            assert_eq!(lock.is_ok(), quorate, "{state}");
            assert_eq!(extended.is_ok(), quorate, "{state}");
            assert_eq!(released.is_ok(), quorate, "{state}");
            if !quorate {
                assert!(matches!(lock, Err(LockError::NoQuorum(_))));
                assert!(matches!(extended, Err(ExtendError::NoQuorum(_))));
                assert!(matches!(released, Err(ReleaseError::Unconfirmed(_))));
            }
        }
    }
}

#[test]
fn q1_half_of_an_even_number_is_no_quorum() {
    for count in [2, 4, 6] {
        let world = World::new(count);
        world.occupy(..count / 2);
        let lost = world.sim.block_on(world.manager().lock("r").no_wait());
        assert!(matches!(lost, Err(LockError::Held(_))), "{lost:?}");
        world.catch_up();
        assert_eq!(world.keys_left(), count / 2, "only the other's keys are left");
    }
}

#[test]
fn q2_the_slowest_nodes_are_not_waited_for() {
    for fault in [Fault::Hung, Fault::Slow(3600 * SECOND), Fault::Late(3600 * SECOND)] {
        let world = World::new(5);
        world.nodes[1].inject(fault.clone());
        world.nodes[4].inject(fault);
        let guard = world.sim.block_on(world.manager().lock("r")).unwrap();
        world.sim.block_on(guard.extend()).unwrap();
        world.sim.block_on(guard.release()).unwrap();
        assert_eq!(world.sim.elapsed(), Duration::ZERO);
    }
}

#[test]
fn q2_a_loss_is_known_as_soon_as_it_is_certain() {
    let world = World::new(5);
    world.inject(..3, Fault::Dead);
    world.inject(3.., Fault::Hung);
    let lost = world.sim.block_on(world.manager().lock("r").no_wait());
    let Err(LockError::NoQuorum(failure)) = lost else { panic!("{lost:?}") };
    assert_eq!(failure.waited(), Duration::ZERO);
    assert!(world.sim.elapsed() <= 2 * MS, "C8 allows the undo 2 ms");
}

#[test]
fn q4_only_a_refusal_means_held() {
    for reply in [
        "READONLY You can't write against a read only replica.",
        "LOADING Redis is loading the dataset in memory",
        "MISCONF Redis is configured to save RDB snapshots",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "NOAUTH Authentication required.",
        "NOPERM this user has no permissions to run the 'set' command",
        "CLUSTERDOWN Hash slot not served",
        "ERR something else",
    ] {
        let world = World::new(3);
        world.inject(.., Fault::Failing(error_of_reply(reply)));
        let lost = world.sim.block_on(world.manager().lock("r").no_wait());
        let Err(LockError::NoQuorum(failure)) = lost else {
            panic!("{reply}: {lost:?}");
        };
        let mut reasons = failure.nodes().iter().filter(|node| match &node.answer {
            Answer::Failed(error) => error.to_string() == reply,
            _ => false,
        });
        assert!(reasons.next().is_some(), "{reply}: {failure}");
    }
}

/// `SET NX`, as one key needs it, cannot see that. The script for several keys can.
#[test]
fn q4_a_key_of_another_type_is_held_by_no_client() {
    let world = World::new(3);
    world.nodes.iter().for_each(|node| node.put("r", Value::List));
    let lost = world.sim.block_on(world.manager().lock(["r", "s"])).unwrap_err();
    assert!(matches!(lost, LockError::NoQuorum(_)) && lost.is_permanent(), "{lost}");
    assert!(lost.to_string().contains("WRONGTYPE"), "{lost}");
    assert!(world.sim.elapsed() <= 2 * MS, "A4: at once");
}

#[test]
fn contention_and_faults_are_distinguished() {
    // Held on two, dead on one: the two that answered decide.
    let world = World::new(3);
    world.occupy(..2);
    world.nodes[2].inject(Fault::Dead);
    let lost = world.sim.block_on(world.manager().lock("r").no_wait());
    assert!(matches!(lost, Err(LockError::Held(_))), "{lost:?}");
    // Dead on two, held on one: no client could have had a quorum.
    world.nodes[0].inject(Fault::Dead);
    world.nodes[1].inject(Fault::Dead);
    world.nodes[2].heal();
    world.nodes[2].put("r", Value::String(b"x".to_vec()));
    let lost = world.sim.block_on(world.manager().lock("r").no_wait());
    let Err(LockError::NoQuorum(failure)) = lost else { panic!("{lost:?}") };
    assert_eq!(
        failure.to_string(),
        "0 of 3 nodes granted, 2 needed; memory-1: connection refused; \
         memory-2: connection refused; memory-3: refused"
    );
}

#[test]
fn q5_a_node_that_never_answers_costs_one_node_timeout() {
    let world = World::new(5);
    world.inject(.., Fault::Hung);
    let manager = world.builder().node_timeout(70 * MS).build().unwrap();
    let lost = world.sim.block_on(manager.lock("r").no_wait());
    let Err(LockError::NoQuorum(failure)) = lost else { panic!("{lost:?}") };
    assert_eq!(failure.waited(), 70 * MS);
    assert_eq!(world.sim.elapsed(), 140 * MS, "C8 allows the undo as long again");
    assert!(failure.to_string().contains("memory-5: no reply within 70.0ms"), "{failure}");
}

/// A manager of three nodes, of which the first two are one server.
fn with_an_alias(sim: &Sim, nodes: &[MemoryNode]) -> LockManager {
    let alias = Begins::new(&nodes[0], begin).named("alias");
    let all: Vec<Arc<dyn LockBackend>> =
        vec![Arc::new(nodes[0].clone()), Arc::new(alias), Arc::new(nodes[1].clone())];
    LockManager::builder(all).runtime(sim.clone()).build().unwrap()
}

#[test]
fn q6_one_server_under_two_names_is_refused() {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(3, sim.clone());
    let manager = with_an_alias(&sim, &nodes);
    for _ in 0..2 {
        let refused = sim.block_on(manager.lock("r"));
        let Err(error @ LockError::SameServer { .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(error.to_string(), "the nodes memory-1 and alias are one server");
        assert!(nodes.iter().all(|node| node.keys().is_empty()), "C8: when it is returned");
        sim.settle();
        assert!(nodes.iter().all(|node| node.keys().is_empty()));
    }
    let others = LockManager::builder(nodes).runtime(sim.clone()).build().unwrap();
    let record = sim.block_on(others.lock("r")).unwrap().detach().unwrap();
    let refused = sim.block_on(manager.adopt(&record));
    assert!(matches!(refused, Err(AdoptError::SameServer { .. })), "{refused:?}");
}

#[test]
fn q6_one_server_under_two_names_is_refused_by_whatever_is_done_first() {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(3, sim.clone());
    let others = LockManager::builder(nodes.clone()).runtime(sim.clone()).build().unwrap();
    let record = sim.block_on(others.lock("handed over")).unwrap().detach().unwrap();
    let twice = || with_an_alias(&sim, &nodes);
    let adopted = sim.block_on(twice().adopt(&record));
    assert!(matches!(adopted, Err(AdoptError::SameServer { .. })), "{adopted:?}");
    let fenced = sim.block_on(twice().lock("r").fenced());
    assert!(matches!(fenced, Err(LockError::SameServer { .. })), "{fenced:?}");
    sim.settle();
    assert!(nodes.iter().all(|node| node.get("r").is_none()));
}

#[test]
fn q6_one_address_twice_is_refused() {
    let sim = Sim::new(1);
    let node = MemoryNode::new("a", sim.clone());
    let built = LockManager::builder([node.clone(), node]).runtime(sim).build();
    assert_eq!(built.err(), Some(BuildError::DuplicateNode { name: "a".to_owned() }));
}

/// A node without a server id votes all the same.
#[test]
fn q6_where_it_cannot_be_known_nodes_vote() {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(3, sim.clone());
    nodes[2].inject(Fault::Dead);
    nodes[1].inject(Fault::Dead);
    let manager =
        LockManager::builder(nodes.iter().map(Odd::new)).runtime(sim.clone()).build().unwrap();
    let Err(LockError::NoQuorum(failure)) = sim.block_on(manager.lock("r").no_wait()) else {
        panic!("two of three are dead");
    };
    let names: Vec<&str> = failure.nodes().iter().map(|node| &*node.name).collect();
    assert_eq!(names, ["node 1", "node 2", "node 3"]);
}

/// Nodes that answer the question for their server id with an error, and how often they were asked.
fn secretive(nodes: &[MemoryNode], reply: &'static str) -> (Vec<Odd>, Arc<AtomicUsize>) {
    let asked = Arc::<AtomicUsize>::default();
    let odd = |node: &MemoryNode| {
        let asked = Arc::clone(&asked);
        Odd::new(node).able(Capabilities::SERVER_ID).before(move |method| {
            let is_asked = method == "server_id";
            asked.fetch_add(usize::from(is_asked), Ordering::Relaxed);
            let answer = if is_asked { Err(error_of_reply(reply)) } else { Ok(()) };
            Box::pin(async { answer })
        })
    };
    (nodes.iter().map(odd).collect(), Arc::clone(&asked))
}

#[test]
fn q6_a_node_that_may_not_say_who_it_is_votes_and_is_asked_once() {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(3, sim.clone());
    let (nodes, asked) = secretive(&nodes, "NOPERM no permission to run INFO");
    let manager = LockManager::builder(nodes).runtime(sim.clone()).build().unwrap();
    for _ in 0..3 {
        drop(sim.block_on(manager.lock("r")).unwrap());
        sim.advance(Duration::ZERO);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

#[test]
fn q6_a_node_that_fails_to_say_who_it_is_does_not_vote_and_is_asked_again() {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(1, sim.clone());
    let (nodes, asked) = secretive(&nodes, "ERR the proxy has a bad day");
    let manager = LockManager::builder(nodes).runtime(sim.clone()).build().unwrap();
    for round in 1..4 {
        assert!(sim.block_on(manager.lock("r").no_wait()).is_err());
        assert_eq!(asked.load(Ordering::Relaxed), round);
    }
}

/// The queue of the third is full: no acquire is sent, and nothing else is answered.
#[test]
fn q6_an_acquire_that_was_not_sent_waits_for_no_server_id() {
    let sim = Sim::new(1);
    let nodes = MemoryNode::cluster(3, sim.clone());
    let told = nodes.iter().map(|node| Odd::new(node).able(Capabilities::SERVER_ID));
    let mut told: Vec<Odd> = told.collect();
    told[2] = told[2].clone().before(|method| match method {
        "server_id" => Box::pin(std::future::pending()),
        _ => Box::pin(async {
            let why = "too many acquires wait for this node";
            Err(BackendError::new(BackendErrorKind::Connection, why).not_sent())
        }),
    });
    let manager = LockManager::builder(told).runtime(sim.clone()).build().unwrap();
    let guard = sim.block_on(manager.lock("r")).unwrap();
    sim.block_on(guard.release()).unwrap();
    // There is nothing to release at the third node, and nothing in flight.
    assert!(sim.block_on(manager.close(Duration::ZERO)).is_clean());
}

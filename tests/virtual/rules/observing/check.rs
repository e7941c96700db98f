//! A check of all nodes: which problems it names, and its writes.

use std::time::Duration;

use crate::backends::{Begins, Odd, answer_of};
use crate::world::{MS, SECOND, World, slow};
use quorate_core::backend::{CallReply, Capabilities};
use quorate_core::runtime::BoxFuture;
use quorate_core::{BackendError, BackendErrorKind, LockManager, RestartGuard, operators::Check};
use quorate_memory::{Effect, Fault, Operation, Rule};

fn check(world: &World, manager: &LockManager) -> Check {
    world.sim.block_on(manager.check())
}

fn problems(check: &Check) -> Vec<String> {
    check.problems().map(|(node, problem)| format!("{}: {problem}", node.name)).collect()
}

#[test]
fn a_check_of_healthy_nodes_finds_no_problem_and_tells_what_they_are() {
    let world = World::complete(3);
    world.add_rule(.., slow(2 * MS));
    let seen = check(&world, &world.manager());
    assert_eq!(problems(&seen), [""; 0]);
    assert!(seen.has_quorum());
    for (node, name) in seen.nodes().iter().zip(["memory-1", "memory-2", "memory-3"]) {
        assert_eq!((&*node.name, node.round_trip), (name, Some(4 * MS)));
        let told = node.description.as_ref().unwrap();
        assert!(told.version.as_deref().unwrap().starts_with("quorate-memory "));
        assert!(told.server_id.is_some());
        assert_eq!((told.is_replica, told.is_append_only), (Some(false), None));
        assert_eq!(told.eviction.as_deref(), Some("noeviction"));
        let able = Capabilities::QUEUE | Capabilities::WATCH | Capabilities::REVOKE;
        assert!(node.abilities.contains(able | Capabilities::GUARD | Capabilities::FENCING));
    }
    let lines = seen.to_string();
    assert_eq!(lines.lines().count(), 3);
    let line = lines.lines().next().unwrap();
    assert!(line.starts_with("memory-1: ok (4.0ms, quorate-memory "), "{line}");
    let end = "maxmemory-policy noeviction, can do: fencing, restart guard, \
               wait queue, watching, inspect, revoke, readers)";
    assert!(line.ends_with(end), "{line}");
    assert_eq!(world.keys_left(), 0, "nothing is left");
}

/// Whether a lock works shows when a key is set and deleted, and not before.
#[test]
fn a_check_sets_and_deletes_a_key_that_no_lock_has() {
    for (prefix, key) in [("", "quorate:check"), ("app:", "app::quorate:check")] {
        let world = World::complete(3);
        let denied = |of: &'static str| {
            move |method| -> BoxFuture<'static, Result<(), BackendError>> {
                let error = BackendError::new(BackendErrorKind::Permission, format!("no {of}"));
                Box::pin(async move { if method == of { Err(error) } else { Ok(()) } })
            }
        };
        let able = Capabilities::DESCRIBE | Capabilities::SERVER_ID;
        let nodes = ["inspect", "acquire", "release"].into_iter().zip(&world.nodes);
        let nodes = nodes.map(|(of, node)| Odd::new(node).able(able).named(of).before(denied(of)));
        let builder = LockManager::builder(nodes).runtime(world.sim.clone()).key_prefix(prefix);
        let manager = builder.build().unwrap();
        let seen = check(&world, &manager);
        let cannot = |of| {
            let advice = "allow this to the user of the address";
            format!("{of}: cannot lock below the prefix: {key}: no {of}; {advice}")
        };
        assert_eq!(problems(&seen), [cannot("acquire"), cannot("release")]);
        assert!(seen.has_quorum() && !seen.can_lock(), "one of three");
        // What the third one could not delete expires.
        assert_eq!(world.keys_left(), 1);
        world.advance(SECOND);
        assert_eq!(world.keys_left(), 0);
        // No lock has the key, so a second check at this moment sees no fault in the first.
        world.nodes[0].put(key, quorate_memory::Value::String(b"of another check".into()));
        assert_eq!(problems(&check(&world, &manager)).len(), 2);
        assert!(world.sim.block_on(manager.lock(":quorate:check")).unwrap_err().is_permanent());
    }
}

#[test]
fn a_set_or_a_delete_that_is_not_answered_is_a_node_that_does_not_answer() {
    for operation in [Operation::Acquire, Operation::Release] {
        let world = World::complete(3);
        world.nodes[0].add_rule(Rule::new(Effect::DropReply).on(operation));
        let advice = "check the address, and whether the server hangs";
        let problem = format!("memory-1: no reply within 500.0ms; {advice}");
        assert_eq!(problems(&check(&world, &world.manager())), [problem]);
    }
}

#[test]
fn a_check_tells_of_a_quarantine_and_begins_it_only_if_it_is_asked_to() {
    let world = World::complete(3);
    let guarded = |max_ttl| world.builder().restart_guard(RestartGuard::strict(max_ttl));
    let manager = guarded(20 * SECOND).build().unwrap();
    let told = |text: &str| ["memory-1", "memory-2", "memory-3"].map(|it| format!("{it}: {text}"));
    let will = "the restart guard will quarantine it at the next lock, for 20.0s: it restarted, is new or lost \
                its data; restart no other node until that has passed";
    for _ in 0..2 {
        let seen = check(&world, &manager);
        assert_eq!(problems(&seen), told(will));
        assert!(seen.has_quorum() && !seen.can_lock());
        assert_eq!(world.keys_left(), 0, "no epoch was written");
        world.advance(SECOND);
    }
    world.run(manager.check().begin_quarantine());
    world.advance(5 * SECOND);
    let quarantined =
        "quarantined: the node may have forgotten locks and grants none for 15.0s; wait";
    assert_eq!(problems(&check(&world, &manager)), told(quarantined));
    world.advance(15 * SECOND);
    let seen = check(&world, &manager);
    assert!(problems(&seen).is_empty() && seen.can_lock(), "{seen}");
    // A restart, and a client with another setting.
    world.nodes[1].inject(Fault::Dead);
    world.heal();
    assert_eq!(problems(&check(&world, &manager)), [format!("memory-2: {will}")]);
    let other = "memory-1: the max_ttl of its restart guard is 20.0s, not 30.0s";
    assert_eq!(problems(&check(&world, &guarded(30 * SECOND).build().unwrap()))[0], other);
    // An operator keeps a node out.
    world.nodes[2].put("quorate:guard:quarantine", quorate_memory::Value::List);
    let kept_out = "memory-3: quarantined: the node grants no locks until quorate:guard:quarantine \
                    is deleted";
    assert!(problems(&check(&world, &manager)).contains(&kept_out.to_owned()));
}

#[test]
fn a_node_that_forgot_is_a_problem_for_10_min_or_a_longer_ttl_of_the_manager() {
    let world = World::complete(1);
    for (ttl, longest, left) in [
        (10, None, 601),
        (600, None, 601),
        (1_200, None, 1_201),
        (1_200, Some(60), 61),
        (10, Some(1_200), 1_201),
    ] {
        // A node without a disk, whose server has just begun.
        let nodes = [Begins::new(&world.nodes[0], |node, call, runtime| {
            let mut answer = answer_of(node, &call, runtime);
            if let Ok(CallReply::Described(told)) = &mut answer {
                (told.is_append_only, told.uptime) = (Some(false), Some(Duration::ZERO));
            }
            call.answer(answer);
            Ok(())
        })];
        let builder = LockManager::builder(nodes).runtime(world.sim.clone());
        let manager = builder.ttl(ttl * SECOND).build().unwrap();
        let check = match longest {
            Some(seconds) => manager.check().longest_ttl(seconds * SECOND),
            None => manager.check(),
        };
        let found = problems(&world.sim.block_on(check));
        let end = format!("restart no other node for {left} s");
        assert!(
            found.iter().any(|problem| problem.ends_with(&end)),
            "{ttl} {longest:?}: {found:?}"
        );
    }
}

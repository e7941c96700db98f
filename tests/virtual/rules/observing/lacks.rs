//! What a node cannot do says nothing of whether it answers.

use std::future::IntoFuture;

use futures_util::FutureExt;
use quorate_core::backend::{Call, Capabilities, Mode, Operation};
use quorate_core::{BackendError, LockManager, Runtime};
use quorate_memory::{Fault, MemoryNode};
use quorate_protocol::error_of_reply;
use tracing::Level;

use crate::backends::{Begins, begin};
use crate::telling::told;
use crate::world::{MS, SECOND, World};

/// How a node says that it cannot do something.
#[derive(Clone, Copy, Debug)]
enum How {
    /// Its connection knows it, and sends nothing: at the begin of the call, or behind it.
    Known,
    KnownLater,
    /// Its user may not.
    Forbidden,
}

const ALL_WAYS: [How; 3] = [How::Known, How::KnownLater, How::Forbidden];

/// What is asked besides the votes on a lock.
const EXTRAS: [Capabilities; 7] = [
    Capabilities::PUSH,
    Capabilities::WATCH,
    Capabilities::QUEUE,
    Capabilities::SERVER_ID,
    Capabilities::INSPECT,
    Capabilities::REVOKE,
    Capabilities::DESCRIBE,
];

fn needs(operation: &Operation) -> Capabilities {
    match operation {
        Operation::Look(_) => Capabilities::PUSH,
        Operation::Watch { .. } => Capabilities::WATCH,
        Operation::Refresh { .. } | Operation::Leave { .. } => Capabilities::QUEUE,
        Operation::ServerId => Capabilities::SERVER_ID,
        Operation::Acquire(claim, _) if claim.mode() == Mode::Shared => Capabilities::SHARED,
        Operation::Acquire(_, options) if options.fencing.is_some() => Capabilities::FENCING,
        _ => Capabilities::NONE,
    }
}

/// A process whose nodes lack this, though its backends were built for it.
fn process(world: &World, lacks: Capabilities, how: How) -> LockManager {
    let client = world.sim.client(0);
    let node = |node: &MemoryNode| {
        // What may not be acquired is released.
        let known = match how {
            How::Forbidden => lacks.without(Capabilities::SHARED | Capabilities::FENCING),
            _ => lacks,
        };
        let (node, sim) = (node.pushing().seen_by(&client).lacking(known), world.sim.clone());
        Begins::new(&node, move |node, call: Call, runtime: &dyn Runtime| {
            let lacking = needs(call.operation());
            if lacking == Capabilities::NONE || !lacks.contains(lacking) {
                return begin(node, call, runtime);
            }
            let error = match how {
                How::Known => return begin(node, call, runtime),
                How::KnownLater => BackendError::unsupported("on purpose"),
                How::Forbidden => error_of_reply("NOPERM this user has no permissions"),
            };
            let sleep = sim.sleep(MS);
            runtime.spawn(Box::pin(sleep.map(move |()| call.answer(Err(error)))));
            Ok(())
        })
    };
    world.over(world.nodes.iter().map(node))
}

fn are_well(manager: &LockManager) -> bool {
    let known = manager.readiness();
    known.nodes().iter().all(|node| node.is_answering && node.failure.is_none())
}

/// A lock is held, another task waits for it, a reader reads, and an operator looks. Nothing of it is a failure of a node.
/// Rules C8, W1.
#[test]
fn a_node_that_lacks_something_answers_and_is_clean_at_a_close() {
    for (lacks, how) in EXTRAS.into_iter().flat_map(|lacks| ALL_WAYS.map(|how| (lacks, how))) {
        let events = told(|| {
            let world = World::complete(3);
            world.inject(.., Fault::Slow(2 * MS));
            let manager = process(&world, lacks, how);
            let _ = world.run(manager.check());
            let held = world.lock(&manager);
            world.advance(300 * MS);
            assert!(are_well(&manager), "{lacks}, {how:?}: {}", manager.readiness());
            let mut waits = process(&world, lacks, how).lock("r").into_future().boxed();
            let other = process(&world, lacks, how);
            let mut reads = other.read("r").into_future().boxed();
            for _ in 0..2_000 {
                assert!(world.sim.block_on_for(waits.as_mut(), 1).is_none());
                assert!(world.sim.block_on_for(reads.as_mut(), 1).is_none());
                world.advance(MS);
                assert!(are_well(&other) || other.readiness().nodes()[0].last_answer.is_none());
            }
            let _ = world.run(manager.inspect("r"));
            let _ = world.run(manager.revoke("other"));
            drop(reads);
            assert!(world.run(other.close(SECOND)).is_clean(), "{lacks}, {how:?}");
            assert!(are_well(&manager), "{lacks}, {how:?}: {}", manager.readiness());
            drop((waits, held));
            let report = world.run(manager.close(SECOND));
            let left = world.nodes.iter().filter(|node| node.get("r").is_some()).count();
            assert_eq!((report.to_string(), left), ("all released".into(), 0), "{lacks}, {how:?}");
        });
        let fails = |event: &&crate::telling::Told| {
            let is_lack = event.what == "node lacks operation";
            event.level == Level::WARN && !is_lack || event.what == "call failed"
        };
        let failed: Vec<_> = events.iter().filter(fails).collect();
        assert!(
            failed.is_empty() || matches!(how, How::Forbidden),
            "{lacks}, {how:?}: {failed:#?}"
        );
        assert!(!failed.iter().any(|event| event.what == "node failing"), "{lacks}: {failed:#?}");
    }
}

/// The votes of such a lock fail, and the node answers all the same.
/// Rule C8.
#[test]
fn a_node_that_cannot_fence_or_keep_readers_answers() {
    for (lacks, how) in [Capabilities::FENCING, Capabilities::SHARED]
        .into_iter()
        .flat_map(|lacks| ALL_WAYS.map(|how| (lacks, how)))
    {
        let world = World::complete(3);
        let manager = process(&world, lacks, how);
        world.run(world.lock(&manager).release()).unwrap();
        world.run(manager.lock("f").fenced()).err();
        let fenced = world.run(manager.lock("f").fenced().no_wait());
        let read = world.run(manager.read("f").no_wait());
        assert!(fenced.is_err() || read.is_err());
        let known = manager.readiness();
        assert!(known.has_quorum() && known.answering() == 3, "{lacks}, {how:?}: {known}");
        drop((fenced, read));
        assert!(world.run(manager.close(SECOND)).is_clean(), "{lacks}, {how:?}");
    }
}

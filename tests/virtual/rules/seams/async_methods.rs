//! A backend of async methods alone: the default `begin` carries each call out by one of them.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use quorate_core::backend::{
    AcquireOptions, Capabilities, Choice, Claim, Description, Entry, ExtendOptions, FenceHint,
    Mode, Operation, Refreshed, ReleaseOptions, Reply, Revoke, Sighting, Watched, ask,
};
use quorate_core::resource::Key;
use quorate_core::{BackendError, FencingToken, LockBackend, LockManager, Runtime};
use quorate_memory::{Fault, MemoryNode};

use crate::world::{MS, SECOND, World, claim, key};

/// A node, and nothing of how it begins its calls.
#[derive(Debug)]
struct Methods(MemoryNode);

macro_rules! forward {
    ($($method:ident($($argument:ident: $type:ty),*) -> $reply:ty;)+) => {
        #[async_trait]
        impl LockBackend for Methods {
            fn name(&self) -> Cow<'_, str> {
                Cow::Borrowed(self.0.name())
            }

            fn capabilities(&self) -> Capabilities {
                self.0.capabilities().without(Capabilities::ORDERED)
            }

            $(async fn $method(&self, $($argument: $type),*) -> Result<$reply, BackendError> {
                LockBackend::$method(&self.0, $($argument),*).await
            })+
        }
    };
}

forward! {
    acquire(claim: &Claim, options: AcquireOptions) -> Reply;
    extend(claim: &Claim, options: ExtendOptions) -> Reply;
    release(claim: &Claim, options: ReleaseOptions) -> Reply;
    raise(claim: &Claim, number: FencingToken) -> Reply;
    inspect(key: &Key) -> Option<Sighting>;
    revoke(key: &Key, how: &Revoke) -> Option<Sighting>;
    describe() -> Description;
    server_id() -> Option<String>;
    hint(key: &Key, mode: Mode) -> bool;
    watch(key: &Key, entry: Option<&Entry>) -> Watched;
    queue_refresh(key: &Key, entry: &Entry, locks: &[Key], choice: Choice) -> Refreshed;
    queue_leave(key: &Key, entry: &Entry, also: Option<&Entry>) -> bool;
}

/// What a node answers to one call of each kind, one after the other, as text.
fn answers(world: &World, node: &Arc<dyn LockBackend>) -> Vec<String> {
    let (own, other) = (claim(&["r"], 7, 10 * SECOND), claim(&["r"], 8, 10 * SECOND));
    let (name, entry) = (key("r"), Entry::new(*b"e"));
    let mut fenced = AcquireOptions::default();
    fenced.fencing = FenceHint::new(5);
    let number = FencingToken::new(9).unwrap();
    let calls = [
        Operation::Acquire(own.clone(), fenced),
        Operation::Acquire(other, AcquireOptions::default()),
        Operation::Extend(own.clone(), ExtendOptions::default()),
        Operation::Raise(own.clone(), number),
        Operation::Hint { key: name.clone(), mode: Mode::Exclusive },
        Operation::Refresh {
            key: name.clone(),
            entry: entry.clone(),
            locks: Arc::from([key("r")]),
            choice: Choice::All,
        },
        Operation::Hint { key: name.clone(), mode: Mode::Exclusive },
        Operation::Watch { key: name.clone(), entry: Some(entry.clone()) },
        Operation::Leave { key: name.clone(), entry, also: None },
        Operation::Watch { key: name.clone(), entry: None },
        Operation::Inspect { key: name.clone() },
        Operation::Revoke { key: name.clone(), how: Revoke::delete() },
        Operation::Release(own, ReleaseOptions::default()),
        Operation::Watch { key: name, entry: None },
        Operation::Describe,
        Operation::ServerId,
    ];
    let answer = |operation| {
        let (call, asked) = ask(operation, world.sim.now());
        match Arc::clone(node).begin(call, &world.sim) {
            Ok(()) => format!("{:?}", world.run(asked)),
            Err(not_sent) => format!("Err({:?})", not_sent.error()),
        }
    };
    calls.map(answer).into()
}

#[test]
fn each_call_has_the_answer_of_its_method() {
    for lacks in [Capabilities::NONE, Capabilities::WATCH | Capabilities::QUEUE] {
        let [one, other] = [(); 2].map(|()| World::complete(1));
        let node = |world: &World| world.nodes[0].without(lacks);
        let expected = answers(&one, &(Arc::new(node(&one)) as _));
        let found = answers(&other, &(Arc::new(Methods(node(&other))) as _));
        assert_eq!(found, expected);
        let failed = found.iter().filter(|answer| answer.starts_with("Err")).count();
        assert_eq!(failed, if lacks == Capabilities::NONE { 0 } else { 7 }, "{found:#?}");
    }
}

/// The waiter has an entry in the wait queue, hears the push, and leaves.
#[test]
fn a_waiter_has_the_lock_when_it_is_released() {
    for (reads, fenced) in [(false, false), (false, true), (true, false)] {
        let world = World::complete(3);
        let manager = |_| -> LockManager { world.over(world.nodes.iter().cloned().map(Methods)) };
        let [holder, waiter] = [0, 1].map(manager);
        // The numbers of the nodes differ, and have to be raised.
        world.inject(..1, Fault::Down);
        drop(world.run(holder.lock("r").fenced()).unwrap());
        world.heal();
        world.advance(SECOND);
        world.inject(.., Fault::Slow(MS));
        let held = world.run(holder.lock("r").ttl(60 * SECOND)).unwrap();
        let request = if reads { waiter.read("r") } else { waiter.lock("r") };
        let request = if fenced { request.fenced() } else { request };
        let mut waits = request.into_future().boxed();
        let polled = select(waits.as_mut(), world.sim.sleep(3 * SECOND));
        assert!(matches!(world.run(polled), Either::Right(_)));
        assert!(world.keys_left() > 4, "it waits in the queue");
        world.run(held.release()).unwrap();
        let from = world.sim.elapsed();
        let guard = world.run(waits).unwrap();
        assert!(world.sim.elapsed() - from <= 10 * MS, "{reads}, {fenced}");
        assert_eq!(guard.fencing_token().is_some(), fenced);
        world.run(guard.release()).unwrap();
        world.advance(SECOND);
        assert_eq!(world.holders("r"), 0);
        assert!(world.nodes.iter().all(|node| node.get("r:quorate:waiters").is_none()));
    }
}

//! Every public future, dropped at every poll: on every runtime, and on real nodes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use quorate::runtime::TokioRuntime;
use quorate::{LockManagerBuilder, Runtime};
use quorate_memory::{Fault, MemoryNode};
use quorate_tests::Nodes;

use crate::client::{Client, LIMIT, on_tokio, unhurried};
use crate::every_future::{Doing, Trial, finish, is_done_after};
use crate::runtimes::on_every_runtime;

const MS: Duration = Duration::from_millis(1);

#[test]
fn c5_a_future_dropped_at_any_poll_leaves_no_key_on_real_nodes() {
    for client in Client::ALL {
        let nodes = &Nodes::start(5);
        nodes[4].kill();
        on_tokio(sweep(Arc::new(TokioRuntime::new()), |doing| {
            let (prefix, builder_prefix) = (format!("{doing:?}:"), format!("{doing:?}:"));
            let builder = move || {
                let addresses = &nodes.addresses()[..alive(doing)];
                unhurried(client.connect(addresses)).key_prefix(&*builder_prefix)
            };
            let is_clean =
                move || !nodes.keys_left().iter().any(|(_, key)| key.starts_with(&prefix));
            (builder, is_clean)
        }));
        // Wait queues, too: all managers have been closed.
        assert_eq!(nodes.keys_left(), [], "{client:?}");
    }
}

#[test]
fn c5_a_future_dropped_at_any_poll_leaves_no_key_on_every_runtime() {
    on_every_runtime(|runtime| {
        sweep(Arc::clone(&runtime), move |doing| {
            let nodes = MemoryNode::cluster(5, Arc::clone(&runtime));
            nodes[1].inject(Fault::Slow(MS));
            nodes[2].inject(Fault::Late(2 * MS));
            nodes[3].inject(Fault::Slow(15 * MS));
            nodes[4].inject(Fault::Dead);
            let (alive, runtime) = (nodes[..alive(doing)].to_vec(), Arc::clone(&runtime));
            let builder = move || unhurried(alive.clone()).runtime(Arc::clone(&runtime));
            let is_clean = move || nodes.iter().all(|node| node.keys().is_empty());
            (builder, is_clean)
        })
    });
}

/// The fifth node is dead. What an adopter leaves there is looked after until the ttl is over: it has none.
fn alive(doing: Doing) -> usize {
    if doing == Doing::Adopt { 4 } else { 5 }
}

/// Drops each future at each poll, all of them at once. `nodes` gives the managers of one future, and whether its nodes
/// have no key.
async fn sweep<B, C>(runtime: Arc<dyn Runtime>, nodes: impl Fn(Doing) -> (B, C))
where
    B: Fn() -> LockManagerBuilder,
    C: Fn() -> bool,
{
    let sweeps = Doing::ALL.map(|doing| {
        let (builder, is_clean) = nodes(doing);
        drop_at_every_poll(doing, Arc::clone(&runtime), builder, is_clean)
    });
    let polls: usize = join_all(sweeps).await.into_iter().sum();
    // A busy machine wakes a task once for several reasons.
    assert!(polls > 2 * Doing::ALL.len(), "the sweep saw only {polls} polls");
}

/// Returns how many polls there were.
async fn drop_at_every_poll(
    doing: Doing,
    runtime: Arc<dyn Runtime>,
    builder: impl Fn() -> LockManagerBuilder,
    is_clean: impl Fn() -> bool,
) -> usize {
    let build = || builder().safety_margin(4 * MS).renew_interval(4 * MS).build().unwrap();
    let (mut manager, rival) = (build(), build());
    for polls in doing.first().. {
        if doing == Doing::Close {
            manager = build();
        }
        let begins = doing.begin(manager.clone(), &rival, Arc::clone(&runtime), 24 * MS);
        let Trial { future, record } = begins.await;
        let is_done = is_done_after(polls, future).await;
        finish(record, &manager).await;
        if is_done || doing == Doing::Close {
            // The dead node is not waited for.
            let _ = manager.close(LIMIT).await;
        }
        let limit = runtime.now() + LIMIT;
        while !is_clean() {
            assert!(runtime.now() < limit, "{doing:?} dropped after {polls} polls leaves a key");
            runtime.sleep_until(runtime.now() + MS).await;
        }
        if is_done {
            // Nor is a key set later.
            let _ = rival.close(LIMIT).await;
            assert!(is_clean(), "{doing:?} dropped after {polls} polls");
            return polls;
        }
    }
    unreachable!("no future is polled that often")
}

//! Every public future, dropped at every poll.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use quorate::runtime::TokioRuntime;
use quorate_tests::Nodes;
use quorate_tests::wait::until;

use crate::client::{Client, LIMIT, on_tokio, unhurried};
use crate::every_future::{self, Doing, Trial};

#[test]
fn c5_a_future_dropped_at_any_poll_leaves_no_key_on_real_nodes() {
    for client in Client::ALL {
        let nodes = Nodes::start(5);
        nodes[4].kill();
        let sweeps = Doing::ALL.map(|doing| drop_at_every_poll(doing, client, &nodes));
        let polls: usize = on_tokio(join_all(sweeps)).into_iter().sum();
        // A busy machine wakes a task once for several reasons.
        assert!(polls > 2 * Doing::ALL.len(), "the sweep saw only {polls} polls");
        // Wait queues, too: all managers have been closed.
        assert_eq!(nodes.keys_left(), [], "{client:?}");
    }
}

/// Returns how many polls there were.
async fn drop_at_every_poll(doing: Doing, client: Client, nodes: &Nodes) -> usize {
    const MS: Duration = Duration::from_millis(1);
    let prefix = format!("{doing:?}:");
    // What an adopter leaves at a dead node is looked after until the ttl is over: it has none.
    let count = if doing == Doing::Adopt { 3 } else { nodes.len() };
    let builder = || {
        let nodes = unhurried(client.connect(&nodes.addresses()[..count]));
        nodes.key_prefix(&*prefix).safety_margin(4 * MS).renew_interval(4 * MS)
    };
    let (mut manager, rival) = (builder().build().unwrap(), builder().build().unwrap());
    for polls in doing.first().. {
        if doing == Doing::Close {
            manager = builder().build().unwrap();
        }
        let runtime = Arc::new(TokioRuntime::new());
        let begins = doing.begin(manager.clone(), &rival, runtime, 24 * MS);
        let Trial { future, record } = begins.await;
        let is_done = every_future::is_done_after(polls, future).await;
        every_future::finish(record, &manager).await;
        if is_done || doing == Doing::Close {
            // The dead node is not waited for.
            let _ = manager.close(LIMIT).await;
        }
        until(&format!("{doing:?} dropped after {polls} polls leaves no key"), || {
            !nodes.keys_left().iter().any(|(_, key)| key.starts_with(&prefix))
        })
        .await;
        if is_done {
            let _ = rival.close(LIMIT).await;
            return polls;
        }
    }
    unreachable!("no future is polled that often")
}

//! Every public future, dropped at every poll, on real nodes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use quorate::runtime::TokioRuntime;
use quorate_tests::Nodes;
use quorate_tests::wait::until;

use crate::client::{Client, LIMIT, on_tokio, unhurried};
use crate::every_future::{Doing, Trial, finish, is_done_after};

const MS: Duration = Duration::from_millis(1);

/// The fifth node is dead. All futures are dropped at once.
#[test]
fn c5_a_future_dropped_at_any_poll_leaves_no_key_on_real_nodes() {
    for client in Client::ALL {
        let nodes = &Nodes::start(5);
        nodes[4].kill();
        let polls =
            on_tokio(join_all(Doing::ALL.map(|doing| drop_at_every_poll(doing, client, nodes))));
        // A busy machine wakes a task once for several reasons.
        let polls: usize = polls.into_iter().sum();
        assert!(polls > 2 * Doing::ALL.len(), "the sweep saw only {polls} polls");
        // Wait queues, too: all managers have been closed.
        assert_eq!(nodes.keys_left(), [], "{client:?}");
    }
}

/// Returns how many polls there were.
async fn drop_at_every_poll(doing: Doing, client: Client, nodes: &Nodes) -> usize {
    // What an adopter leaves at the dead node is looked after until the ttl is over: it has none.
    let count = if doing == Doing::Adopt { 4 } else { 5 };
    let prefix = format!("{doing:?}:");
    let build = || {
        let builder = unhurried(client.connect(&nodes.addresses()[..count])).key_prefix(&*prefix);
        builder.safety_margin(4 * MS).renew_interval(4 * MS).build().unwrap()
    };
    let is_clean = || !nodes.keys_left().iter().any(|(_, key)| key.starts_with(&prefix));
    let (mut manager, rival) = (build(), build());
    for polls in doing.first().. {
        if doing == Doing::Close {
            manager = build();
        }
        let begins = doing.begin(manager.clone(), &rival, Arc::new(TokioRuntime::new()), 24 * MS);
        let Trial { future, record } = begins.await;
        let is_done = is_done_after(polls, future).await;
        finish(record, &manager).await;
        if is_done || doing == Doing::Close {
            // The dead node is not waited for.
            let _ = manager.close(LIMIT).await;
        }
        until(&format!("no key after {polls} polls of {doing:?}"), is_clean).await;
        if is_done {
            // Nor is a key set later.
            let _ = rival.close(LIMIT).await;
            assert!(is_clean(), "{doing:?} dropped after {polls} polls");
            return polls;
        }
    }
    unreachable!("no future is polled that often")
}

//! Every public future, dropped at every poll, on real nodes.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use quorate::runtime::TokioRuntime;
use quorate_tests::Nodes;
use quorate_tests::wait::until;

use crate::client::{Client, LIMIT, on_tokio, unhurried};
use crate::every_future::{ALL, Doing, Stage, Trial, finish, is_done_after};

const MS: Duration = Duration::from_millis(1);

/// The fifth node is dead. All futures are dropped at once.
#[test]
fn c5_a_future_dropped_at_any_poll_leaves_no_key_on_real_nodes() {
    for client in Client::ALL {
        let nodes = &Nodes::start(5);
        nodes[4].kill();
        let polls = on_tokio(join_all(ALL.map(|doing| drop_at_every_poll(doing, client, nodes))));
        // A busy machine wakes a task once for several reasons.
        let polls: usize = polls.into_iter().sum();
        assert!(polls > 2 * ALL.len(), "the sweep saw only {polls} polls");
        // Wait queues, too: all managers have been closed.
        assert_eq!(nodes.keys_left(), [], "{client:?}");
    }
}

/// Returns how many polls there were.
async fn drop_at_every_poll(doing: Doing, client: Client, nodes: &Nodes) -> usize {
    // What an adopter leaves at the dead node is looked after until the ttl is over: it has none.
    let count = if doing.name == "adopt" { 4 } else { 5 };
    let prefix = format!("{}:", doing.name);
    let build = || {
        let builder = unhurried(client.connect(&nodes.addresses()[..count])).key_prefix(&*prefix);
        builder.safety_margin(4 * MS).renew_interval(4 * MS).build().unwrap()
    };
    let is_clean = || !nodes.keys_left().iter().any(|(_, key)| key.starts_with(&prefix));
    let clock = Arc::new(TokioRuntime::new());
    let mut stage = Stage { manager: build(), rival: build(), clock, hold: 24 * MS };
    for polls in doing.polls() {
        if doing.ends_its_manager {
            stage.manager = build();
        }
        let Trial { future, record } = doing.begin(&stage).await;
        let is_done = is_done_after(polls, future).await;
        finish(record, &stage.manager).await;
        if is_done || doing.ends_its_manager {
            // The dead node is not waited for.
            let _ = stage.manager.close(LIMIT).await;
        }
        until(&format!("no key after {polls} polls of {}", doing.name), is_clean).await;
        if is_done {
            // Nor is a key set later.
            let _ = stage.rival.close(LIMIT).await;
            assert!(is_clean(), "{} dropped after {polls} polls", doing.name);
            return polls;
        }
    }
    unreachable!("no future is polled that often")
}

//! A waiter that is notified in vain sends a bounded number of commands (rule W4).
//!
//! The commands of the waiters are compared with the time that passes at the node. So a slow machine
//! makes no difference: it only lets more time pass.

#![expect(clippy::print_stdout, reason = "figures to be reported")]

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_tests::wait::until;
use quorate_tests::{Connection, Nodes, RedisServer};

use crate::client::{LIMIT, all_have, assert_clean, with_both_clients_at_once};

/// For how long the waiters are watched, by the clock of the node.
const WATCHED: Duration = Duration::from_secs(4);

/// The commands that clients have sent to a node while [`WATCHED`] passed there, by name, and for how long.
async fn cost(node: &RedisServer) -> (BTreeMap<String, usize>, Duration) {
    let monitor = node.monitor();
    let mut connection = node.connect();
    let begun = time(&mut connection);
    until("some seconds at the node", || time(&mut connection) >= begun + WATCHED).await;
    let passed = time(&mut connection) - begun;
    let mut commands = BTreeMap::new();
    for mut line in monitor.stop().into_iter().filter(|line| line.client != "lua") {
        let name = line.args.swap_remove(0).to_ascii_uppercase();
        // The harness is at the node, too.
        if !["AUTH", "ECHO", "TIME"].contains(&&*name) {
            *commands.entry(name).or_default() += 1;
        }
    }
    (commands, passed)
}

fn time(connection: &mut Connection) -> Duration {
    let reply = connection.command(&["TIME"]).unwrap().array();
    let [seconds, micros] = [&reply[0], &reply[1]].map(|part| part.text().parse::<u64>().unwrap());
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Ten processes wait for ten locks, and the node can track five keys: each new watch evicts another.
#[test]
fn a_waiter_does_not_spin_when_its_watch_is_evicted() {
    const WAITERS: usize = 10;
    with_both_clients_at_once(|client| async move {
        let builder = RedisServer::builder().config("tracking-table-max-keys", &["5"]);
        let nodes = Nodes::start_with(1, &builder);
        let node = &nodes[0];
        let holder = client.manager(&nodes);
        let mut held = Vec::new();
        let mut waiting = Vec::new();
        for lock in 0..WAITERS {
            held.push(holder.lock(format!("r{lock}")).await.unwrap());
            all_have(&nodes, &format!("r{lock}")).await;
            let manager = client.manager(&nodes);
            let wait =
                tokio::spawn(manager.lock(format!("r{lock}")).timeout(10 * LIMIT).into_future());
            waiting.push((manager, wait));
        }
        // A lock, its entry, the order of the queue, and when its entries expire.
        until("all are queued", || node.keys().len() == 4 * WAITERS).await;
        let (commands, passed) = cost(node).await;
        let told = format!("{client:?}: {commands:?} in {passed:?}");
        let per_second = |most: usize| (passed.as_secs_f64() * most as f64) as usize;
        let sum: usize = commands.into_values().sum();
        assert!(sum > per_second(WAITERS), "the waiters do wait: {told}");
        assert!(sum <= per_second(12 * WAITERS) + 12 * WAITERS, "{told}");
        println!("{told}");
        for guard in held {
            guard.release().await.unwrap();
        }
        for (manager, wait) in waiting {
            wait.await.unwrap().unwrap().release().await.unwrap();
            assert_clean(&manager).await;
        }
        assert_clean(&holder).await;
        assert_eq!(nodes.keys_left(), []);
    });
}

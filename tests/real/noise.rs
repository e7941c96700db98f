//! A waiter that is notified in vain sends a bounded number of commands (rule W4).
//!
//! The commands of the waiters are compared with the time that passes at the node. So a slow machine
//! makes no difference: it only lets more time pass.

#![expect(clippy::print_stdout, reason = "figures to be reported")]

use std::collections::BTreeMap;
use std::time::Duration;

use quorate_tests::wait::until;
use quorate_tests::{Connection, Monitored, Nodes, RedisServer};

use crate::client::{LIMIT, all_have, assert_clean, with_both_clients_at_once};

/// For how long the waiters are watched, by the clock of the node.
const WATCHED: Duration = Duration::from_secs(4);

/// The commands that a wait has cost a node.
struct Cost {
    /// By name, without those of scripts and of other programs.
    commands: BTreeMap<String, usize>,
    /// For how long, by the clock of the node.
    time: Duration,
}

impl Cost {
    /// Watches until [`WATCHED`] has passed. Between two looks at the clock, `disturb` writes to the node
    /// over a connection of its own.
    async fn of(node: &RedisServer, mut disturb: impl FnMut(&mut Connection)) -> Self {
        let monitor = node.monitor();
        let mut connection = node.connect();
        let begun = time(&mut connection);
        until("some seconds at the node", || {
            disturb(&mut connection);
            time(&mut connection) >= begun + WATCHED
        })
        .await;
        let time = time(&mut connection) - begun;
        let ours = connection.command(&["CLIENT", "INFO"]).unwrap().text();
        let ours = ours.split(' ').find_map(|word| word.strip_prefix("addr=")).unwrap().to_owned();
        let is_theirs = |line: &Monitored| {
            let is_harness = line.args[0].eq_ignore_ascii_case("AUTH")
                || line.args[0].eq_ignore_ascii_case("ECHO");
            line.client != "lua" && line.client != ours && !is_harness
        };
        let mut commands = BTreeMap::new();
        for line in monitor.stop().into_iter().filter(is_theirs) {
            *commands.entry(line.args[0].to_ascii_uppercase()).or_default() += 1;
        }
        Self { commands, time }
    }

    fn sum(&self) -> usize {
        self.commands.values().sum()
    }

    /// How many commands a waiter may send that is allowed so many a second.
    fn at(&self, per_second: f64) -> usize {
        (self.time.as_secs_f64() * per_second) as usize
    }
}

fn time(connection: &mut Connection) -> Duration {
    let reply = connection.command(&["TIME"]).unwrap().array();
    let [seconds, micros] = [&reply[0], &reply[1]].map(|part| part.text().parse::<u64>().unwrap());
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Another program writes our key again and again: each write is a push.
#[test]
fn a_waiter_does_not_spin_when_others_write_the_key() {
    with_both_clients_at_once(|client| async move {
        let nodes = Nodes::start(1);
        let node = &nodes[0];
        node.cli(&["SET", "r", "another-programs", "PX", "3600000"]);
        let manager = client.manager(&nodes);
        let waiting = tokio::spawn(manager.lock("r").into_future());
        until("an entry in the queue", || !node.keys().iter().all(|key| key == "r")).await;
        let mut writes = 0;
        let cost = Cost::of(node, |connection| {
            connection.command(&["SET", "r", "another-programs", "PX", "3600000"]).unwrap();
            writes += 1;
        })
        .await;
        let told = format!("{client:?}: {:?} in {:?}, {writes} writes", cost.commands, cost.time);
        assert!(writes > cost.at(40.0), "they were too few to make a waiter spin: {told}");
        assert!(cost.sum() > cost.at(1.0), "the waiter does wait: {told}");
        // Ten looks, and the refreshes.
        assert!(cost.sum() <= cost.at(12.0) + 12, "{told}");
        println!("{told}");
        node.cli(&["DEL", "r"]);
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert_clean(&manager).await;
    });
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
        let cost = Cost::of(node, |_| {}).await;
        let told = format!("{client:?}: {:?} in {:?}", cost.commands, cost.time);
        assert!(cost.sum() > cost.at(WAITERS as f64), "the waiters do wait: {told}");
        assert!(cost.sum() <= cost.at(12.0 * WAITERS as f64) + 12 * WAITERS, "{told}");
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

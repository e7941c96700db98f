//! A program that ends on an error leaves nothing on nodes that answer (rule C8).

use std::thread;

use quorate_tests::wait::times;
use quorate_tests::{Nodes, RedisServer};

use crate::examples::run;

/// Programs that run at once, since each tries for 2 s. Each has two live nodes of its own.
const AT_ONCE: usize = 10;

/// Three of five nodes are dead. The quorum is impossible as soon as the third has refused the
/// connection, and the acquire may still be in flight to the others.
#[test]
fn c8_a_program_that_exits_on_the_error_leaves_nothing() {
    let dead = &Nodes::start(3);
    dead.iter().for_each(RedisServer::kill);
    let runs = times(30, 100) / AT_ONCE;
    thread::scope(|scope| {
        for place in 0..AT_ONCE {
            scope.spawn(move || {
                let live = Nodes::start(2);
                for example in ["redis", "fred"] {
                    for turn in 0..runs {
                        exit_on_the_error(example, &live, dead, place + turn);
                    }
                    let asked = live.iter().map(|node| crate::client::calls(node, "set"));
                    assert!(asked.sum::<u64>() > 0, "{example}: no live node was asked");
                    live.iter().for_each(|node| drop(node.cli(&["CONFIG", "RESETSTAT"])));
                }
            });
        }
    });
}

/// Runs a program that fails.
fn exit_on_the_error(example: &str, live: &Nodes, dead: &Nodes, turn: usize) {
    let mut addresses = live.addresses();
    addresses.extend(dead.addresses());
    // In any order of the nodes: the dead ones may be asked first.
    addresses.rotate_left(turn % 5);
    let output = run(example, &addresses);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{example}, {turn}: {output:?}");
    assert!(error.contains("no quorum: "), "{example}, {turn}: {error}");
    for node in dead {
        assert!(error.contains(&format!("127.0.0.1:{}", node.port())), "{example}: {error}");
    }
    let (queues, locks): (Vec<_>, Vec<_>) =
        live.keys_left().into_iter().partition(|(_, key)| key.contains(":quorate:"));
    assert_eq!(locks, [], "{example}, {turn}: {error}");
    // The error waits for the gate's answer for as long as its round took, which may be too short on a machine
    // with ten programs. The entry of a process that has gone expires by itself.
    for (node, key) in &queues {
        live[*node].cli(&["DEL", key]);
    }
}

//! A program that ends on an error leaves nothing on nodes that answer (rule C8).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use quorate_tests::wait::times;
use quorate_tests::{Nodes, RedisServer};

use crate::examples::run;

/// Programs that run at once, since each tries for 2 s. Each has two live nodes of its own.
const AT_ONCE: usize = 10;

/// Three of five nodes are dead. The quorum is impossible as soon as the third has refused the
/// connection, and the acquire may still be in flight to the others.
#[test]
#[expect(clippy::print_stdout, reason = "a count to be reported")]
fn c8_a_program_that_exits_on_the_error_leaves_nothing() {
    let dead = &Nodes::start(3);
    dead.iter().for_each(RedisServer::kill);
    let runs = times(30, 100) / AT_ONCE;
    let stayed = &AtomicUsize::new(0);
    thread::scope(|scope| {
        for place in 0..AT_ONCE {
            scope.spawn(move || {
                let live = Nodes::start(2);
                for example in ["redis", "fred"] {
                    for turn in 0..runs {
                        let leaves = exit_on_the_error(example, &live, dead, place + turn);
                        stayed.fetch_add(usize::from(!leaves), Ordering::SeqCst);
                    }
                    let asked = live.iter().map(|node| crate::watch::calls(node, "set"));
                    assert!(asked.sum::<u64>() > 0, "{example}: no live node was asked");
                    live.iter().for_each(|node| drop(node.cli(&["CONFIG", "RESETSTAT"])));
                }
            });
        }
    });
    // The error waits for the gate's answer for as long as a round, which may be too short on a machine
    // with ten programs. The entry of a process that has gone expires by itself.
    let (stayed, all) = (stayed.load(Ordering::SeqCst), 2 * AT_ONCE * runs);
    println!("{stayed} of {all} programs did not leave the wait queue");
    assert!(stayed < all / 3, "{stayed} of {all} programs did not leave the wait queue");
}

/// Runs a program that fails. Returns whether it left the wait queue.
fn exit_on_the_error(example: &str, live: &Nodes, dead: &Nodes, turn: usize) -> bool {
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
    for (node, key) in &queues {
        live[*node].cli(&["DEL", key]);
    }
    queues.is_empty()
}

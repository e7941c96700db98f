//! Nodes that are far away, and nodes that cannot now.

use std::time::Duration;

use quorate_tests::proxy::{Mode, Proxy};
use quorate_tests::wait::eventually;
use quorate_tests::{Nodes, RedisServer};

use crate::support::{Dir, keys_left, run, start};

/// Each byte takes this long in each direction: a connect takes four round trips, and so over a node timeout.
const WAY: Duration = Duration::from_millis(75);

/// What does not wait for a holder asks once. No slow machine ends a connect.
/// Rules Q5, O1, X4.
#[test]
fn each_command_reaches_nodes_that_are_far_away() {
    let (nodes, dir) = (Nodes::start(3), &Dir::new());
    let proxies: Vec<Proxy> = nodes.iter().map(|node| Proxy::start(node.port())).collect();
    proxies.iter().for_each(|proxy| proxy.set(Mode::Delay(WAY)));
    let addresses: Vec<String> = proxies.iter().map(Proxy::address).collect();
    let ask =
        |words: &[&str]| run(dir, &addresses, &[&["--connect-timeout", "30s"], words].concat());
    for (words, code) in [
        (&["run", "--no-wait", "one", "--", "true"][..], 0),
        (&["run", "--once-per", "1h", "two", "--", "true"], 0),
        (&["run", "--permits", "2", "--no-wait", "three", "--", "true"], 0),
        (&["run", "--read", "--no-wait", "four", "--", "true"], 0),
        (&["inspect", "free"], 1),
        (&["nodes", "--max-ttl", "1s"], 0),
    ] {
        let done = ask(words);
        // A new server may have problems of its own.
        let is_well = done.code() == Some(code) || words[0] == "nodes" && done.code() == Some(70);
        assert!(is_well && !done.err.contains("did not answer"), "{words:?}: {done:?}");
        assert!(!done.told().contains("no reply"), "{words:?}: {done:?}");
    }
}

/// Two of three nodes run somebody's script, until the command has heard so.
/// Rules C8, X5.
#[test]
fn the_end_of_a_command_releases_again_on_nodes_that_were_busy() {
    let slow = RedisServer::builder().config("lua-time-limit", &["1"]);
    let (nodes, dir) = (Nodes::start_with(3, &slow), &Dir::new());
    let script = "echo started > started; until [ -e go ] || [ ! -e here ]; do sleep 0.01; done";
    let words = ["run", "--ttl", "1h", "lock", "-c", script];
    let mut started = start(dir, &nodes.addresses(), &words);
    dir.wait_for("started");
    eventually("each node has the lock", || nodes.iter().all(|node| node.get("lock").is_some()));
    let is_busy = |node: &RedisServer| {
        node.cli(&["GET", "lock"]).error().is_some_and(|error| error.starts_with("BUSY"))
    };
    std::thread::scope(|scope| {
        for node in &nodes[..2] {
            scope.spawn(|| node.connect().command(&["EVAL", "while true do end", "0"]).map(drop));
        }
        eventually("two nodes are busy", || nodes[..2].iter().all(is_busy));
        dir.write("go", "");
        eventually("the command has heard so", || started.err().contains("unconfirmed"));
        nodes[..2].iter().for_each(|node| drop(node.cli(&["SCRIPT", "KILL"])));
    });
    let done = started.done();
    assert_eq!(done.code(), Some(0), "{done:?}");
    assert_eq!(keys_left(&nodes), [], "{done:?}");
}

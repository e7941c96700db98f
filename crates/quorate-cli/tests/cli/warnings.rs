//! Nodes that fail: one line each, with the reason.

use std::sync::atomic::{AtomicU32, Ordering};

use quorate_tests::proxy::{Mode, Proxy};
use quorate_tests::wait::eventually;
use quorate_tests::{Nodes, RedisServer};

use crate::support::{Dir, delete, hold, keys_left, run};

/// Runs a command, and prints a record of a lock of its own.
fn both(dir: &Dir, addresses: &[String], options: &[&str]) -> Vec<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let record = format!("record-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let words = [&["run", "lock", "--", "true"][..], &["lock", "--ttl", "1h", &record]];
    let done = words.map(|words| run(dir, addresses, &[options, words].concat()));
    done.map(|done| {
        assert_eq!(done.code(), Some(0), "{done:?}");
        done.err
    })
    .to_vec()
}

#[test]
fn a_node_that_fails_is_one_line_with_the_reason() {
    let (nodes, dir) = (&Nodes::start(2), &Dir::new());
    let closed = RedisServer::builder().user("default", "on >pw ~* +@all").start();
    let hung = RedisServer::start();
    hung.pause();
    let refused = format!("redis://{}", quorate_tests::peer::Peer::nowhere());
    let wrong = closed.address().replace("redis://", "redis://:no@");
    for (third, reason) in
        [(wrong, "WRONGPASS"), (refused, "refused"), (hung.address(), "no connection")]
    {
        let addresses = &[nodes.addresses(), vec![third.clone()]].concat();
        let port = third.rsplit(':').next().unwrap();
        for err in both(dir, addresses, &[]) {
            let [line] = err.lines().collect::<Vec<_>>()[..] else { panic!("{reason}: {err}") };
            assert!(line.starts_with("quorate: 127.0.0.1:"), "{line}");
            assert!(line.contains(&format!("{port} does not vote: ")), "{line}");
            assert!(line.contains(reason) && !line.contains("no@"), "{line}");
        }
        both(dir, addresses, &["-q"]).iter().for_each(|err| assert_eq!(err, "", "{reason}"));
    }
    hung.resume();
    both(dir, &[nodes.addresses(), vec![hung.address()]].concat(), &[]).iter().for_each(|err| {
        assert_eq!(err, "", "all vote");
    });
}

/// An address that answers so late that the lock needs no vote of it does not show what it is. With two addresses, both have
/// to answer: see the exit codes.
#[test]
fn q6_one_server_under_two_addresses_is_refused_before_the_command_begins() {
    let (nodes, dir) = (&Nodes::start(2), &Dir::new());
    let (one, other) = (nodes[0].address(), nodes[1].address());
    let alias = one.replace("127.0.0.1", "localhost");
    for place in 0..3 {
        let mut addresses = vec![one.clone(), other.clone()];
        addresses.insert(place, alias.clone());
        let mut refused = [0; 2];
        for number in 0..5 {
            let name = &format!("lock-{place}-{number}");
            let script = format!("echo ran > {name}");
            for (at, words) in
                [&["run", name, "-c", &script][..], &["lock", name]].iter().enumerate()
            {
                let done = run(dir, &addresses, words);
                match done.code() {
                    Some(78) => {
                        refused[at] += 1;
                        assert!(done.out.is_empty() && dir.read(name).is_empty(), "{done:?}");
                    }
                    code => {
                        assert_eq!(code, Some(0), "{done:?}");
                        delete(nodes, name);
                    }
                }
                let _ = std::fs::remove_file(dir.file(name));
            }
        }
        assert!(!refused.contains(&0), "{place}: {refused:?}");
    }
    assert_eq!(keys_left(nodes), []);
}

/// An address that could not be reached at first leads to another node's server.
#[test]
fn q6_one_server_under_two_addresses_that_shows_later_is_one_line() {
    let (nodes, dir) = (&Nodes::start(2), &Dir::new());
    let proxy = Proxy::start(nodes[0].port());
    proxy.set(Mode::Refuse);
    let addresses = &[nodes.addresses(), vec![proxy.address()]].concat();
    let mut started = hold(dir, addresses, "--ttl 3s --kill-after 100ms lock");
    proxy.set(Mode::Pass);
    let line = format!(
        "quorate: 127.0.0.1:{} does not vote: this is the same server as 127.0.0.1:{}\n",
        proxy.port(),
        nodes[0].port(),
    );
    eventually("a warning", || started.err().contains(&line));
    assert_eq!(started.done().err.matches(&line).count(), 1);
}

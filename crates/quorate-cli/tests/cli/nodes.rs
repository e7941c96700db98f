//! `quorate nodes`: the description of each server, its problems and their cures.

use std::io::Write as _;

use quorate_tests::peer::Peer;
use quorate_tests::wait::eventually;
use quorate_tests::{Builder, Nodes, RedisServer};
use serde_json::Value;

use crate::records::assert_documented;
use crate::support::{Dir, ask, run, start};

/// A server that forgets nothing.
fn persistent() -> Builder {
    RedisServer::builder().append_only()
}

#[test]
fn nodes_says_of_each_server_what_is_wrong_and_what_to_do() {
    let dir = &Dir::new();
    let good = persistent().start();
    // One user may not ask what the server is, and one may not even release a lock. Two cannot acquire one.
    let acl = persistent().user("ann", "on >pw ~* +@all -info").start();
    let second = persistent().user("bob", "on >pw ~* +@read +@write +@connection").start();
    let closed = persistent().user("default", "on >pw ~* +@all").start();
    let no_set = persistent().user("cid", "on >pw ~* +@all -set").start();
    let elsewhere = persistent().user("dot", "on >pw ~quorate:* ~elsewhere:* +@all").start();
    let unread = persistent().user("eve", "on >pw ~* +@all -config|get").start();
    let replica = persistent().replica_of(good.port()).start();
    replica.wait_until_in_sync();
    let evicting = persistent().config("maxmemory", &["64mb"]);
    let evicting = evicting.config("maxmemory-policy", &["allkeys-lru"]).start();
    let full = persistent().config("maxmemory", &["100kb"]).start();
    let clustered = persistent().config("cluster-enabled", &["yes"]).start();
    clustered.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let state = || clustered.cli(&["CLUSTER", "INFO"]).text();
    eventually("a cluster of one server", || state().contains("cluster_state:ok"));
    let each_second = persistent().config("appendfsync", &["everysec"]).start();
    let on_rewrite = persistent().config("no-appendfsync-on-rewrite", &["yes"]).start();
    let forgets = RedisServer::start();
    let no_redis = Peer::raw(|mut stream| {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    });
    let has_forgotten = "restarted and kept nothing: others may still hold what it has forgotten; restart no other node for";
    let cannot_lock = "cannot lock below the prefix: jobs::quorate:check: NOPERM";
    let rows = [
        (good.address(), vec![]),
        (acl.address_as("ann", "pw"), vec!["'info'", "allow +info", "no server id"]),
        (
            second.address_as("bob", "pw"),
            vec!["this node runs no scripts", "; allow this to the user"],
        ),
        (
            no_set.address_as("cid", "pw"),
            vec![cannot_lock, "'set'", "; allow this to the user of the address"],
        ),
        (elsewhere.address_as("dot", "pw"), vec![cannot_lock, "key"]),
        (
            unread.address_as("eve", "pw"),
            vec![
                "forgets its locks when it restarts (appendfsync cannot be read: allow +config|get)",
                has_forgotten,
            ],
        ),
        (
            replica.address(),
            vec!["a replica: the node grants no locks; use the address of its primary"],
        ),
        (
            evicting.address(),
            vec!["maxmemory-policy allkeys-lru: the node may evict locks; set noeviction"],
        ),
        (
            full.address(),
            vec!["its memory is full: the node grants no locks; raise maxmemory, or delete keys"],
        ),
        (
            clustered.address(),
            vec!["a server of a Redis Cluster: some names fail, and there is no fencing"],
        ),
        (
            each_second.address(),
            vec![
                "forgets its locks when it restarts (appendfsync everysec); set appendonly yes and \
                 appendfsync always (no-appendfsync-on-rewrite no), or a restart guard",
                has_forgotten,
            ],
        ),
        (
            on_rewrite.address(),
            vec![
                "forgets its locks when it restarts (appendfsync always, no-appendfsync-on-rewrite yes); set",
                has_forgotten,
            ],
        ),
        (
            forgets.address(),
            vec!["forgets its locks when it restarts (appendonly no)", has_forgotten],
        ),
        (no_redis.url(), vec!["is not one of Redis; use the address of a Redis or Valkey server"]),
        (
            format!("redis://{}", Peer::nowhere()),
            vec!["refused", "; check the address, and whether the server runs"],
        ),
        (
            closed.address_as("default", "no"),
            vec!["WRONGPASS", "; check the user and the password"],
        ),
    ];
    let addresses: Vec<String> = rows.iter().map(|(address, _)| address.clone()).collect();
    let said = |words: &[&str]| {
        let done = ask(dir, &addresses, &[&["--prefix", "jobs:", "nodes"], words].concat());
        assert_eq!(done.code(), Some(69), "{done:?}");
        done.out
    };
    let (text, short) = (said(&["-v"]), said(&[]));
    let told: Value = serde_json::from_str(&said(&["--json"])).unwrap();
    // Without being asked for more, a line each, and the nodes without a vote first.
    let words: Vec<&str> = short.lines().map(|line| line[..9].trim_end()).collect();
    let rank = |word: &&str| ["no vote", "problem", "ok"].iter().position(|one| one == word);
    assert!(words.iter().map(rank).is_sorted() && words.contains(&"ok"), "{short}");
    assert!(short.lines().all(|line| line.chars().count() <= 100), "{short}");
    assert_eq!((short.lines().count(), text.lines().count()), (rows.len(), rows.len()));
    for (at, (address, problems)) in rows.iter().enumerate() {
        let line = text.lines().nth(at).unwrap();
        let name = format!("{}: ", told["nodes"][at]["name"].as_str().unwrap());
        let first = short.lines().find(|line| line.contains(&name)).unwrap();
        assert_eq!(problems.is_empty(), first.starts_with("ok "), "{first}");
        let row = &told["nodes"][at];
        let count = row["problems"].as_array().unwrap().len();
        assert_eq!(problems.is_empty(), count == 0, "{row}");
        assert_eq!(problems.is_empty(), line.contains(": ok ("), "{line}");
        assert!(!line.contains("pw@") && line.contains(address.rsplit(['@', '/']).next().unwrap()));
        for problem in problems {
            assert!(line.contains(problem), "{problem}: {line}");
            assert!(row["problems"].to_string().contains(problem), "{problem}: {row}");
        }
        assert_eq!(row["is_clustered"] == true, *address == clustered.address(), "{row}");
        assert!(!line.contains("Redis Cluster") || !line.contains("can do: fencing"), "{line}");
    }
    for node in [&good, &no_set, &elsewhere, &clustered] {
        assert_eq!(node.keys(), [""; 0], "the key of the check is deleted");
    }
}

#[test]
fn the_exit_code_of_nodes_says_whether_a_quorum_can_be_locked() {
    let (nodes, dir) = (&Nodes::start_with(3, &persistent()), &Dir::new());
    let mut addresses = nodes.addresses();
    let code = |addresses: &[String], words: &[&str]| ask(dir, addresses, words).code();
    assert_eq!(code(&addresses, &["nodes"]), Some(0));
    // New nodes are quarantined at the first lock.
    assert_eq!(code(&addresses, &["--guard-max-ttl", "1h", "nodes"]), Some(69));
    for (node, expected) in nodes.iter().zip([70, 69, 69]) {
        node.kill();
        assert_eq!(code(&addresses, &["nodes"]), Some(expected));
    }
    nodes.iter().for_each(RedisServer::restart);
    addresses[1] = addresses[0].replace("127.0.0.1", "localhost");
    let twice = ask(dir, &addresses, &["nodes"]);
    assert!(twice.code() == Some(78) && twice.out.contains("the same server as"), "{twice:?}");
    // Each lock works until one of them restarts.
    assert_eq!(code(&Nodes::start(3).addresses(), &["nodes"]), Some(70));
}

#[test]
fn nodes_waits_for_what_passes_by_itself() {
    let (nodes, dir) = (&Nodes::start_with(3, &persistent()), &Dir::new());
    let addresses = &nodes.addresses();
    nodes[0].kill();
    let mut waits = start(dir, addresses, &["nodes", "--max-ttl", "1s", "--wait", "1h"]);
    let over = ask(dir, addresses, &["nodes", "--max-ttl", "1s", "--wait", "1ms"]);
    let why = "the wait of 1ms has ended, and a problem is left that passes by itself";
    assert_eq!(over.code(), Some(70));
    assert!(over.out.contains("refused") && over.err.contains(why), "{over:?}");
    assert!(waits.is_running());
    nodes[0].restart();
    let done = waits.done();
    assert_eq!((done.code(), &*done.err), (Some(0), ""), "{done:?}");
    assert!(done.out.lines().all(|line| line.starts_with("ok ")), "{done:?}");
    // It begins the quarantine that it waits for, and does not wait for what a person has to do.
    let words = ["--guard-max-ttl", "1s", "nodes", "--wait", "1h"];
    assert_eq!(run(dir, addresses, &words).code(), Some(0));
    nodes[1].cli(&["SET", "quorate:guard:quarantine", "by hand"]);
    let kept_out = run(dir, addresses, &[&words[..], &["--json"]].concat());
    assert_eq!(kept_out.code(), Some(70));
    let told = kept_out.json();
    assert_documented("nodes --json", &told);
    assert_eq!(told["nodes"][1]["quarantine_left_ms"], "forever");
    assert_eq!((&told["nodes"][1]["passes"], &told["can_lock"]), (&false.into(), &true.into()));
    // A node that kept nothing: until the longest ttl has passed. That it will forget again stays.
    let forgets = Nodes::start(1);
    let done = run(dir, &forgets.addresses(), &["nodes", "--max-ttl", "1s", "--wait", "1h"]);
    assert_eq!((done.code(), &*done.err), (Some(70), ""));
    assert!(done.out.contains("forgets its locks") && !done.out.contains("restart no other"));
}

#[test]
fn nodes_has_a_stable_schema() {
    let (nodes, dir) = (&Nodes::start_with(3, &persistent()), &Dir::new());
    let done = ask(dir, &nodes.addresses(), &["nodes", "--json"]);
    assert_eq!((done.code(), &*done.err), (Some(0), ""));
    let told = done.json();
    assert_documented("nodes --json", &told);
    assert_eq!((&told["has_quorum"], &told["can_lock"]), (&true.into(), &true.into()));
    for (at, node) in nodes.iter().enumerate() {
        let row = &told["nodes"][at];
        assert_eq!(row["name"], format!("127.0.0.1:{}", node.port()));
        assert_eq!(row["server_id"], node.run_id());
        let version = row["version"].as_str().unwrap();
        assert!(
            version.contains(&format!("{}.{}", RedisServer::version().0, RedisServer::version().1)),
            "{version}"
        );
        for (field, value) in [
            ("is_reachable", Value::from(true)),
            ("is_replica", false.into()),
            ("max_memory", 0.into()),
            ("maxmemory_policy", "noeviction".into()),
            ("is_clustered", false.into()),
            ("is_append_only", true.into()),
            ("appendfsync", "always".into()),
            ("runs_scripts", true.into()),
            ("quarantine_left_ms", Value::Null),
            ("can_watch", true.into()),
            ("can_queue", true.into()),
            ("can_fence", true.into()),
            ("can_guard", true.into()),
            ("can_read", true.into()),
            ("passes", false.into()),
            ("problems", Value::Array(vec![])),
        ] {
            assert_eq!(row[field], value, "{field}: {row}");
        }
        for field in ["round_trip_us", "uptime_s", "used_memory"] {
            assert!(row[field].is_u64(), "{field}: {row}");
        }
    }
    // A node that cannot be reached has the same fields.
    let lonely = [
        nodes[0].address(),
        format!("redis://{}", Peer::nowhere()),
        format!("redis://{}", Peer::nowhere()),
    ];
    let done = run(dir, &lonely, &["nodes", "--json"]);
    assert_eq!(done.code(), Some(69));
    let told = done.json();
    assert_documented("nodes --json", &told);
    assert_eq!(
        (&told["has_quorum"], &told["nodes"][1]["is_reachable"]),
        (&false.into(), &false.into())
    );
}

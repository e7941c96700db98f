//! `quorate nodes`: what each server is, what is wrong with it, and what to do.

use std::io::Write as _;

use quorate_tests::peer::Peer;
use quorate_tests::{Nodes, RedisServer};
use serde_json::Value;

use crate::records::assert_documented;
use crate::support::{Dir, run};

#[test]
fn nodes_says_of_each_server_what_is_wrong_and_what_to_do() {
    let dir = &Dir::new();
    let good = RedisServer::start();
    // One user may not ask what the server is, and one may not even release a lock.
    let acl = RedisServer::builder().user("ann", "on >pw ~* +@all -info").start();
    let second =
        RedisServer::builder().user("bob", "on >pw ~* +@read +@write +@connection").start();
    let closed = RedisServer::builder().user("default", "on >pw ~* +@all").start();
    let replica = RedisServer::builder().replica_of(good.port()).start();
    replica.wait_until_in_sync();
    let evicting = RedisServer::builder()
        .config("maxmemory", &["64mb"])
        .config("maxmemory-policy", &["allkeys-lru"])
        .start();
    let no_redis = Peer::raw(|mut stream| {
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    });
    let rows = [
        (good.address(), vec![]),
        (acl.address_as("ann", "pw"), vec!["'info'", "allow +info", "no server id"]),
        (
            second.address_as("bob", "pw"),
            vec!["this node runs no scripts", "; allow this to the user"],
        ),
        (
            replica.address(),
            vec!["a replica: the node grants no locks; use the address of its primary"],
        ),
        (
            evicting.address(),
            vec!["maxmemory-policy allkeys-lru: the node may evict locks; set noeviction"],
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
    let (text, json) =
        (run(dir, &addresses, &["nodes"]), run(dir, &addresses, &["nodes", "--json"]));
    let told: Value = serde_json::from_str(&json.out).unwrap();
    for (at, (address, problems)) in rows.iter().enumerate() {
        let line = text.out.lines().nth(at).unwrap();
        let row = &told["nodes"][at];
        let count = row["problems"].as_array().unwrap().len();
        assert_eq!(problems.is_empty(), count == 0, "{row}");
        assert_eq!(problems.is_empty(), line.contains(": ok ("), "{line}");
        assert!(!line.contains("pw@") && line.contains(address.rsplit(['@', '/']).next().unwrap()));
        for problem in problems {
            assert!(line.contains(problem), "{problem}: {line}");
            assert!(row["problems"].to_string().contains(problem), "{problem}: {row}");
        }
    }
}

#[test]
fn nodes_has_a_stable_schema() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let done = run(dir, &nodes.addresses(), &["nodes", "--json"]);
    assert_eq!((done.code(), &*done.err), (Some(0), ""));
    let told: Value = serde_json::from_str(&done.out).unwrap();
    assert_documented("nodes --json", &told);
    assert_eq!(told["has_quorum"], true);
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
            ("is_append_only", false.into()),
            ("runs_scripts", true.into()),
            ("quarantine_left_ms", Value::Null),
            ("can_watch", true.into()),
            ("can_queue", true.into()),
            ("can_fence", true.into()),
            ("can_guard", true.into()),
            ("can_read", true.into()),
            ("problems", Value::Array(vec![])),
        ] {
            assert_eq!(row[field], value, "{field}: {row}");
        }
        assert!(row["round_trip_us"].is_u64(), "{row}");
    }
    // A node that cannot be reached has the same fields.
    let lonely = [
        nodes[0].address(),
        format!("redis://{}", Peer::nowhere()),
        format!("redis://{}", Peer::nowhere()),
    ];
    let done = run(dir, &lonely, &["nodes", "--json"]);
    assert_eq!(done.code(), Some(69));
    let told: Value = serde_json::from_str(&done.out).unwrap();
    assert_documented("nodes --json", &told);
    assert_eq!(
        (&told["has_quorum"], &told["nodes"][1]["is_reachable"]),
        (&false.into(), &false.into())
    );
}

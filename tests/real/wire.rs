//! What a node sees and stores: the canonical protocol, and nothing else.

use std::iter;

use quorate_tests::keys::{EPOCH, QUARANTINE, counter};
use quorate_tests::wait::{LONG_TTL, until};
use quorate_tests::{Monitor, Nodes, RedisServer, Reply};

use crate::client::{
    Client, all_have, assert_clean, close, nothing_is_left, unhurried, warm_up, with_each,
    with_each_client,
};

/// The commands of clients and of scripts, without those of a new connection.
pub(crate) fn commands(monitor: Monitor<'_>) -> Vec<Vec<String>> {
    const OF_A_CONNECTION: [&str; 7] =
        ["CLIENT", "HELLO", "INFO", "SELECT", "AUTH", "PING", "COMMAND"];
    let is_of_a_connection = |args: &Vec<String>| {
        OF_A_CONNECTION.contains(&&*args[0].to_ascii_uppercase())
            || args.get(1).is_some_and(|script| script == "return 1")
    };
    let commands = monitor.stop().into_iter().map(|line| line.args);
    commands.filter(|args| !is_of_a_connection(args)).collect()
}

/// Another library's lock, as every one of them writes it.
#[test]
fn locks_of_other_libraries_exclude_ours_and_the_other_way_round() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        let set = |node: &RedisServer| node.cli(&["SET", "shared", "another", "NX", "PX", "60000"]);
        let manager = client.manager(nodes);
        nodes.iter().for_each(|node| assert_eq!(set(node).text(), "OK"));
        let refused = manager.lock("shared").no_wait().await;
        assert!(refused.as_ref().is_err_and(quorate::LockError::is_held), "{refused:?}");
        // The node that was not waited for must not grant the lost round once it is empty.
        assert_clean(&manager).await;
        nodes.iter().for_each(RedisServer::flushall);
        let manager = client.manager(nodes);
        let guard = manager.lock("shared").no_wait().await.unwrap();
        all_have(nodes, "shared").await;
        nodes.iter().for_each(|node| assert_eq!(set(node), Reply::Nil));
        guard.release().await.unwrap();
        close(&manager, nodes).await;
    });
}

#[test]
fn a_lock_is_set_key_token_nx_px_ttl() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        let manager = client.manager(nodes);
        // The scripts are known from now on, so that each step is one command.
        warm_up(&manager).await;
        nothing_is_left(nodes).await;

        let monitor = nodes[0].monitor();
        let guard = manager.lock("orders:42").await.unwrap();
        all_have(nodes, "orders:42").await;
        let token = nodes[0].get("orders:42").unwrap();
        assert_eq!(token.len(), 40);
        assert!(token.iter().all(u8::is_ascii_hexdigit), "printable");
        assert_eq!(nodes[0].cli(&["TYPE", "orders:42"]).text(), "string");
        let pttl = nodes[0].pttl("orders:42");
        assert!((1_800_000..=3_600_000).contains(&pttl), "{pttl}");
        guard.release().await.unwrap();
        close(&manager, nodes).await;

        let seen = commands(monitor);
        let token = String::from_utf8(token).unwrap();
        let of = |names: [&str; 3]| {
            let of = seen.iter().filter(|command| names.contains(&&*command[0]));
            let [only] = of.collect::<Vec<_>>()[..] else { panic!("{client:?}: {seen:?}") };
            only.iter().map(|word| &**word).collect::<Vec<_>>()
        };
        // A node takes the options in any order, and fred writes them in its own.
        let set = of(["SET"; 3]);
        assert_eq!(set[..3], ["SET", "orders:42", &token], "{client:?}");
        let options = [["NX", "PX", "3600000", "GET"], ["PX", "3600000", "NX", "GET"]];
        assert!(options.iter().any(|options| set[3..] == *options), "{client:?}: {set:?}");
        let delete = of(["DELIFEQ", "DELEX", "EVALSHA"]);
        if RedisServer::compare_and_delete().is_none() {
            assert_eq!(delete[2..], ["1", "orders:42", &token], "its key is declared");
        }
    });
}

/// An acquire, an extension and a release of several resources, or with a token, or with the restart guard.
#[test]
fn a5_several_resources_are_one_script_call_that_declares_every_key() {
    let nodes = &Nodes::start(1);
    with_each_client(|client| async move {
        let builder = || client.builder(nodes).key_prefix("p:");
        let (plain, guarded) =
            (builder().build().unwrap(), builder().restart_guard(LONG_TTL).build().unwrap());
        assert!(guarded.lock("warm").no_wait().await.is_err(), "it begins a quarantine");
        nodes[0].cli(&["DEL", QUARANTINE]);
        let counter = counter("p:a");
        for (request, locks, acquires, releases) in [
            (plain.lock(["a", "b", "c"]), vec!["p:a", "p:b", "p:c"], vec![], vec![]),
            (plain.lock("a").fenced(), vec!["p:a"], vec![&*counter], vec![&*counter]),
            (guarded.lock(["a", "b"]), vec!["p:a", "p:b"], vec![EPOCH, QUARANTINE], vec![]),
        ] {
            warm_up(&plain).await;
            let is_left = |(_, key): &(usize, String)| key.starts_with("p:");
            until("no lock is left", || !nodes.keys_left().iter().any(is_left)).await;
            let monitor = nodes[0].monitor();
            let guard = request.await.unwrap();
            let token = guard.fencing_token();
            guard.extend().await.unwrap();
            guard.release().await.unwrap();
            let seen = commands(monitor);
            let calls = seen.iter().filter(|words| words[0].starts_with("EVAL"));
            let keys = |call: &Vec<String>| call[3..3 + call[2].parse::<usize>().unwrap()].to_vec();
            let mut declared: Vec<_> = calls.map(|call| (&call[1], keys(call))).collect();
            // A holder of several names looks at them after some time, by the script that extends.
            declared.dedup();
            let declared: Vec<_> = declared.into_iter().map(|(_, keys)| keys).collect();
            let expected =
                [[&*locks, &acquires].concat(), locks.clone(), [&*locks, &releases].concat()];
            assert_eq!(declared, expected, "{client:?}: acquire, extend and release: {seen:?}");
            if let Some(token) = token {
                assert_eq!(nodes[0].get(&counter), Some(token.to_string().into_bytes()));
                assert_eq!(nodes[0].pttl(&counter), -1, "it has no end");
            }
        }
        for manager in [plain, guarded] {
            assert_clean(&manager).await;
        }
        nodes[0].flushall();
    });
}

/// The handshake loads the scripts: no operation of a new connection takes a second command.
#[test]
fn the_first_release_takes_one_round_trip() {
    with_each_client(|client| async move {
        let nodes = &Nodes::start(1);
        let manager = client.manager(nodes);
        let guard = manager.lock("r").await.unwrap();
        let monitor = nodes[0].monitor();
        guard.extend().await.unwrap();
        guard.release().await.unwrap();
        manager.lock(["a", "b"]).fenced().await.unwrap().release().await.unwrap();
        let ours = monitor.stop().into_iter().filter(|line| line.client != "lua");
        let ours = ours.map(|line| line.args);
        // A holder looks at its lock after some time: at one name by GET, at several by the script that extends.
        let mut ours = ours.filter(|words| {
            !["AUTH", "CLIENT", "ECHO", "GET"].contains(&&*words[0].to_uppercase())
        });
        let extend = ours.next().unwrap();
        let rest = ours.filter(|words| words.get(1) != extend.get(1));
        let names: Vec<_> =
            iter::once(extend.clone()).chain(rest).map(|words| words[0].to_uppercase()).collect();
        let delete = RedisServer::compare_and_delete().unwrap_or("EVALSHA").to_uppercase();
        assert_eq!(names, ["EVALSHA", &delete, "EVALSHA", "EVALSHA"], "{client:?}");
        assert_clean(&manager).await;
    });
}

/// A unix socket, and a database, which each connection selects, over both protocols. `refusals.rs` has users with passwords.
#[test]
fn databases_and_sockets_work_as_in_the_client() {
    let socket = RedisServer::builder().config("unixsocket", &["socket"]).start();
    let resp2 = RedisServer::builder().config("rename-command", &["HELLO", ""]).start();
    let resp3 = RedisServer::start();
    let path = socket.dir().join("socket").display().to_string();
    with_each(&Client::ALL, async |client| {
        let in_database = [&resp2, &resp3].map(|node| node.address() + "/5");
        let addresses = [&[format!("redis+unix://{path}")], &in_database[..]].concat();
        let backends = client.connect(&addresses);
        assert_eq!(backends[0].name(), path, "{client:?}");
        assert_eq!(backends[1].name(), format!("127.0.0.1:{}/5", resp2.port()), "{client:?}");
        let manager = unhurried(backends).build().unwrap();
        let guard = manager.lock("r").await.unwrap();
        let is_in_5 = |node: &RedisServer| {
            let keyspace = node.cli(&["INFO", "keyspace"]).text();
            keyspace.contains("db5:keys=1,") && node.get("r").is_none()
        };
        until("all have it", || socket.get("r").is_some() && is_in_5(&resp2) && is_in_5(&resp3))
            .await;
        guard.release().await.unwrap();
        assert_clean(&manager).await;
    });
}

/// An operator sees in `CLIENT LIST` whose connections they are.
#[test]
fn connections_have_a_name() {
    with_each(&Client::ALL, async |client| {
        let (node, names) = (RedisServer::start(), ["quorate", "quorate:watches"]);
        let (one, other) = (client.manager_at(&node.address()), client.manager_at(&node.address()));
        let held = one.lock("r").await.unwrap();
        let waits = tokio::spawn(other.lock("r").into_future());
        let list = || node.cli(&["CLIENT", "LIST"]).text();
        let has = |name: &&str| list().contains(&format!(" name={name} "));
        until("the names", || names.iter().all(has)).await;
        held.release().await.unwrap();
        waits.await.unwrap().unwrap().release().await.unwrap();
    });
}

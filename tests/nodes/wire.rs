//! What a node sees and stores: the canonical protocol, and nothing else.

use std::time::Duration;

use quorate_tests::wait::{LONG_TTL, until, within_limit};
use quorate_tests::{Nodes, RedisServer};

use crate::client::{Client, LIMIT, nothing_is_left, unhurried, with_each_client};

/// What a node was told, but for what a client says of itself.
pub(crate) fn commands(server: &RedisServer, stop: quorate_tests::Monitor<'_>) -> Vec<Vec<String>> {
    let _ = server;
    let ours = |command: &Vec<String>| {
        let name = command.first().map(|name| name.to_ascii_uppercase());
        let name = name.unwrap_or_default();
        !matches!(name.as_str(), "CLIENT" | "HELLO" | "INFO" | "SELECT" | "AUTH" | "PING")
    };
    stop.stop().into_iter().map(|line| line.args).filter(ours).collect()
}

#[test]
fn a_lock_is_set_key_token_nx_px_ttl() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        let manager = client.builder(nodes).ttl(LONG_TTL).build().unwrap();
        // The scripts are known from now on, so that each step is one command.
        let _ = manager.lock("warm").await.unwrap().release().await.unwrap();
        nothing_is_left(&manager, nodes).await;

        let monitor = nodes[0].monitor();
        let guard = manager.lock("orders:42").await.unwrap();
        assert_eq!(manager.settle(LIMIT).await, 0);
        let token = nodes[0].get("orders:42").unwrap();
        assert_eq!(token.len(), 40);
        assert!(token.iter().all(u8::is_ascii_hexdigit), "printable");
        assert_eq!(nodes[0].cli(&["TYPE", "orders:42"]).text(), "string");
        let pttl = nodes[0].pttl("orders:42");
        assert!((1_800_000..=3_600_000).contains(&pttl), "{pttl}");
        let _ = guard.release().await.unwrap();
        nothing_is_left(&manager, nodes).await;

        let seen = commands(&nodes[0], monitor);
        let token = String::from_utf8(token).unwrap();
        // A node takes the options in any order, and fred writes them in its own.
        let is_set = |command: &Vec<String>| {
            let options = [&["NX", "PX", "3600000"], &["PX", "3600000", "NX"]];
            command[..3] == ["SET", "orders:42", &token]
                && options.iter().any(|options| command[3..] == options[..])
        };
        assert!(seen.iter().any(is_set), "{client:?}: {seen:?}");
        let sets = seen.iter().filter(|command| command[0] == "SET").count();
        assert_eq!(sets, 1, "sent once: {seen:?}");
        let deletes: Vec<_> = seen.iter().filter(|command| command[0] == "EVALSHA").collect();
        assert_eq!(deletes.len(), 1, "{seen:?}");
        assert_eq!(deletes[0][2..], ["1", "orders:42", &token], "its key is declared");
    });
}

#[test]
fn a5_several_resources_are_one_script_call_that_declares_every_key() {
    let nodes = &Nodes::start(1);
    with_each_client(|client| async move {
        let manager = client.builder(nodes).build().unwrap();
        let _ = manager.lock(["x", "y"]).await.unwrap().release().await.unwrap();
        let monitor = nodes[0].monitor();
        let guard = manager.lock(["a", "b", "c"]).await.unwrap();
        guard.extend().await.unwrap();
        let _ = guard.release().await.unwrap();
        let seen = commands(&nodes[0], monitor);
        // The script's own commands are seen as well; they carry no client address of ours.
        let calls: Vec<_> = seen.iter().filter(|command| command[0].starts_with("EVAL")).collect();
        assert_eq!(calls.len(), 4, "acquire, extend (text sent once), release: {calls:?}");
        assert!(calls.iter().all(|call| call[2..6] == ["3", "a", "b", "c"]), "{calls:?}");
        nothing_is_left(&manager, nodes).await;
        nodes[0].cli(&["SCRIPT", "FLUSH"]);
    });
}

/// Another library's lock, as every one of them writes it.
#[test]
fn locks_of_other_libraries_exclude_ours_and_the_other_way_round() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        let manager = client.builder(nodes).build().unwrap();
        for node in nodes.iter() {
            node.cli(&["SET", "shared", "another-libraries-token", "NX", "PX", "60000"]);
        }
        let refused = manager.try_lock("shared").await;
        assert!(matches!(refused, Err(quorate::LockError::Held { .. })), "{refused:?}");
        // The node that was not waited for must not grant the lost round once it is empty.
        assert_eq!(manager.settle(LIMIT).await, 0);
        for node in nodes.iter() {
            node.flushall();
        }
        let guard = manager.try_lock("shared").await.unwrap();
        assert_eq!(manager.settle(LIMIT).await, 0);
        for node in nodes.iter() {
            let reply = node.cli(&["SET", "shared", "another", "NX", "PX", "60000"]);
            assert_eq!(reply, quorate_tests::Reply::Nil);
        }
        let _ = guard.release().await.unwrap();
        nothing_is_left(&manager, nodes).await;
    });
}

/// What the docs of both clients ask of a node's user.
#[test]
fn the_rights_in_the_docs_are_enough() {
    const KEYS: &str = "~orders:* ~quorate:queue:* ~quorate:place:* ~quorate:fence:*";
    const COMMANDS: &str = "+set +get +del +pttl +pexpire +evalsha +eval +psetex +exists \
                            +client|tracking +info +select";
    let named = format!("on >pw {KEYS} {COMMANDS}");
    let nobody = format!("on nopass {KEYS} {COMMANDS} +ping");
    let with_login = RedisServer::builder().user("app", &named).start();
    let without = RedisServer::builder().user("default", &nobody).start();
    let nodes =
        [(&with_login, with_login.address_as("app", "pw") + "/1"), (&without, without.address())];
    let calls = |node: &RedisServer, command: &str| {
        let told = node.cli(&["INFO", "commandstats"]).text();
        let calls = told.lines().find_map(|line| {
            line.strip_prefix("cmdstat_")?.strip_prefix(command)?.strip_prefix(":calls=")
        });
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    crate::client::on_tokio(async {
        for (client, (node, address)) in
            Client::ALL.into_iter().flat_map(|client| nodes.iter().map(move |node| (client, node)))
        {
            let [places, looks] = ["psetex", "exists"].map(|command| calls(node, command));
            let manager = || {
                let nodes = client.connect(std::slice::from_ref(address));
                unhurried(nodes).build().unwrap()
            };
            let (one, other) = (manager(), manager());
            let guard = one.lock(["orders:1", "orders:2"]).await.unwrap();
            guard.extend().await.unwrap();
            assert!(other.inspect("orders:1").await.is_ok());
            let waits = tokio::spawn({
                let other = other.clone();
                async move { other.lock("orders:1").await }
            });
            let in_line = async {
                until("a place in line", || calls(node, "psetex") > places).await;
                // Somebody behind it gives up, and looks who is in front. On a busy machine it takes a
                // while to be in line at all.
                let last = manager();
                let mut wait = Duration::from_millis(50);
                while calls(node, "exists") == looks {
                    assert!(last.lock("orders:1").wait(wait).await.is_err());
                    wait *= 2;
                }
                last.settle(LIMIT).await
            };
            assert_eq!(within_limit("a look at who is in front", in_line).await, 0);
            let _ = guard.release().await.unwrap();
            let _ = waits.await.unwrap().unwrap().release().await.unwrap();
            let fenced = one.lock("orders:3").fenced().await.unwrap();
            let _ = fenced.release().await.unwrap();
            for manager in [one, other] {
                assert_eq!(manager.settle(LIMIT).await, 0);
            }
        }
    });
    // The harness has a user of its own there.
    let may_be =
        |what: &String| what == "ping" || what.starts_with("client") && what != "client|tracking";
    for (node, _) in nodes {
        let denied = node.cli(&["ACL", "LOG"]).array().into_iter();
        let denied: Vec<_> = denied.map(|entry| entry.array()[7].text()).collect();
        assert!(denied.iter().all(may_be), "{denied:?}");
    }
}

/// A database number, a unix socket, a user with a password: as the client has them.
#[test]
fn databases_sockets_and_users_work_as_in_the_client() {
    let socket = RedisServer::builder().unix_socket().start();
    let user = RedisServer::builder().user("app", "on >se:cr@t ~* +@all").start();
    let plain = RedisServer::start();
    let path = socket.socket_path().unwrap().display().to_string();
    crate::client::on_tokio(async {
        for client in Client::ALL {
            let socket_address = match client {
                Client::Redis => format!("redis+unix://{path}"),
                Client::Fred => format!("redis+unix://{path}"),
            };
            let addresses = [
                socket_address,
                format!("redis://app:se%3Acr%40t@127.0.0.1:{}", user.port()),
                format!("redis://127.0.0.1:{}/5", plain.port()),
            ];
            let backends = client.connect(&addresses);
            let names: Vec<_> =
                backends.iter().map(|node| node.name().unwrap().to_owned()).collect();
            assert_eq!(names[0], path, "{client:?}");
            assert_eq!(names[1], format!("127.0.0.1:{}", user.port()));
            assert_eq!(names[2], format!("127.0.0.1:{}/5", plain.port()));
            let manager = unhurried(backends).build().unwrap();
            let guard = manager.lock("r").await.unwrap();
            assert_eq!(manager.settle(LIMIT).await, 0);
            assert!(socket.get("r").is_some(), "{client:?}");
            assert!(user.get("r").is_some(), "{client:?}");
            assert!(plain.get("r").is_none(), "it is in database 5");
            assert_eq!(plain.info("db5").split(',').next(), Some("keys=1"), "{client:?}");
            let _ = guard.release().await.unwrap();
            assert_eq!(manager.settle(LIMIT).await, 0);
        }
    });
}

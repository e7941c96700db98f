//! What is not a node, or does not let a client in: a typed error, in the words of the node, without secrets.

use std::io::{Read as _, Write as _};
use std::net::{Ipv6Addr, TcpListener};
use std::time::Duration;

use futures_util::future::join_all;
use quorate::BackendErrorKind as Kind;
use quorate_tests::RedisServer;
use quorate_tests::peer::{Answer, Peer};
use quorate_tests::wait::{eventually, within_limit};

use crate::client::{
    Client, LIMIT, assert_clean, on_tokio, only_error, unhurried, unreachable, with_each_client,
};

/// In no error, whatever repeats it.
const SECRET: &str = "hunter2";

/// An address, and the error of a lock there.
struct Row {
    address: String,
    /// One of these.
    kinds: Vec<Kind>,
    /// The error contains these words.
    words: Vec<&'static str>,
    /// Whether the client says so before it sends anything of a lock.
    is_not_sent: bool,
    clients: &'static [Client],
}

fn row(address: String, kind: Kind, words: &[&'static str]) -> Row {
    Row {
        address,
        kinds: vec![kind],
        words: words.to_vec(),
        is_not_sent: true,
        clients: &Client::ALL,
    }
}

/// Has each client lock two resources at each address, once and for an hour.
fn check(rows: &[Row]) {
    on_tokio(join_all(rows.iter().flat_map(|row| {
        row.clients.iter().map(move |client| async move {
            let manager = client.manager_at(&row.address);
            let place = format!("{client:?} at {}", row.address);
            let locked = within_limit(&place, manager.lock(["r", "s"]).no_wait()).await;
            let failure = unreachable(locked);
            let error = only_error(&failure);
            let text = error.to_string();
            assert!(row.kinds.contains(&error.kind()), "{place}: {error:?}");
            assert!(row.words.iter().all(|word| text.contains(word)), "{place}: {text}");
            // fred ends the connection after this one.
            let may_be = error.kind() == Kind::Cluster && *client == Client::Fred;
            assert!(error.is_not_sent() == row.is_not_sent || may_be, "{place}: {text}");
            assert!(!format!("{text} {failure:?} {failure}").contains(SECRET), "{place}");
            // A replica may be promoted, and later it is taken for one that stays.
            if error.kind().is_permanent() || error.kind() == Kind::ReadOnly {
                let request = manager.lock(["r", "s"]).timeout(100 * LIMIT);
                let failure = unreachable(within_limit(&place, request).await);
                assert!(failure.is_permanent(), "{place}: {failure}");
            }
        })
    })));
}

/// A node in cluster mode that serves all slots.
fn cluster_of_one() -> RedisServer {
    let node = RedisServer::builder().config("cluster-enabled", &["yes"]).start();
    let slots: Vec<String> = (0..16_384).map(|slot| slot.to_string()).collect();
    let words = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str));
    assert_eq!(node.cli(&words.collect::<Vec<_>>()).error(), None);
    let info = || node.cli(&["CLUSTER", "INFO"]).text();
    eventually("a cluster", || info().contains("cluster_state:ok"));
    node
}

#[test]
fn the_state_of_a_server_is_told() {
    let (cluster, plain) = (cluster_of_one(), RedisServer::start());
    let slotless = RedisServer::builder().config("cluster-enabled", &["yes"]).start();
    let replica = RedisServer::builder().replica_of(plain.port()).start();
    let full = RedisServer::builder().config("maxmemory", &["1"]).start();
    let crowded = RedisServer::builder().config("maxclients", &["1"]).start();
    let _only = crowded.connect();
    // Valkey 9 has as many databases in cluster mode as it is told to, by default one.
    let in_cluster = match RedisServer::version() {
        (9.., _) => "DB index",
        _ => "SELECT is not allowed",
    };
    let mut rows = [
        row(cluster.address(), Kind::CrossSlot, &["CROSSSLOT", "one resource at a time"]),
        row(slotless.address(), Kind::Cluster, &["CLUSTERDOWN"]),
        row(replica.address(), Kind::ReadOnly, &["READONLY"]),
        row(full.address(), Kind::OutOfMemory, &["OOM"]),
        row(plain.address() + "/99", Kind::Database, &["DB index"]),
        row(cluster.address() + "/1", Kind::Database, &[in_cluster]),
        row(crowded.address(), Kind::Connection, &["max"]),
        row("redis+unix:///there/is/none".to_owned(), Kind::Connection, &[]),
    ];
    rows[..4].iter_mut().for_each(|row| row.is_not_sent = false);
    // Redis 8.6 looks at the slots of the keys first.
    if RedisServer::version() >= (8, 6) {
        (rows[1].kinds, rows[1].words) = (vec![Kind::Cluster, Kind::CrossSlot], Vec::new());
    }
    check(&rows);
}

/// A primary and its replica are one server with two votes: what the primary has lost, the next
/// sync deletes on both.
#[test]
fn q4_a_replica_that_accepts_writes_has_no_vote_until_it_is_a_primary() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().config("replica-read-only", &["no"]);
    let replica = replica.replica_of(primary.port()).start();
    check(&[row(replica.address(), Kind::ReadOnly, &["READONLY", "replica-read-only no"])]);
    on_tokio(async {
        let managers = Client::ALL.map(|client| {
            let nowhere = format!("redis://{}", Peer::nowhere());
            let beside = client.builder_of(&[primary.address(), replica.address(), nowhere]);
            (beside.build().unwrap(), client.manager_at(&replica.address()))
        });
        for (beside, alone) in &managers {
            let failure = unreachable(beside.lock("r").no_wait().await);
            assert!(failure.granted() < 2, "{failure}");
            assert_eq!(unreachable(alone.lock("s").no_wait().await).granted(), 0);
        }
        replica.cli(&["REPLICAOF", "NO", "ONE"]);
        for (beside, alone) in managers {
            // A connection from before ends within a second.
            alone.lock("s").await.unwrap().release().await.unwrap();
            beside.lock("r").await.unwrap().release().await.unwrap();
        }
    });
}

#[test]
fn a_port_for_tls_hangs_up() {
    let tls = RedisServer::builder().tls().start();
    let address = tls.tls_address().replace("rediss://localhost", "redis://127.0.0.1");
    check(&[row(address, Kind::Connection, &["maxclients"])]);
}

/// `localhost` is two addresses where there is IPv6. At the first one something listens that never
/// replies.
#[test]
fn each_address_of_a_name_is_tried() {
    let server = RedisServer::start();
    let Ok(_silent) = TcpListener::bind((Ipv6Addr::LOCALHOST, server.port())) else { return };
    on_tokio(join_all(Client::ALL.map(async |client| {
        let manager = client.manager_at(&format!("redis://localhost:{}", server.port()));
        let request = manager.lock(format!("{client:?}")).timeout(LIMIT);
        let guard = within_limit("a lock", request).await.unwrap();
        guard.release().await.unwrap();
        assert_clean(&manager).await;
    })));
}

#[test]
fn a_login_that_is_refused_is_told_without_its_password() {
    let closed = RedisServer::builder().user("default", "on >right ~* +@all").start();
    let resp2 = RedisServer::builder().config("rename-command", &["HELLO", ""]);
    let resp2 = resp2.user("default", "on >right ~* +@all").start();
    let narrow = "on >hunter2 ~allowed:* +@all -select";
    let narrow = RedisServer::builder().user("app", narrow).start();
    let at = |node: &RedisServer, login: &str| format!("redis://{login}127.0.0.1:{}", node.port());
    check(&[
        row(at(&closed, ":hunter2@"), Kind::Auth, &[]),
        row(at(&closed, "nobody:hunter2@"), Kind::Auth, &[]),
        row(at(&closed, ""), Kind::Auth, &[]),
        row(at(&resp2, ":hunter2@"), Kind::Auth, &[]),
        row(narrow.address_as("app", SECRET) + "/3", Kind::Permission, &[]),
    ]);
    let unsent = row(narrow.address_as("app", SECRET), Kind::Permission, &[]);
    check(&[Row { is_not_sent: false, ..unsent }]);
}

/// Sends `first` to each client, reads once if `reads`, replies `second` and what it has read, and hangs up.
fn peer(first: &'static [u8], reads: bool, second: &'static [u8]) -> Peer {
    Peer::raw(move |mut stream| {
        stream.write_all(first)?;
        let mut heard = [0; 512];
        let length = if reads { stream.read(&mut heard)? } else { 0 };
        stream.write_all(second)?;
        // Some servers repeat what they did not understand.
        if second.starts_with(b"HTTP") { stream.write_all(&heard[..length]) } else { Ok(()) }
    })
}

/// Each client has words of its own.
#[test]
fn what_ended_a_connection_is_named() {
    const HANGS_UP: &[&str] = &["closed the connection before it replied", "maxclients"];
    const NO_REDIS: &[&str] = &["the reply is no"];
    let denied = b"-DENIED Redis is running in protected mode because it is enabled\r\n";
    let http = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    let cases = [
        (peer(denied, false, b""), Kind::Other, &["protected mode"][..]),
        (peer(b"", true, denied), Kind::Other, &["protected mode"]),
        (peer(b"", false, b""), Kind::Connection, HANGS_UP),
        (peer(b"", true, b""), Kind::Connection, HANGS_UP),
        (peer(b"", true, http), Kind::Protocol, NO_REDIS),
        (peer(b"\x00\xff\x07 what is this \x01\r\n\r\n", true, b""), Kind::Protocol, NO_REDIS),
        (peer(b"SSH-2.0-OpenSSH_9.2\r\n", true, b""), Kind::Protocol, NO_REDIS),
        // An alert of TLS.
        (peer(b"", true, b"\x15\x03\x03\x00\x02\x02\x46"), Kind::Protocol, NO_REDIS),
    ];
    let mut rows = Vec::new();
    for (peer, kind, words) in &cases {
        for login in ["", "user:hunter2@"] {
            rows.push(row(peer.url_as(login), *kind, words));
        }
        rows.push(row(peer.url_as("") + "/2", *kind, words));
    }
    // The reply of a server that turns a client away may get lost.
    rows.iter_mut().for_each(|row| row.kinds.push(Kind::Connection));
    check(&rows);
}

#[test]
fn a_refused_handshake_is_told_in_the_words_of_the_node() {
    let saying = |bytes| {
        Peer::with_handshake(move |command| match command.name() {
            "HELLO" | "AUTH" => Answer::Say(bytes),
            _ => Answer::Usual,
        })
    };
    let cases = [
        (saying(b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"), Kind::Auth),
        (saying(b"-LOADING Redis is loading the dataset\r\n"), Kind::Loading),
        (saying(b"-DENIED Redis is running in protected mode\r\n"), Kind::Other),
    ];
    check(&cases.each_ref().map(|(peer, kind)| row(peer.url_as(":hunter2@"), *kind, &[])));
    // A renamed command repeats what follows it. redis-rs takes the failure of `AUTH` for that of the login.
    let renamed = saying(b"-ERR unknown command 'AUTH', with args beginning with: 'hunter2' \r\n");
    for (clients, kind) in [(&[Client::Fred][..], Kind::Script), (&[Client::Redis], Kind::Auth)] {
        check(&[Row { clients, ..row(renamed.url_as(":hunter2@"), kind, &[]) }]);
    }
}

/// A cluster of one node takes locks of one key. The number has a key of its own in another slot.
#[test]
fn a_cluster_of_one_locks_one_resource_without_a_fencing_token() {
    let node = &cluster_of_one();
    with_each_client(|client| async move {
        // A release that failed is sent again after a node timeout.
        let builder = unhurried([client.connect_one(&node.address())]);
        let manager = builder.node_timeout(Duration::from_secs(1)).build().unwrap();
        crate::client::warm_up(&manager).await;
        for request in [manager.lock("r").fenced(), manager.lock(["r", "s"])] {
            let failure = unreachable(request.no_wait().await);
            let error = only_error(&failure);
            assert_eq!(error.kind(), Kind::CrossSlot, "{client:?}: {error}");
            assert!(error.to_string().contains("without a fencing token"), "{client:?}: {error}");
        }
        manager.lock("r").await.unwrap().release().await.unwrap();
        let report = within_limit("the end of close", manager.close(100 * LIMIT)).await.to_string();
        assert!(report.contains("failed: CROSSSLOT"), "{client:?}: {report}");
        assert_eq!(node.keys(), [""; 0], "{client:?}");
    });
}

/// fred sends the login as an inline command, which has quotes and ends with the line.
#[test]
fn users_and_passwords_of_any_characters_log_in() {
    let resp3 = RedisServer::builder().user("default", "on nopass ~* +@all");
    let resp2 = resp3.clone().config("rename-command", &["HELLO", ""]).start();
    let resp3 = resp3.start();
    on_tokio(async {
        for (password, encoded) in [
            ("p\u{e4}ssw\u{f6}rd\u{1f511}", "p%C3%A4ssw%C3%B6rd%F0%9F%94%91"),
            ("p\u{e4}ssw\u{f6}rd\u{1f511}", "p\u{e4}ssw\u{f6}rd\u{1f511}"),
            ("a\u{a0}b\u{2003}c\u{85}d", "a%C2%A0b%E2%80%83c%C2%85d"),
            ("pa/ss:cr@t", "pa%2Fss%3Acr%40t"),
            ("a b", "a%20b"),
            ("\"a\\x62\"", "%22a%5Cx62%22"),
            ("it's", "it's"),
            ("a\r\nFLUSHALL", "a%0D%0AFLUSHALL"),
        ] {
            let nodes = [&resp3, &resp2].into_iter();
            for (node, user) in nodes.flat_map(|node| [(node, "default"), (node, "j\u{f6}rg")]) {
                let rules = ["~*", "+@all", "on", "resetpass", &format!(">{password}")];
                let words = [&["ACL", "SETUSER", user][..], &rules].concat();
                assert_eq!(node.cli(&words).text(), "OK");
                let login = if user == "default" { "" } else { user };
                let address = format!("redis://{login}:{encoded}@127.0.0.1:{}/3", node.port());
                for client in Client::ALL {
                    let manager = client.manager_at(&address);
                    let guard = within_limit("a lock", manager.lock("r").no_wait()).await;
                    let guard =
                        guard.unwrap_or_else(|error| panic!("{client:?}, {address}: {error}"));
                    guard.release().await.unwrap();
                    assert_clean(&manager).await;
                }
            }
        }
    });
}

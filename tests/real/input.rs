//! What is not a node, or not to be locked: a typed error each, no panic, no hang.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use quorate::error::{Answer, QuorumFailure};
use quorate::{BackendErrorKind, LockManager, Resource};
use quorate_tests::wait::within_limit;
use quorate_tests::{Nodes, RedisServer};

use crate::client::{
    Client, assert_clean, close, on_tokio, unhurried, unreachable, with_each_client,
};

/// What the nodes answer to a lock that cannot be acquired at these addresses.
async fn no_quorum(client: Client, addresses: &[String]) -> QuorumFailure {
    no_quorum_of(&unhurried(client.connect(addresses)).build().unwrap()).await
}

async fn no_quorum_of(manager: &LockManager) -> QuorumFailure {
    unreachable(within_limit("an outcome", manager.lock("r").no_wait()).await)
}

fn kind(failure: &QuorumFailure) -> Option<BackendErrorKind> {
    failure.nodes().iter().find_map(|node| match &node.answer {
        Answer::Failed(error) => Some(error.kind()),
        _ => None,
    })
}

#[test]
fn a_wrong_password_is_told_without_the_password() {
    let server = RedisServer::builder().password("right").start();
    on_tokio(async {
        for client in Client::ALL {
            for login in [":wr0ng-secret@", "nobody:wr0ng-secret@", ""] {
                let address = format!("redis://{login}127.0.0.1:{}", server.port());
                let failure = no_quorum(client, &[address]).await;
                assert_eq!(kind(&failure), Some(BackendErrorKind::Auth), "{client:?}: {failure:?}");
                let printed = format!("{failure} {failure:?}");
                assert!(!printed.contains("wr0ng"), "{client:?}: {printed}");
            }
        }
    });
}

#[test]
fn a_wrong_password_ends_the_wait_at_once() {
    let server = RedisServer::builder().password("right").start();
    on_tokio(async {
        for client in Client::ALL {
            let backends = client.connect(&[server.address_as("default", "wrong")]);
            let manager = unhurried(backends).build().unwrap();
            let request = manager.lock("r").timeout(Duration::from_secs(3600));
            let failure = unreachable(within_limit("the end of the wait", request).await);
            assert!(failure.is_permanent(), "{client:?}: {failure}");
        }
    });
}

#[test]
fn a_user_who_may_not_is_told() {
    let server = RedisServer::builder().user("app", "on >pw ~allowed:* +@all").start();
    on_tokio(async {
        for client in Client::ALL {
            let failure = no_quorum(client, &[server.address_as("app", "pw")]).await;
            assert_eq!(kind(&failure), Some(BackendErrorKind::Permission), "{client:?}: {failure}");
        }
    });
}

/// Something that answers every connection with these bytes.
fn impostor(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut stream = stream;
                let mut heard = [0; 512];
                while let Ok(1..) = stream.read(&mut heard) {
                    if stream.write_all(answer).is_err() {
                        break;
                    }
                }
            });
        }
    });
    format!("redis://127.0.0.1:{port}")
}

#[test]
fn a_node_that_is_not_redis_is_told() {
    on_tokio(async {
        for client in Client::ALL {
            let http = impostor(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
            let garbage = impostor(b"\x00\xff\x07 what is this \x01\r\n\r\n");
            for address in [http, garbage] {
                let failure = no_quorum(client, &[address]).await;
                let seen = kind(&failure);
                assert_eq!(seen, Some(BackendErrorKind::Protocol), "{client:?}: {failure}");
            }
        }
    });
}

#[test]
fn a_node_that_accepts_and_says_nothing_is_silent_after_the_node_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("redis://{}", listener.local_addr().unwrap());
    on_tokio(async {
        for client in Client::ALL {
            let builder = unhurried(client.connect(std::slice::from_ref(&address)));
            let manager = builder.node_timeout(Duration::from_millis(50)).build().unwrap();
            let failure = no_quorum_of(&manager).await;
            let [node] = failure.nodes() else { panic!("{client:?}: {failure}") };
            assert!(matches!(node.answer, Answer::NoReply { is_over: true }), "{client:?}: {node}");
        }
    });
}

/// `SET NX` of one key cannot distinguish a list from a lock; the script for several keys can.
#[test]
fn a_key_that_holds_a_list_is_never_granted_and_stays() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        for node in nodes.iter() {
            node.lpush("list", "x");
        }
        let manager = client.builder(nodes).build().unwrap();
        let one = manager.lock("list").no_wait().await;
        assert!(one.is_err_and(|error| error.is_held()), "{client:?}");
        let failure = unreachable(manager.lock(["list", "other"]).await);
        assert_eq!(kind(&failure), Some(BackendErrorKind::WrongType), "{client:?}: {failure}");
        assert!(failure.to_string().contains("WRONGTYPE"), "{client:?}: {failure}");
        // A node that had not answered by then may still be asked.
        assert_clean(&manager).await;
        for node in nodes.iter() {
            assert_eq!(node.keys(), ["list"], "{client:?}");
            node.flushall();
        }
    });
}

#[test]
fn names_of_a_mebibyte_and_of_any_bytes_are_locked() {
    let nodes = &Nodes::start(3);
    with_each_client(|client| async move {
        let manager = client.builder(nodes).build().unwrap();
        for name in [vec![b'x'; Resource::MAX_LEN], vec![0, 0xff, b'\r', b'\n', b'{', b'}']] {
            let guard = manager.lock(&name).await.unwrap();
            assert!(manager.lock(&name).no_wait().await.is_err());
            guard.release().await.unwrap();
        }
        close(&manager, nodes).await;
    });
}

#[test]
fn a_bad_address_is_told_without_its_password() {
    for bad in ["", "not an address", "http://127.0.0.1", "redis://:s3cret@127.0.0.1:notaport"] {
        let redis = quorate::redis::connect([bad]).unwrap_err();
        let fred = quorate::fred::connect([bad]).unwrap_err();
        for printed in [format!("{redis} {redis:?}"), format!("{fred} {fred:?}")] {
            assert!(!printed.contains("s3cret"), "{printed}");
        }
    }
}

#[test]
fn an_address_that_both_clients_refuse_is_refused_by_both_in_the_same_words() {
    for bad in [
        "127.0.0.1:6379",
        "http://127.0.0.1",
        " redis://127.0.0.1",
        "redis://127.0.0.1 ",
        "redis://127.0.\n0.1",
        "redis-cluster://127.0.0.1:6379",
        "rediss-sentinel://127.0.0.1:26379",
    ] {
        let redis = quorate::redis::connect([bad]).unwrap_err().to_string();
        let fred = quorate::fred::connect([bad]).unwrap_err().to_string();
        assert_eq!(redis, fred, "{bad:?}");
    }
}

/// The table of the documentation of `quorate`.
#[test]
fn the_clients_take_the_same_addresses_but_for_the_differences_that_are_told() {
    for (address, redis, fred) in [
        ("redis://ann:pass@a.example:7000/255", true, true),
        ("VALKEY://:pass@[::1]", true, true),
        ("redis://a.example/256", true, false),
        ("redis://a.example/?protocol=resp3", true, false),
        ("redis://0.0.0.0", false, true),
        ("redis://[::]", false, true),
        ("redis://a.example?db=3", false, false),
        ("unix:///run/redis.sock", true, true),
        ("unix:///run/redis.sock?user=ann&pass=pass&db=3", true, false),
        ("unix://ann:pass@/run/redis.sock", false, true),
        // redis-rs would ignore the login, and both the host.
        ("unix://ann:pass@localhost/run/redis.sock", false, false),
        ("unix://run/redis.sock", false, false),
    ] {
        assert_eq!(quorate::redis::connect([address]).is_ok(), redis, "redis: {address}");
        assert_eq!(quorate::fred::connect([address]).is_ok(), fred, "fred: {address}");
    }
}

//! Readers and writers on real nodes: with both clients, over a pool, and beside other Redlock libraries.

use std::time::Duration;

use quorate::LockBackend as _;
use quorate::backend::{AcquireOptions, CallReply, KeyState, Mode, Operation, Ttl, Vote};
use quorate_tests::wait::{LONG_TTL, until_it_says};
use quorate_tests::{Nodes, RedisServer, Reply};

use crate::calls::{acquire, asked, claim, extend, key, release};
use crate::client::{Client, close, on_tokio, unreachable, with_each};
use crate::working::share;

/// The script with which 0.1 acquires several names.
const ACQUIRE_0_1: &str = "for i = 1, #KEYS do
  local held = redis.call('GET', KEYS[i])
  if held and held ~= ARGV[1] then return 0 end
end
for i = 1, #KEYS do redis.call('SET', KEYS[i], ARGV[1], 'NX', 'PX', ARGV[2]) end
return 1";

/// Readers of several processes are together, and no writer is beside one.
#[test]
fn rw5_readers_and_writers_of_processes_never_meet() {
    share("readers");
}

/// Also where the refusal is an error reply: a process that is refused at once has to know where the wait queue is.
#[test]
fn rw1_a_refusal_by_readers_names_the_server() {
    let nodes = &Nodes::start(1);
    with_each(&Client::ALL, async |client| {
        let node = client.connect_one(&nodes[0].address());
        let (reader, writer) = (claim("r").with_mode(Mode::Shared), claim("r"));
        let options = AcquireOptions::default();
        let granted = node.acquire(&reader, options).await.unwrap();
        let refused = node.acquire(&writer, options).await.unwrap();
        assert_eq!((granted.vote, refused.vote), (Vote::Granted, Vote::Refused), "{client:?}");
        let id = Some(nodes[0].info("run_id"));
        assert_eq!(granted.server.as_deref(), id.as_deref(), "{client:?}");
        assert_eq!(refused.server.as_deref(), id.as_deref(), "{client:?}");
        release(&*node, &reader).await.unwrap();
    });
}

/// Readers that died take no memory: the next script for the key drops them, whichever reader it is of.
#[test]
fn rw7_readers_that_died_are_gone_from_the_key() {
    let node = RedisServer::start();
    on_tokio(async {
        let backend = Client::Redis.connect_one(&node.address());
        let reader = |ttl: Duration| {
            let claim = claim("r").with_mode(Mode::Shared);
            claim.with_ttl(Ttl::try_from(ttl).unwrap())
        };
        let (first, last) = (reader(LONG_TTL), reader(2 * LONG_TTL));
        assert_eq!(acquire(&backend, &first).await.unwrap(), Vote::Granted);
        for turn in 0..4 {
            for _ in 0..5 {
                let died = reader(Duration::from_millis(10));
                assert_eq!(acquire(&backend, &died).await.unwrap(), Vote::Granted);
            }
            let seen = async || match asked(&backend, Operation::Inspect { key: key("r") }).await {
                Ok(CallReply::Sighted(KeyState::Read { readers })) => readers.len(),
                other => panic!("{other:?}"),
            };
            let alive = 1 + usize::from(turn > 1);
            until_it_says("the end of their ttl", async || seen().await == alive).await;
            let voted = match turn {
                0 => extend(&backend, &first).await,
                1 => acquire(&backend, &last).await,
                2 => extend(&backend, &last).await,
                _ => release(&backend, &first).await,
            };
            assert_eq!(voted.unwrap(), Vote::Granted);
            let left = [1, 2, 2, 1][turn];
            assert_eq!(node.cli(&["ZCARD", "r"]), Reply::Integer(left), "{turn}");
        }
    });
}

#[test]
fn rw8_an_ordered_set_of_another_program_is_left_alone() {
    let nodes = &Nodes::start(3);
    with_each(&Client::WITH_POOL, async |client| {
        for has_ttl in [false, true] {
            // A rate limiter: the time is the score, in seconds or in milliseconds.
            for node in nodes.iter() {
                node.cli(&["ZADD", "r", "5", "request-1", "99999999999999", "request-2"]);
                if has_ttl {
                    node.cli(&["PEXPIRE", "r", "60000"]);
                }
            }
            let manager = client.manager(nodes);
            for names in [&["r"][..], &["q", "r"]] {
                let failure = unreachable(manager.read(names.to_vec()).no_wait().await);
                let text = failure.to_string();
                assert!(text.contains("is not a lock of quorate"), "{client:?}: {text}");
                assert!(!text.contains("script"), "{client:?}: {text}");
            }
            let seen = manager.inspect("r").await.unwrap();
            assert!(seen.readers().is_empty(), "{client:?}: {seen}");
            for taken in [manager.revoke("r").await.unwrap(), manager.delete("r").await.unwrap()] {
                let text = format!("{client:?}: {taken}");
                assert!(
                    !taken.is_effective() && text.contains("is not a lock of quorate"),
                    "{text}"
                );
            }
            assert!(nodes.iter().all(|node| (node.pttl("r") > 30_000) == has_ttl));
            assert!(nodes.iter().all(|node| node.cli(&["ZCARD", "r"]) == Reply::Integer(2)));
            nodes.iter().for_each(|node| drop(node.cli(&["DEL", "r"])));
            close(&manager, nodes).await;
        }
    });
}

/// A plain lock of 0.1 is refused. Its scripts fail, so processes are upgraded before the first `read`.
#[test]
fn rw9_requests_of_0_1_for_several_names_fail_while_readers_hold() {
    let nodes = &Nodes::start(1);
    with_each(&Client::WITH_POOL, async |client| {
        let manager = client.manager(nodes);
        let reading = manager.read("r").await.unwrap();
        match nodes[0].cli(&["EVAL", ACQUIRE_0_1, "2", "q", "r", "theirs", "1000"]) {
            Reply::Error(text) => assert!(text.starts_with("WRONGTYPE"), "{client:?}: {text}"),
            other => panic!("{client:?}: {other:?}"),
        }
        reading.release().await.unwrap();
        close(&manager, nodes).await;
    });
}

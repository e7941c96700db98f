//! What `LockBackend` promises, on a real server.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use quorate_core::backend::{AcquireOptions, Entry, ExtendOptions, LockBackend, ReleaseOptions};
use quorate_core::runtime::TokioRuntime;
use quorate_core::{
    BackendErrorKind, Claim, FenceHint, FencingToken, Key, Resource, RestartGuard, Token, Ttl, Vote,
};
use quorate_protocol::{
    Command, Connection as _, Connections, Dial as _, Limits, RedisNode, Value,
};

use tokio::time::timeout;

use crate::server::Server;
use crate::tcp::Tcp;

const LIMIT: Duration = Duration::from_secs(30);

const TTL: Duration = Duration::from_secs(60);

type Node = RedisNode<Connections<Tcp>>;

fn start() -> (Server, Node) {
    let server = Server::start();
    let node = node_at(&server);
    (server, node)
}

fn node_at(server: &Server) -> Node {
    let mut limits = Limits::default();
    limits.connect = LIMIT;
    RedisNode::new(Tcp(server.address.clone()), TokioRuntime::new(), limits)
}

/// The same, and releases need a script.
async fn start_without_compare_and_delete() -> (Server, Node) {
    let (server, node) = start();
    // An error where there is no such command.
    raw(&server, &[&["ACL", "SETUSER", "default", "-delifeq"]]).await;
    raw(&server, &[&["ACL", "SETUSER", "default", "-delex"]]).await;
    (server, node)
}

/// Sends commands on a connection of its own.
async fn raw(server: &Server, commands: &[&[&str]]) -> Vec<Value> {
    let connection = Tcp(server.address.clone()).connect(drop).await.unwrap();
    let commands = commands.iter().map(|parts| {
        parts[1..].iter().fold(Command::new(parts[0], 0), |command, part| command.arg(part))
    });
    connection.send(commands.collect()).await.into_iter().map(Result::unwrap).collect()
}

fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

fn claim<const N: usize>(names: [&str; N]) -> Claim {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let token = Token::draw(|bytes| {
        bytes.fill(NEXT.fetch_add(1, Ordering::Relaxed));
        Ok(())
    });
    Claim::new(names.map(key), token.unwrap(), Ttl::try_from(TTL).unwrap())
}

async fn acquire(node: &dyn LockBackend, claim: &Claim) -> Vote {
    node.acquire(claim, AcquireOptions::default()).await.unwrap().vote
}

async fn extend(node: &dyn LockBackend, claim: &Claim) -> Vote {
    node.extend(claim, ExtendOptions::default()).await.unwrap().vote
}

async fn release(node: &dyn LockBackend, claim: &Claim) -> Vote {
    node.release(claim, ReleaseOptions::default()).await.unwrap().vote
}

#[tokio::test]
async fn a_claim_is_acquired_extended_and_released_by_its_token_only() {
    let (server, node) = start();
    for names in [vec!["k"], vec!["b", "a"]] {
        let make = || match names.as_slice() {
            [one] => claim([*one]),
            _ => claim(["b", "a"]),
        };
        let (ours, other) = (make(), make());
        assert_eq!(extend(&node, &ours).await, Vote::Refused);
        assert_eq!(acquire(&node, &ours).await, Vote::Granted);
        assert_eq!(acquire(&node, &other).await, Vote::Refused);
        assert_eq!(extend(&node, &other).await, Vote::Refused);
        assert_eq!(release(&node, &other).await, Vote::Refused);
        assert_eq!(extend(&node, &ours).await, Vote::Granted);
        let seen = node.inspect(&key(names[0])).await.unwrap().unwrap();
        let left = seen.time_left.unwrap();
        assert!(left <= TTL && left > TTL / 2, "{left:?}");
        // H2: an extension by less does not shorten.
        let short = ours.with_ttl(Ttl::try_from(Duration::from_secs(1)).unwrap());
        assert_eq!(extend(&node, &short).await, Vote::Granted);
        let seen = node.inspect(&key(names[0])).await.unwrap().unwrap();
        assert!(seen.time_left.unwrap() > TTL / 2);
        assert_eq!(release(&node, &ours).await, Vote::Granted);
        assert_eq!(release(&node, &ours).await, Vote::Refused, "C7");
        assert_eq!(node.inspect(&key(names[0])).await.unwrap(), None);
    }
    // All or none.
    let (part, both) = (claim(["a"]), claim(["a", "b"]));
    assert_eq!(acquire(&node, &part).await, Vote::Granted);
    assert_eq!(acquire(&node, &both).await, Vote::Refused);
    assert_eq!(node.inspect(&key("b")).await.unwrap(), None);
    // A repair grants what is ours already.
    assert_eq!(release(&node, &part).await, Vote::Granted);
    assert_eq!(acquire(&node, &both).await, Vote::Granted);
    raw(&server, &[&["DEL", "b"]]).await;
    assert_eq!(extend(&node, &both).await, Vote::Refused);
    assert_eq!(acquire(&node, &both).await, Vote::Granted);
    assert_eq!(extend(&node, &both).await, Vote::Granted);
    // A key of another type is no client's lock, and does not keep the others from being released.
    raw(&server, &[&["DEL", "b"], &["RPUSH", "b", "x"]]).await;
    assert_eq!(release(&node, &both).await, Vote::Refused);
    assert_eq!(node.inspect(&key("a")).await.unwrap(), None);
    assert_eq!(node.inspect(&key("b")).await.unwrap_err().kind(), BackendErrorKind::WrongType);
}

#[tokio::test]
async fn of_many_acquires_exactly_one_is_granted() {
    let (_server, node) = start();
    let claims: Vec<Claim> = (0..100).map(|_| claim(["k"])).collect();
    let votes = join_all(claims.iter().map(|claim| acquire(&node, claim))).await;
    assert_eq!(votes.iter().filter(|vote| **vote == Vote::Granted).count(), 1);
}

#[tokio::test]
async fn each_script_is_loaded_and_loaded_again_once_it_is_lost() {
    let (server, node) = start_without_compare_and_delete().await;
    let (ours, both, entry) = (claim(["k"]), claim(["a", "b"]), Entry::new(*b"e"));
    let mut fenced = AcquireOptions::default();
    fenced.fencing = FenceHint::new(7);
    let locks = [key("k")];
    for number in [9, 99] {
        let number = FencingToken::new(number).unwrap();
        let mut raising = ReleaseOptions::default();
        raising.raise_to = Some(number);
        // A script that sets keys is not sent a second time, but loaded for the next call.
        for is_lost in [true, false] {
            let acquired = node.acquire(&both, AcquireOptions::default()).await;
            let refreshed = node.queue_refresh(&key("k"), &entry, &locks).await;
            if is_lost && let Err(error) = acquired {
                assert!(error.is_not_sent(), "{error}");
                continue;
            }
            assert_eq!(acquired.unwrap().vote, Vote::Granted);
            refreshed.unwrap();
            break;
        }
        node.acquire(&ours, fenced).await.unwrap();
        assert_eq!(extend(&node, &ours).await, Vote::Granted);
        assert_eq!(node.raise(&ours, number).await.unwrap().vote, Vote::Granted);
        assert!(node.inspect(&key("k")).await.unwrap().is_some());
        assert_eq!(node.release(&ours, raising).await.unwrap().vote, Vote::Granted);
        assert_eq!(release(&node, &both).await, Vote::Granted);
        assert!(!node.queue_leave(&key("k"), &entry, None).await.unwrap());
        raw(&server, &[&["SCRIPT", "FLUSH"]]).await;
    }
    let Value::Text(stats) = raw(&server, &[&["INFO", "commandstats"]]).await.remove(0) else {
        panic!("no statistics");
    };
    // One EVAL is the question of the new connection: every other script was found by its SHA-1.
    let stats = String::from_utf8(stats).unwrap();
    let evals = stats.lines().find(|line| line.starts_with("cmdstat_eval:")).unwrap();
    assert!(evals.starts_with("cmdstat_eval:calls=1,"), "{stats}");
}

#[tokio::test]
async fn fencing_numbers_rise_and_only_the_holder_raises_them() {
    let (_server, node) = start();
    let mut options = AcquireOptions::default();
    options.fencing = FenceHint::new(1_000);
    let number = |number| FencingToken::new(number).unwrap();
    let (ours, other) = (claim(["k", "l"]), claim(["k", "l"]));
    let first = node.acquire(&ours, options).await.unwrap().number.unwrap();
    assert_eq!(first, number(1_000));
    let again = node.acquire(&ours, options).await.unwrap();
    assert_eq!((again.vote, again.number), (Vote::Granted, Some(first)), "a resent request");
    assert_eq!(node.acquire(&other, options).await.unwrap().vote, Vote::Refused);
    assert_eq!(node.raise(&other, number(5_000)).await.unwrap().vote, Vote::Refused);
    assert_eq!(node.raise(&ours, number(2_000)).await.unwrap().vote, Vote::Granted);
    assert_eq!(node.raise(&ours, number(1_999)).await.unwrap().vote, Vote::Refused);
    let mut raising = ReleaseOptions::default();
    raising.raise_to = Some(number(3_000));
    assert_eq!(node.release(&ours, raising).await.unwrap().vote, Vote::Granted);
    let next = node.acquire(&other, options).await.unwrap().number.unwrap();
    assert_eq!(next, number(3_001));
    assert_eq!(release(&node, &other).await, Vote::Granted);
    let single = node.acquire(&claim(["l"]), options).await.unwrap().number.unwrap();
    assert_eq!(single, number(3_002));
}

#[tokio::test]
async fn a_guarded_node_is_quarantined_until_its_epoch_is_old_enough() {
    let (server, node) = start();
    let mut options = AcquireOptions::default();
    options.guard = Some(RestartGuard::strict(TTL));
    let ours = claim(["k"]);
    let error = node.acquire(&ours, options).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Quarantined, "{error}");
    assert_eq!(node.inspect(&key("k")).await.unwrap(), None, "nothing was set");
    raw(&server, &[&["DEL", "quorate:guard:quarantine"]]).await;
    let acquired = node.acquire(&ours, options).await.unwrap();
    assert_eq!((acquired.vote, acquired.number), (Vote::Granted, None));
    let server_id = node.server_id().await.unwrap().unwrap();
    assert_eq!(acquired.server.as_deref(), Some(server_id.as_str()));
    options.fencing = FenceHint::new(5);
    assert_eq!(node.acquire(&claim(["k"]), options).await.unwrap().vote, Vote::Refused);
    assert!(node.acquire(&claim(["l"]), options).await.unwrap().number.is_some());
    options.guard = Some(RestartGuard::strict(TTL * 2));
    let error = node.acquire(&claim(["m"]), options).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::MaxTtl);
}

#[tokio::test]
async fn entries_queue_in_order_and_leave_nothing() {
    let (server, node) = start();
    let (lock, other) = (key("k"), key("z"));
    let locks = [lock.clone(), other.clone()];
    let [a, b, c] = ["a", "b", "c"].map(|name| Entry::new(name.as_bytes()));
    let refreshed = node.queue_refresh(&lock, &a, &locks).await.unwrap();
    assert_eq!((refreshed.predecessor, &refreshed.first, refreshed.held), (None, &a, None));
    assert_eq!(refreshed.place, 0);
    let holder = claim(["z"]);
    assert_eq!(acquire(&node, &holder).await, Vote::Granted);
    assert_eq!(acquire(&node, &claim(["k"])).await, Vote::Granted);
    assert!(node.hint(&lock).await.unwrap() && !node.hint(&other).await.unwrap());
    node.queue_refresh(&lock, &b, &locks).await.unwrap();
    let refreshed = node.queue_refresh(&lock, &c, &locks).await.unwrap();
    assert_eq!((refreshed.predecessor, refreshed.held), (Some(b.clone()), Some(1)));
    assert_eq!(refreshed.place, 2);
    // A refresh keeps the place.
    let refreshed = node.queue_refresh(&lock, &a, &locks[..1]).await.unwrap();
    assert_eq!((refreshed.predecessor, refreshed.held), (None, Some(0)));
    // A lock key without a ttl counts as free.
    raw(&server, &[&["SET", "k", "x"]]).await;
    let refreshed = node.queue_refresh(&lock, &b, &locks[..1]).await.unwrap();
    assert_eq!((refreshed.predecessor, refreshed.held), (Some(a.clone()), None));
    // An expired entry is dropped by the next refresh.
    raw(&server, &[&["ZADD", "k:quorate:seen", "1", "b"]]).await;
    let refreshed = node.queue_refresh(&lock, &c, &locks).await.unwrap();
    assert_eq!(refreshed.predecessor, Some(a.clone()));
    assert!(node.queue_leave(&lock, &b, None).await.unwrap(), "others are left");
    assert!(!node.queue_leave(&lock, &c, Some(&a)).await.unwrap());
    let left = raw(&server, &[&["DEL", "k", "z"], &["DBSIZE"]]).await;
    assert_eq!(left[1], Value::Int(0));
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the limit of every wait")]
async fn a_watch_ends_when_the_key_changes_or_the_server_forgets_it() {
    let (server, node) = start();
    let (ours, entry) = (claim(["k"]), Entry::new(*b"e"));
    assert!(!node.watch(&key("k"), None).await.unwrap().is_held());
    for change in [&["DEL", "k"][..], &["PEXPIRE", "k", "1"], &["FLUSHALL"]] {
        acquire(&node, &ours).await;
        let watched = node.watch(&key("k"), None).await.unwrap();
        assert!(watched.is_held());
        raw(&server, &[change]).await;
        timeout(LIMIT, watched.changed()).await.unwrap();
        raw(&server, &[&["DEL", "k"]]).await;
    }
    acquire(&node, &ours).await;
    let watched = node.watch(&key("k"), None).await.unwrap();
    assert_eq!(release(&node, &ours).await, Vote::Granted);
    timeout(LIMIT, watched.changed()).await.unwrap();
    node.queue_refresh(&key("k"), &entry, &[]).await.unwrap();
    let watched = node.watch(&key("k"), Some(&entry)).await.unwrap();
    assert!(watched.is_held());
    node.queue_leave(&key("k"), &entry, None).await.unwrap();
    timeout(LIMIT, watched.changed()).await.unwrap();
    // The end of the server ends the watch.
    let watched = node.watch(&key("k"), None).await.unwrap();
    drop(server);
    timeout(LIMIT, watched.changed()).await.unwrap();
    let error = node.acquire(&ours, AcquireOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Connection);
    assert!(error.is_not_sent() && std::error::Error::source(&error).is_some(), "{error:?}");
}

/// The first call says which permission is missing, and nothing is set.
#[tokio::test]
async fn a_node_that_cannot_release_grants_nothing() {
    let (server, _) = start_without_compare_and_delete().await;
    for (rule, missing) in [
        (&["-@scripting"][..], "eval"),
        (&["-eval", "-evalsha"], "eval"),
        (&["-get"], "GET"),
        (&["-del"], "DEL"),
        (&["-pttl"], "PTTL"),
        (&["-pexpire"], "PEXPIRE"),
    ] {
        let mut command = vec!["ACL", "SETUSER", "default", "+@all", "-delifeq"];
        if raw(&server, &[&command]).await.remove(0) != Value::Text(b"OK".to_vec()) {
            command[4] = "-delex";
        }
        if raw(&server, &[&command]).await.remove(0) != Value::Text(b"OK".to_vec()) {
            command.pop();
        }
        command.extend(rule);
        raw(&server, &[&command]).await;
        let node = node_at(&server);
        let error = node.acquire(&claim(["k"]), AcquireOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Permission);
        assert!(error.is_not_sent() && error.to_string().contains(missing), "{error}");
        assert_eq!(raw(&server, &[&["EXISTS", "k"]]).await, [Value::Int(0)]);
    }
    // EVAL alone is enough.
    raw(&server, &[&["ACL", "SETUSER", "default", "+@all", "-evalsha", "-script"]]).await;
    let (node, ours) = (node_at(&server), claim(["k", "l"]));
    assert_eq!(acquire(&node, &ours).await, Vote::Granted);
    assert_eq!(extend(&node, &ours).await, Vote::Granted);
    assert_eq!(release(&node, &ours).await, Vote::Granted);
}

/// *May not access this key* proves nothing.
#[tokio::test]
async fn a_user_of_some_keys_is_served() {
    let (server, node) = start();
    raw(&server, &[&["ACL", "SETUSER", "default", "resetkeys", "~k*"]]).await;
    let ours = claim(["k"]);
    assert_eq!(acquire(&node, &ours).await, Vote::Granted);
    assert_eq!(extend(&node, &ours).await, Vote::Granted);
    assert_eq!(release(&node, &ours).await, Vote::Granted);
    let error = node.acquire(&claim(["other"]), AcquireOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Permission);
}

/// Each call of several threads is answered, and in the order of its thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_of_several_threads_are_all_answered() {
    let (server, node) = start();
    let task = |number: usize| {
        let node = node.clone();
        tokio::spawn(async move {
            for round in 0..200 {
                let ours = claim([&*format!("k:{number}:{round}")]);
                let both = tokio::join!(acquire(&node, &ours), release(&node, &ours));
                assert_eq!(both, (Vote::Granted, Vote::Granted));
            }
        })
    };
    for done in join_all((0..8).map(task)).await {
        done.unwrap();
    }
    assert_eq!(raw(&server, &[&["DBSIZE"]]).await, [Value::Int(0)]);
}

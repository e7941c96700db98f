//! The operations of a node: what is sent, in which order, and what replies and failures mean.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join;
use futures_util::poll;
use quorate_core::backend::{
    AcquireOptions, Capabilities, Entry, ExtendOptions, LockBackend, ReleaseOptions,
};
use quorate_core::runtime::TokioRuntime;
use quorate_core::{
    BackendErrorKind, Claim, FenceHint, FencingToken, Key, Resource, RestartGuard, Token, Ttl, Vote,
};
use quorate_protocol::{Admission, Batcher, Command, Node, Push, Reply, Transport};
use tokio::time::{sleep, timeout};

use crate::fake::Fake;

/// Virtual.
const TTL: Duration = Duration::from_secs(10);

const TICK: Duration = Duration::from_micros(10);

fn node(fake: &Fake) -> Node<Batcher<Fake>> {
    Node::new(fake.clone(), TokioRuntime::new())
}

fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

fn claim<const N: usize>(names: [&str; N]) -> Claim {
    let token = Token::draw(|bytes| {
        bytes.fill(0xab);
        Ok(())
    });
    let ttl = Ttl::try_from(TTL).unwrap();
    Claim::new(names.map(key), token.unwrap(), ttl)
}

fn asking() -> (AcquireOptions, ExtendOptions, ReleaseOptions) {
    let mut options =
        (AcquireOptions::default(), ExtendOptions::default(), ReleaseOptions::default());
    (options.0.waiters, options.1.waiters, options.2.waiters) = (true, true, true);
    options
}

fn error(text: &str) -> Reply {
    Reply::Error(text.into())
}

fn names(fake: &Fake) -> Vec<String> {
    fake.sent().into_iter().map(|sent| sent.parts[0].clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn one_key_is_acquired_as_every_redlock_library_does() {
    let fake = Fake::new();
    let acquired = node(&fake).acquire(&claim(["k"]), AcquireOptions::default()).await.unwrap();
    assert_eq!(acquired.vote, Vote::Granted);
    let token = "ab".repeat(20);
    assert_eq!(fake.sent()[0].parts, ["SET", "k", &token, "NX", "PX", "10000"]);
}

#[tokio::test(start_paused = true)]
async fn q4_only_a_nil_refuses_and_nothing_follows_it() {
    for (reply, vote) in [
        (Reply::Nil, Some(Vote::Refused)),
        (Reply::Text(b"OK".to_vec()), Some(Vote::Granted)),
        (Reply::Text(b"QUEUED".to_vec()), None),
        (Reply::Int(0), None),
        (error("OOM command not allowed"), None),
        (error("LOADING"), None),
    ] {
        let fake = Fake::with(move |_| reply.clone());
        let acquired = node(&fake).acquire(&claim(["k"]), AcquireOptions::default()).await;
        assert_eq!(acquired.ok().map(|acquired| acquired.vote), vote);
        assert_eq!(fake.sent().len(), 1);
    }
}

/// An acquire that is sent again after NOSCRIPT would come behind its release and leave a ghost key.
#[tokio::test(start_paused = true)]
async fn an_acquire_never_leaves_after_its_release() {
    let fake = Fake::with(|parts| match parts[0].as_str() {
        "EVALSHA" => error("NOSCRIPT No matching script."),
        _ => Reply::Int(1),
    });
    let node = node(&fake);
    let claim = claim(["a", "b"]);
    let mut fenced = AcquireOptions::default();
    fenced.fencing = FenceHint::new(7);
    let mut guarded = AcquireOptions::default();
    guarded.guard = Some(RestartGuard::strict(Duration::from_secs(30)));
    for options in [AcquireOptions::default(), fenced, guarded] {
        let before = fake.sent().len();
        let acquire = node.acquire(&claim, options);
        let release = node.release(&claim, ReleaseOptions::default());
        let (_, released) = join(acquire, release).await;
        assert_eq!(released.unwrap().vote, Vote::Granted);
        // The release is sent twice, since it compares the token first. The acquire is not.
        assert_eq!(names(&fake)[before..], ["EVAL", "EVALSHA", "EVAL"]);
    }
}

/// W3: an entry that is appended behind its LEAVE has no owner.
#[tokio::test(start_paused = true)]
async fn a_refresh_never_leaves_after_its_leave() {
    let fake = Fake::with(|parts| match parts[0].as_str() {
        "EVALSHA" => error("NOSCRIPT No matching script."),
        _ => Reply::Int(0),
    });
    let (node, key, entry) = (node(&fake), claim(["k"]).keys()[0].clone(), Entry::new(*b"me"));
    let refresh = node.queue_refresh(&key, &entry, std::slice::from_ref(&key));
    let (_, left) = join(refresh, node.queue_leave(&key, &entry, None)).await;
    assert!(!left.unwrap());
    assert_eq!(names(&fake), ["EVAL", "EVALSHA", "EVAL"], "the last two are the leave");
}

#[tokio::test(start_paused = true)]
async fn a5_a_server_without_the_script_is_sent_its_text() {
    let fake = Fake::with(|parts| match parts[0].as_str() {
        "EVALSHA" => error("NOSCRIPT No matching script."),
        _ => Reply::Int(0),
    });
    let node = node(&fake);
    let extended = node.extend(&claim(["k"]), ExtendOptions::default()).await.unwrap();
    assert_eq!(extended.vote, Vote::Refused);
    let sent = fake.sent();
    assert_eq!(names(&fake), ["EVALSHA", "EVAL"]);
    assert_eq!(sent[0].parts[2..], sent[1].parts[2..]);
    let digest = sha1_smol::Sha1::from(&sent[1].parts[1]).digest().to_string();
    assert_eq!(sent[0].parts[1], digest);
}

#[tokio::test(start_paused = true)]
async fn the_hint_is_asked_behind_the_operation_in_its_pipeline() {
    let fake = Fake::with(|parts| match parts[0].as_str() {
        "SET" => Reply::Text(b"OK".to_vec()),
        _ => Reply::Int(1),
    });
    let (node, claim) = (node(&fake), claim(["b", "a"]));
    let (acquire, extend, release) = asking();
    assert_eq!(node.acquire(&claim, acquire).await.unwrap().waiters, Some(true));
    assert_eq!(node.extend(&claim, extend).await.unwrap().waiters, Some(true));
    assert_eq!(node.release(&claim, release).await.unwrap().waiters, Some(true));
    assert_eq!(fake.batches(), [2, 2, 2]);
    for pair in fake.sent().chunks(2) {
        assert_eq!(pair[1].parts, ["EXISTS", "a:quorate:waiters"], "the first key in sorted order");
    }
    // Not asked, not sent.
    node.extend(&claim, ExtendOptions::default()).await.unwrap();
    assert_eq!(fake.sent().len(), 7);
}

#[tokio::test(start_paused = true)]
async fn an_error_to_the_hint_leaves_the_vote() {
    let fake = Fake::with(|parts| match parts[0].as_str() {
        "EXISTS" => error("NOPERM No permissions to access a key"),
        _ => Reply::Text(b"OK".to_vec()),
    });
    let acquired = node(&fake).acquire(&claim(["k"]), asking().0).await.unwrap();
    assert_eq!((acquired.vote, acquired.waiters), (Vote::Granted, None));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_behind_an_acquire_that_was_refused_by_the_queue() {
    let fake = Fake::new();
    fake.hang();
    let node = node(&fake);
    let claim = claim(["k"]);
    let mut calls = Vec::new();
    for _ in 0..Batcher::<Fake>::MAX_ACQUIRES {
        let mut call = Box::pin(node.acquire(&claim, AcquireOptions::default()));
        assert!(poll!(&mut call).is_pending());
        calls.push(call);
    }
    let mut refused = Box::pin(node.acquire(&claim, asking().0));
    let std::task::Poll::Ready(refused) = poll!(&mut refused) else { panic!("it was queued") };
    assert!(refused.unwrap_err().is_not_sent());
}

/// The names of the commands of a server that has `command`.
fn has(command: &str) -> Reply {
    Reply::List(vec![Reply::Text(b"del".to_vec()), Reply::Text(command.as_bytes().to_vec())])
}

/// The replies of a server with `command`, or without scripts.
fn server(command: &'static str, scripts: bool, forbidden: &'static str) -> Fake {
    Fake::with_setup(move |parts| match (parts[0].as_str(), parts[1].as_str()) {
        ("COMMAND", _) => has(command),
        (name, _) if name == forbidden => error("NOPERM no permissions to run the command"),
        ("EVAL" | "EVALSHA", _) if !scripts => error("NOPERM no permissions to run 'eval'"),
        ("SET", _) => Reply::Text(b"OK".to_vec()),
        _ => Reply::Int(1),
    })
}

#[tokio::test(start_paused = true)]
async fn a_release_uses_the_compare_and_delete_of_the_server() {
    let token = "ab".repeat(20);
    for (name, command) in
        [("delifeq", vec!["DELIFEQ", "k", &token]), ("delex", vec!["DELEX", "k", "IFEQ", &token])]
    {
        // On a server that forbids scripts, plain locks work, and extensions say what is missing.
        for scripts in [true, false] {
            let fake = server(name, scripts, "");
            let (node, claim) = (node(&fake), claim(["k"]));
            node.acquire(&claim, AcquireOptions::default()).await.unwrap();
            let released = node.release(&claim, ReleaseOptions::default()).await.unwrap();
            assert_eq!(released.vote, Vote::Granted);
            assert_eq!(fake.sent().last().unwrap().parts, command);
            let before = fake.sent().len();
            let extended = node.extend(&claim, ExtendOptions::default()).await;
            let several = node.acquire(&self::claim(["a", "b"]), AcquireOptions::default()).await;
            assert_eq!((extended.is_ok(), several.is_ok()), (scripts, scripts));
            if !scripts {
                let error = extended.unwrap_err();
                assert_eq!(error.kind(), BackendErrorKind::Permission);
                assert!(error.is_not_sent() && error.to_string().contains("'eval'"), "{error}");
                assert_eq!(fake.sent().len(), before, "it is known, so nothing is sent");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_compare_and_delete_falls_back_to_the_script() {
    let fake = server("delifeq", true, "DELIFEQ");
    let (node, claim) = (node(&fake), claim(["k"]));
    node.acquire(&claim, AcquireOptions::default()).await.unwrap();
    let released = node.release(&claim, ReleaseOptions::default()).await.unwrap();
    assert_eq!(released.vote, Vote::Granted);
    assert_eq!(names(&fake)[1..].iter().filter(|name| *name == "DELIFEQ").count(), 1);
    assert_eq!(names(&fake).last().unwrap(), "EVALSHA");
}

/// Queued before the first connection was made, so before anything was known of the server.
#[tokio::test(start_paused = true)]
async fn a_release_that_waited_for_the_connection_finds_the_command_that_is_allowed() {
    let fake = server("delex", false, "");
    let (node, claim) = (node(&fake), claim(["k"]));
    let acquire = node.acquire(&claim, AcquireOptions::default());
    let release = node.release(&claim, ReleaseOptions::default());
    let (acquired, released) = join(acquire, release).await;
    assert_eq!((acquired.unwrap().vote, released.unwrap().vote), (Vote::Granted, Vote::Granted));
    let sent: Vec<String> =
        names(&fake).into_iter().filter(|name| name != "COMMAND" && name != "EVAL").collect();
    assert_eq!(sent, ["DELEX", "SET", "EVALSHA", "DELEX"], "the first asks whether it is allowed");
}

/// A server reports which commands it has, and not which of them the user may run.
#[tokio::test(start_paused = true)]
async fn a_node_that_forbids_each_way_to_release_grants_nothing() {
    let fake = server("delifeq", false, "DELIFEQ");
    let node = node(&fake);
    let error = node.acquire(&claim(["k"]), AcquireOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Permission);
    assert!(error.is_not_sent() && error.to_string().contains("'eval'"), "{error}");
    assert!(!names(&fake).contains(&"SET".to_owned()));
}

/// The key of the question is none of theirs, and that is no reason to refuse.
#[tokio::test(start_paused = true)]
async fn a_user_of_some_keys_may_use_the_compare_and_delete() {
    for text in ["No permissions to access a key", "no permissions to access one of the keys"] {
        let fake = Fake::with_setup(move |parts| match (parts[0].as_str(), parts[1].as_str()) {
            ("COMMAND", _) => has("delifeq"),
            ("EVAL", _) => error("NOPERM no permissions to run 'eval'"),
            ("DELIFEQ", key) if key != "k" => error(&format!("NOPERM {text}")),
            ("SET", _) => Reply::Text(b"OK".to_vec()),
            _ => Reply::Int(1),
        });
        let (node, claim) = (node(&fake), claim(["k"]));
        node.acquire(&claim, AcquireOptions::default()).await.unwrap();
        let released = node.release(&claim, ReleaseOptions::default()).await.unwrap();
        assert_eq!(released.vote, Vote::Granted);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_of_another_type_is_not_ours() {
    let fake = Fake::with_setup(|parts| match parts[0].as_str() {
        "COMMAND" => has("delifeq"),
        "DELIFEQ" => error("WRONGTYPE Operation against a key"),
        _ => Reply::Int(1),
    });
    let (node, claim) = (node(&fake), claim(["k"]));
    assert!(node.server_id().await.is_err());
    let released = node.release(&claim, ReleaseOptions::default()).await.unwrap();
    assert_eq!(released.vote, Vote::Refused);
}

#[tokio::test(start_paused = true)]
async fn fencing_numbers_are_raised_beside_their_keys() {
    let fake = Fake::with(|parts| match parts[0].as_str() {
        "EVAL" => Reply::Text(b"42".to_vec()),
        _ => Reply::Int(1),
    });
    let (node, claim) = (node(&fake), claim(["orders:42"]));
    let mut options = AcquireOptions::default();
    options.fencing = FenceHint::new(40);
    let number = FencingToken::new(42).unwrap();
    assert_eq!(node.acquire(&claim, options).await.unwrap().number, Some(number));
    assert_eq!(node.raise(&claim, number).await.unwrap(), Vote::Granted);
    let mut options = ReleaseOptions::default();
    options.raise_to = Some(number);
    assert_eq!(node.release(&claim, options).await.unwrap().vote, Vote::Granted);
    let token = "ab".repeat(20);
    for (sent, arguments) in fake.sent().iter().zip([["10000", "40"], ["42", ""], ["42", ""]]) {
        let arguments = arguments.into_iter().filter(|argument| !argument.is_empty());
        let expected: Vec<&str> =
            ["2", "orders:42", "quorate:fence:547", &token].into_iter().chain(arguments).collect();
        assert_eq!(sent.parts[2..], expected);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_node_keep_the_order_of_their_first_polls() {
    let fake = Fake::new();
    let node = node(&fake);
    assert!(node.capabilities().contains(Capabilities::ORDERED | Capabilities::WATCH));
    let (a, b) = (claim(["a"]), claim(["b"]));
    let mut later = node.acquire(&a, AcquireOptions::default());
    let mut first = node.acquire(&b, AcquireOptions::default());
    assert!(poll!(&mut first).is_pending() && poll!(&mut later).is_pending());
    let _ = join(first, later).await;
    assert_eq!(fake.keys(), ["b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_registered_before_the_key_is_read() {
    let fake = Fake::with(|_| Reply::Text(b"token".to_vec()));
    let node = node(&fake);
    let _other = node.watch(&key("other"), None).await.unwrap();
    fake.hold();
    let lock = key("k");
    let mut watch = node.watch(&lock, None);
    assert!(poll!(&mut watch).is_pending());
    sleep(TICK).await;
    // The node has read the key, which then changes; the push overtakes the reply in the client.
    fake.push(Push::Key(b"k".to_vec()));
    fake.settle();
    let watched = watch.await.unwrap();
    assert!(watched.is_held());
    timeout(TTL, watched.changed()).await.expect("the push was missed");
}

/// A client that does not pass on the push of a flush would leave a waiter asleep.
#[tokio::test(start_paused = true)]
async fn a_watch_ends_after_a_flush_that_is_not_pushed() {
    for pushes_flushes in [true, false] {
        let value = Arc::new(Mutex::new(Some("token")));
        let at_node = Arc::clone(&value);
        let fake = Fake::with(move |_| match *at_node.lock().unwrap() {
            Some(value) => Reply::Text(value.into()),
            None => Reply::Nil,
        });
        if !pushes_flushes {
            fake.miss_flushes();
        }
        let node = node(&fake);
        for next in [None, Some("another token")] {
            *value.lock().unwrap() = Some("token");
            let watched = node.watch(&key("k"), None).await.unwrap();
            let mut changed = Box::pin(watched.changed());
            assert!(timeout(TTL, &mut changed).await.is_err(), "nothing has changed");
            *value.lock().unwrap() = next;
            assert_eq!(timeout(TTL, changed).await.is_err(), pushes_flushes);
        }
        assert_eq!(fake.keys().len() > 2, !pushes_flushes, "how often the key was read");
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_one_connection_for_commands_and_one_for_watches() {
    let fake = Fake::with(|parts| match parts[1].as_str() {
        "free" => Reply::Nil,
        _ => Reply::Text(b"OK".to_vec()),
    });
    let node = node(&fake);
    let keys = ["a", "b", "c", "d"].map(key);
    let watches = keys.iter().map(|key| node.watch(key, None));
    // All at once, while there is no connection yet.
    let watched = futures_util::future::join_all(watches).await;
    assert_eq!(fake.connects(), 1);
    node.acquire(&claim(["a"]), AcquireOptions::default()).await.unwrap();
    let clone = node.clone();
    let _e = clone.watch(&key("e"), None).await.unwrap();
    assert!(!clone.watch(&key("free"), None).await.unwrap().is_held());
    assert_eq!(fake.connects(), 2, "a second watch connection was made though one is there");
    let entry = Entry::new(*b"e1");
    let _entry = clone.watch(&key("k"), Some(&entry)).await.unwrap();
    assert_eq!(fake.keys().last().unwrap(), "k:quorate:e1");
    drop(watched);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_connection_wakes_every_watch() {
    let fake = Fake::with(|_| Reply::Text(b"token".to_vec()));
    let node = node(&fake);
    let mut changed = Vec::new();
    for name in ["a", "b"] {
        let watched = node.watch(&key(name), None).await.unwrap();
        changed.push(Box::pin(watched.changed()));
    }
    for one in &mut changed {
        assert!(poll!(one).is_pending());
    }
    fake.end_after(0);
    futures_util::future::join_all(changed).await;
    // The next watch makes a new connection.
    assert!(node.watch(&key("a"), None).await.unwrap().is_held());
    assert_eq!(fake.connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_track_keys_says_so() {
    let fake = Fake::with_setup(|parts| match parts[0].as_str() {
        "CLIENT" => error("ERR Client tracking can be enabled only with RESP3"),
        _ => Reply::Text(b"token".to_vec()),
    });
    let error = node(&fake).watch(&key("k"), None).await.unwrap_err();
    assert!(error.is_not_sent() && error.to_string().contains("RESP3"), "{error}");
    assert!(fake.keys().iter().all(|key| key != "k"));
}

/// The server would accept client tracking all the same, and push nothing.
#[tokio::test(start_paused = true)]
async fn a_connection_without_pushes_watches_nothing() {
    let fake = Fake::new();
    fake.use_resp2();
    let node = node(&fake);
    let error = node.watch(&key("k"), None).await.unwrap_err();
    assert!(error.is_not_sent() && error.to_string().contains("RESP3"), "{error}");
    let acquired = node.acquire(&claim(["k"]), AcquireOptions::default()).await.unwrap();
    assert_eq!(acquired.vote, Vote::Granted);
}

/// A transport without an order or watches, as a pool is.
#[derive(Debug)]
struct Pool;

impl Transport for Pool {
    const IS_ORDERED: bool = false;

    fn name(&self) -> std::borrow::Cow<'_, str> {
        "pool".into()
    }

    async fn call(&self, _: Command, _: Admission) -> Result<Reply, quorate_protocol::Failure> {
        Ok(Reply::Nil)
    }

    fn features(&self) -> quorate_protocol::Features {
        quorate_protocol::Features::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_over_a_pool_is_neither_ordered_nor_watched() {
    let node = Node::over(Pool);
    assert!(!node.capabilities().contains(Capabilities::ORDERED));
    assert!(!node.capabilities().contains(Capabilities::WATCH));
    assert!(node.capabilities().contains(Capabilities::QUEUE | Capabilities::FENCING));
    assert!(node.watch(&key("k"), None).await.unwrap_err().is_not_sent());
    let refused = node.acquire(&claim(["k"]), AcquireOptions::default()).await.unwrap();
    assert_eq!((refused.vote, node.name().as_ref()), (Vote::Refused, "pool"));
}

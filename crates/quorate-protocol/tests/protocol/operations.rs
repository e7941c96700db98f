//! The operations of a node over its connections: second steps, order, and the capabilities.

use quorate_core::RestartGuard;
use quorate_core::backend::{
    AcquireOptions, ExtendOptions, FenceHint, Mode, Operation, ReleaseOptions, Vote, Waiters,
};
use quorate_protocol::Value;

use crate::calls::{Node, TTL, acquire, begin, claim, commands, is_not_sent, key, on, vote, voted};
use crate::fake::Fake;

/// A server that has lost its scripts until they are loaded again.
async fn forgetful() -> (Fake, Node) {
    let mut must_load = false;
    let (fake, node) = on(move |parts| match parts[0].as_str() {
        "SCRIPT" => {
            must_load = false;
            None
        }
        "SET" if parts[1].starts_with("forget") => {
            must_load = true;
            Some(Value::Nil)
        }
        "EVALSHA" if must_load => Some(Value::Error("NOSCRIPT No matching script.".into())),
        _ => None,
    });
    begin(&node, acquire("forget")).await.unwrap();
    (fake, node)
}

/// A second command of it would come behind its release and leave a ghost key.
#[tokio::test(start_paused = true)]
async fn an_acquire_never_leaves_after_its_release() {
    let mut fenced = AcquireOptions::default();
    fenced.fencing = FenceHint::new(7);
    let mut guarded = AcquireOptions::default();
    guarded.guard = Some(RestartGuard::strict(TTL));
    for options in [AcquireOptions::default(), fenced, guarded] {
        let (fake, node) = forgetful().await;
        let claim = claim(&["a", "b"]);
        let acquire = begin(&node, Operation::Acquire(claim.clone(), options));
        let release = Operation::Release(claim.clone(), ReleaseOptions::default());
        let release = begin(&node, release);
        assert!(is_not_sent(&acquire.await));
        assert_eq!(vote(release.await).unwrap(), Vote::Granted);
        // The release is sent twice, since it compares the token first. The acquire is not.
        assert_eq!(commands(&fake)[1..], ["EVALSHA", "EVALSHA", "EVAL"]);
        // The scripts are loaded again in front of it, so the next acquire finds its own.
        let before = fake.sent().len();
        let next = begin(&node, Operation::Acquire(claim, AcquireOptions::default()));
        assert_eq!(vote(next.await).unwrap(), Vote::Granted);
        assert_eq!(commands(&fake)[before..], ["EVALSHA"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a5_a_server_without_the_script_is_sent_its_text() {
    let (fake, node) = forgetful().await;
    let extend = Operation::Extend(claim(&["k"]), ExtendOptions::default());
    assert_eq!(vote(begin(&node, extend).await).unwrap(), Vote::Granted);
    let sent = fake.sent();
    assert_eq!(commands(&fake)[1..], ["EVALSHA", "EVAL"]);
    assert_eq!(sent[1].parts[2..], sent[2].parts[2..]);
    let digest = sha1_smol::Sha1::from(&sent[2].parts[1]).digest().to_string();
    assert_eq!(sent[1].parts[1], digest);
}

/// A user who may not look into the queues.
fn forbidden() -> (Fake, Node) {
    on(|parts| {
        let asks = parts.iter().any(|part| part.contains(":quorate:"));
        asks.then(|| Value::Error("NOPERM No permissions to access a key".into()))
    })
}

#[tokio::test(start_paused = true)]
async fn a_release_that_may_not_ask_is_made_without_the_question() {
    let (fake, node) = forbidden();
    let mut options = ReleaseOptions::default();
    options.asks = Some([key("k")].into());
    for _ in 0..2 {
        let release = Operation::Release(claim(&["k"]), options.clone());
        let reply = voted(begin(&node, release).await).unwrap();
        assert_eq!((reply.vote, reply.waiters), (Vote::Granted, Waiters::Unknown));
    }
    assert_eq!(commands(&fake), ["EVALSHA"; 3], "the user is asked once");
}

/// A second command of it would come behind its release and leave a ghost key.
#[tokio::test(start_paused = true)]
async fn a_reader_that_may_not_ask_is_sent_once() {
    let (fake, node) = forbidden();
    let mut options = AcquireOptions::default();
    options.asks = true;
    let claim = claim(&["k"]).with_mode(Mode::Shared);
    let read = || begin(&node, Operation::Acquire(claim.clone(), options));
    assert!(is_not_sent(&read().await));
    assert_eq!(commands(&fake).len(), 1);
    let reply = voted(read().await).unwrap();
    assert_eq!((reply.vote, reply.waiters), (Vote::Granted, Waiters::Unknown));
}

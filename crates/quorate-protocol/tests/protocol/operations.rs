//! The operations of a node over its connections: second steps, order, and the capabilities.

use futures_util::future::join_all;
use quorate_core::RestartGuard;
use quorate_core::backend::{
    AcquireOptions, CallReply, Capabilities, Entry, ExtendOptions, FenceHint, LockBackend,
    Operation, ReleaseOptions, Vote,
};
use quorate_protocol::Value;

use crate::calls::{TTL, acquire, begin, claim, hint, is_not_sent, key, node, release, vote};
use crate::fake::{Fake, granting};

fn names(fake: &Fake) -> Vec<String> {
    fake.sent().into_iter().map(|sent| sent.parts[0].clone()).collect()
}

/// A server that has lost its scripts until they are loaded again.
fn forgetful() -> Fake {
    let mut must_load = false;
    Fake::with_setup(move |parts| match parts[0].as_str() {
        "SCRIPT" => {
            must_load = false;
            Value::Text(b"sha1".to_vec())
        }
        "FORGET" => {
            must_load = true;
            Value::Int(1)
        }
        "EXISTS" if parts[1].starts_with("forget") => {
            must_load = true;
            Value::Int(0)
        }
        "EVALSHA" if must_load => Value::Error("NOSCRIPT No matching script.".into()),
        _ => crate::fake::ordinary(parts).unwrap_or_else(|| granting(parts)),
    })
}

/// A second command of it would come behind its release and leave a ghost key.
#[tokio::test(start_paused = true)]
async fn an_acquire_never_leaves_after_its_release() {
    let mut fenced = AcquireOptions::default();
    fenced.fencing = FenceHint::new(7);
    let mut guarded = AcquireOptions::default();
    guarded.guard = Some(RestartGuard::strict(TTL));
    for options in [AcquireOptions::default(), fenced, guarded] {
        let fake = forgetful();
        let node = node(&fake);
        begin(&node, hint("forget")).await.unwrap();
        let claim = claim(&["a", "b"]);
        let acquire = begin(&node, Operation::Acquire(claim.clone(), options));
        let release = begin(&node, Operation::Release(claim, ReleaseOptions::default()));
        assert!(is_not_sent(&acquire.await));
        assert_eq!(vote(release.await).unwrap(), Vote::Granted);
        // The release is sent twice, since it compares the token first. The acquire is not.
        assert_eq!(names(&fake)[1..], ["EVALSHA", "EVALSHA", "EVAL"]);
        // The scripts are loaded again in front of it, so the next acquire finds its own.
        let before = fake.sent().len();
        let next =
            begin(&node, Operation::Acquire(self::claim(&["a", "b"]), AcquireOptions::default()));
        assert_eq!(vote(next.await).unwrap(), Vote::Granted);
        assert_eq!(names(&fake)[before..], ["EVALSHA"]);
    }
}

/// W3: an entry that is appended behind its LEAVE has no owner.
#[tokio::test(start_paused = true)]
async fn a_refresh_never_leaves_after_its_leave() {
    let fake = forgetful();
    let (node, key, entry) = (node(&fake), key("k"), Entry::new(*b"me"));
    begin(&node, hint("forget")).await.unwrap();
    let locks = [key.clone()].into();
    let refresh = Operation::Refresh { key: key.clone(), entry: entry.clone(), locks };
    let refresh = begin(&node, refresh);
    let leave = begin(&node, Operation::Leave { key, entry, also: None });
    assert!(is_not_sent(&refresh.await));
    assert!(matches!(leave.await, Ok(CallReply::Waiters(true))));
    assert_eq!(names(&fake)[1..], ["EVALSHA", "EVALSHA", "EVAL"], "the last two are the leave");
}

#[tokio::test(start_paused = true)]
async fn a5_a_server_without_the_script_is_sent_its_text() {
    let fake = forgetful();
    let node = node(&fake);
    begin(&node, hint("forget")).await.unwrap();
    let extend = Operation::Extend(claim(&["k"]), ExtendOptions::default());
    assert_eq!(vote(begin(&node, extend).await).unwrap(), Vote::Granted);
    let sent = fake.sent();
    assert_eq!(names(&fake)[1..], ["EVALSHA", "EVAL"]);
    assert_eq!(sent[1].parts[2..], sent[2].parts[2..]);
    let digest = sha1_smol::Sha1::from(&sent[2].parts[1]).digest().to_string();
    assert_eq!(sent[1].parts[1], digest);
}

#[tokio::test(start_paused = true)]
async fn a_hint_leaves_in_the_pipeline_of_its_release() {
    let fake = Fake::new();
    let node = node(&fake);
    let calls = join_all([begin(&node, release("k")), begin(&node, hint("k"))]).await;
    assert!(matches!(calls[1], Ok(CallReply::Waiters(true))));
    assert_eq!((fake.batches(), names(&fake)), (vec![2], vec!["EVALSHA".into(), "EXISTS".into()]));
}

#[tokio::test(start_paused = true)]
async fn each_acquire_and_extension_says_which_server_replied() {
    let node = node(&Fake::new());
    let claim = claim(&["k"]);
    let acquired = node.acquire(&claim, AcquireOptions::default()).await.unwrap();
    let extended = node.extend(&claim, ExtendOptions::default()).await.unwrap();
    let released = node.release(&claim, ReleaseOptions::default()).await.unwrap();
    assert_eq!(acquired.server.as_deref(), Some("abc"));
    assert_eq!(extended.server.as_deref(), Some("abc"));
    assert_eq!(released.server, None);
    assert_eq!(node.server_id().await.unwrap().as_deref(), Some("abc"));
}

#[tokio::test(start_paused = true)]
async fn the_async_methods_send_nothing_before_their_first_poll() {
    let fake = Fake::new();
    let node = node(&fake);
    assert!(node.capabilities().contains(Capabilities::ORDERED | Capabilities::WATCH));
    let (a, b) = (claim(&["a"]), claim(&["b"]));
    let later = node.acquire(&a, AcquireOptions::default());
    let first = node.acquire(&b, AcquireOptions::default());
    let begun = begin(&node, acquire("begun"));
    let (first, later) = futures_util::future::join(first, later).await;
    assert!(first.is_ok() && later.is_ok() && begun.await.is_ok());
    assert_eq!(fake.keys(), ["begun", "b", "a"]);
}

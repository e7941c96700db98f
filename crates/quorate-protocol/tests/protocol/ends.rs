//! Connections that end, cannot be made, hang, or reply with nonsense.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{join, join_all};
use quorate_core::backend::{CallReply, CallResult, Operation, Vote};
use quorate_core::{BackendError, BackendErrorKind};
use quorate_protocol::{
    Dial as _, RedisNode, SILENT, Settings, Source, Value, exchange, handshake,
};
use tokio::time::{Instant, sleep};

use crate::calls::{
    TICK, acquire, begin, commands, held, in_turn, is_lost, is_not_sent, key, on, pair, release,
    vote,
};

const REPLY_LIMIT: Duration = Duration::from_secs(10);

/// Both connections of the node are refused before another address is known, which is told once.
#[tokio::test(start_paused = true)]
async fn what_is_told_after_a_refusal_counts_for_both_connections() {
    let [old, new] = [pair().0, pair().0];
    old.set(|state| state.refusal = Some(BackendError::new(BackendErrorKind::Auth, "stale")));
    let told = Mutex::new(Some(new.clone()));
    let mut settings = Settings::default();
    settings.again = Some(Source::new(move |_| {
        let told = told.lock().unwrap().take();
        sleep(TICK).map(|()| told)
    }));
    let node = Arc::new(RedisNode::new(old.clone(), &settings));
    let watches = begin(&node, Operation::Watch { key: key("w"), entry: None });
    let (acquired, watched) = join(begin(&node, acquire("k")), watches).await;
    assert!(vote(acquired).unwrap() == Vote::Granted && watched.is_ok());
    assert_eq!((old.connects(), new.connects()), (2, 2));
}

fn no_route() -> BackendError {
    BackendError::new(BackendErrorKind::Connection, "no route")
}

#[tokio::test(start_paused = true)]
async fn a_reconnect_keeps_the_order_and_sends_nothing_again() {
    let (fake, node) = pair();
    begin(&node, acquire("first")).await.unwrap();
    fake.hold(true);
    let in_flight = in_turn(&node, 0..4, acquire).await;
    let waiting: Vec<_> =
        (4..150).map(|number| begin(&node, release(&number.to_string()))).collect();
    fake.end_after(2);
    fake.hold(false);
    let answers = join_all(in_flight).await;
    // Replies that came before the end count, and the others may have been executed.
    let is_ok: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(is_ok, [true, true, false, false]);
    assert!(is_lost(&answers[2]) && is_lost(&answers[3]));
    assert!(join_all(waiting).await.iter().all(Result::is_ok));
    let expected: Vec<String> = (0..150).map(|number| number.to_string()).collect();
    assert_eq!(fake.keys()[1..], expected);
    let connections: Vec<usize> = fake.sent().iter().map(|sent| sent.connection).collect();
    // The releases of a pipeline are one script.
    assert_eq!(connections, [vec![1; 5], vec![2; 3]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_cut_in_half_is_half_answered_and_not_sent_again() {
    let (fake, node) = held();
    let calls: Vec<_> = (0..10).map(|number| begin(&node, acquire(&number.to_string()))).collect();
    sleep(TICK).await;
    assert_eq!(fake.batches(), [10]);
    fake.end_after(3);
    for (number, call) in calls.into_iter().enumerate() {
        let result = call.await;
        assert_eq!((result.is_ok(), is_lost(&result)), (number < 3, number >= 3), "{number}");
    }
    fake.hold(false);
    begin(&node, acquire("next")).await.unwrap();
    assert_eq!(fake.keys().len(), 11);
}

/// A server whose `SET` does not return the value that is there.
fn old(parts: &[String]) -> Option<Value> {
    let info = b"redis_version:6\r\nrun_id:abc\r\n";
    (parts[0] == "INFO").then(|| Value::Text(info.to_vec()))
}

/// On a server whose `SET` does not say who holds the key, the `GET` for that has not left when the connection ends.
#[tokio::test(start_paused = true)]
async fn c6_a_refused_acquire_is_not_sent_over_the_next_connection() {
    let refused = |parts: &[String]| (parts[0] == "SET" && parts[1] == "k").then_some(Value::Nil);
    let (fake, node) = on(move |parts| old(parts).or_else(|| refused(parts)));
    fake.hold(true);
    let call = begin(&node, acquire("k"));
    sleep(TICK).await;
    fake.end_after(1);
    fake.hold(false);
    assert_eq!(vote(call.await).unwrap(), Vote::Refused);
    begin(&node, acquire("next")).await.unwrap();
    assert_eq!(commands(&fake), ["SET", "SET"]);
    assert_eq!(fake.keys(), ["k", "next"]);
}

/// The `SET` was refused, and the connection ends before the reply to the `GET` that reads the holder.
#[tokio::test(start_paused = true)]
async fn c6_a_refusal_counts_though_its_holder_is_never_read() {
    let old_server =
        || on(|parts| old(parts).or_else(|| (parts[0] == "SET").then_some(Value::Nil)));
    let (fake, node) = old_server();
    fake.hold(true);
    let call = begin(&node, acquire("k"));
    sleep(TICK).await;
    fake.settle_one();
    sleep(TICK).await;
    assert_eq!(commands(&fake), ["SET", "GET"]);
    fake.end_after(0);
    assert_eq!(vote(call.await).unwrap(), Vote::Refused);
    // The same on a connection of a pool.
    let (fake, _) = old_server();
    let connection = fake.connect(None, Duration::MAX, drop).await.unwrap();
    let mut features = handshake(&connection).await.unwrap();
    fake.hold(true);
    let call =
        tokio::spawn(async move { exchange(&connection, &mut features, &acquire("k")).await });
    sleep(TICK).await;
    fake.settle_one();
    sleep(TICK).await;
    assert_eq!(commands(&fake), ["SET", "GET"]);
    fake.end_after(0);
    assert_eq!(vote(call.await.unwrap()).unwrap(), Vote::Refused);
}

#[tokio::test(start_paused = true)]
async fn a_failed_connect_refuses_what_is_queued_and_what_arrives_with_its_reason() {
    let (fake, node) = pair();
    let source = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    fake.set(|state| state.refusal = Some(no_route().with_source(source)));
    let both = join_all([begin(&node, acquire("a")), begin(&node, release("b"))]).await;
    let meanwhile = begin(&node, release("c")).now_or_never().unwrap();
    for answer in both.into_iter().chain([meanwhile]) {
        let error = answer.unwrap_err();
        assert!(error.is_not_sent());
        assert_eq!(error.to_string(), "no route");
        let source = std::error::Error::source(&error).unwrap();
        assert!(source.is::<std::io::Error>(), "a_node_error_has_its_client_error_as_source");
    }
    assert_eq!(fake.connects(), 1);
    fake.set(|state| state.refusal = None);
    sleep(Duration::from_millis(60)).await;
    begin(&node, acquire("d")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn back_offs_double_up_to_a_second_with_jitter() {
    let (fake, node) = pair();
    fake.set(|state| state.refusal = Some(no_route()));
    let (mut pauses, mut failed_at) = (Vec::new(), None::<Instant>);
    while fake.connects() < 12 {
        let before = fake.connects();
        assert!(is_not_sent(&begin(&node, acquire("k")).await));
        if fake.connects() > before {
            pauses.extend(failed_at.map(|at| at.elapsed().as_millis()));
            failed_at = Some(Instant::now());
        }
        sleep(Duration::from_millis(1)).await;
    }
    for (pause, whole) in pauses.iter().zip([50, 100, 200, 400, 800, 1000, 1000, 1000, 1000]) {
        assert!((whole / 2..=whole + 3).contains(pause), "{pauses:?}");
    }
    let long = &pauses[5..];
    assert!(long.iter().any(|pause| *pause != long[0]), "no jitter: {pauses:?}");
    // A connection that works starts the back-off from the beginning.
    fake.set(|state| state.refusal = None);
    sleep(Duration::from_secs(1)).await;
    begin(&node, acquire("k")).await.unwrap();
    fake.end_silently();
    fake.set(|state| state.refusal = Some(no_route()));
    assert!(is_not_sent(&begin(&node, acquire("k")).await));
    fake.set(|state| state.refusal = None);
    sleep(Duration::from_millis(60)).await;
    begin(&node, acquire("k")).await.unwrap();
}

/// After one surplus reply, all others may belong to other commands.
#[tokio::test(start_paused = true)]
async fn a_reply_that_makes_no_sense_ends_the_connection() {
    for nonsense in [Value::Int(7), Value::List(Vec::new()), Value::Okay] {
        let (fake, node) = on(move |parts| (parts[1] == "odd").then(|| nonsense.clone()));
        let calls = ["before", "odd", "behind"].map(|name| begin(&node, acquire(name)));
        let [before, odd, behind] = join_all(calls).await.try_into().unwrap();
        assert_eq!(vote(before).unwrap(), Vote::Granted);
        assert_eq!(odd.unwrap_err().kind(), BackendErrorKind::Protocol);
        assert!(is_lost(&behind), "it may be the reply to the command before");
        begin(&node, acquire("next")).await.unwrap();
        assert_eq!(fake.sent().last().unwrap().connection, 2);
    }
    // An integer to INFO, as behind one reply too many.
    let (fake, node) = on(|parts| (parts[0] == "INFO").then_some(Value::Int(1)));
    let error = begin(&node, acquire("k")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_not_sent()), (BackendErrorKind::Protocol, true));
    assert!(fake.keys().is_empty());
    // More replies than commands.
    let (fake, node) = pair();
    begin(&node, acquire("first")).await.unwrap();
    fake.set(|state| state.replies_twice = true);
    assert!(is_lost(&begin(&node, acquire("k")).await));
    begin(&node, acquire("next")).await.unwrap();
    assert_eq!(fake.connects(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_reply_within_the_limit_is_over() {
    let (fake, node) = pair();
    begin(&node, acquire("first")).await.unwrap();
    // It was idle, which counts for nothing.
    sleep(2 * REPLY_LIMIT).await;
    fake.hold(true);
    let start = Instant::now();
    let lost = begin(&node, acquire("lost"));
    sleep(REPLY_LIMIT / 2).await;
    let later = begin(&node, release("later"));
    assert!(is_lost(&lost.await));
    assert_eq!(start.elapsed().as_secs(), REPLY_LIMIT.as_secs());
    assert!(is_lost(&later.await));
    fake.hold(false);
    begin(&node, acquire("next")).await.unwrap();
    assert_eq!(fake.connects(), 2);
    // On the connection for watches as well.
    let (fake, node) = pair();
    let watch = || Operation::Watch { key: key("k"), entry: None };
    assert!(matches!(begin(&node, watch()).await, Ok(CallReply::Watched(true))));
    fake.hold(true);
    assert!(is_lost(&begin(&node, watch()).await));
    fake.hold(false);
    begin(&node, watch()).await.unwrap();
    assert_eq!(fake.connects(), 2);
}

/// It was a primary when the connection was made. By now its address may lead to another server.
#[tokio::test(start_paused = true)]
async fn a_connection_to_a_server_that_has_become_a_replica_is_over() {
    let is_replica = Arc::<AtomicBool>::default();
    let is_so = Arc::clone(&is_replica);
    let (fake, node) = on(move |parts| {
        let text = "READONLY You can't write against a read only replica.";
        (parts[0] == "SET" && is_so.load(Ordering::Relaxed)).then(|| Value::Error(text.into()))
    });
    begin(&node, acquire("first")).await.unwrap();
    is_replica.store(true, Ordering::Relaxed);
    let is_refused = |answer: CallResult| answer.unwrap_err().kind() == BackendErrorKind::ReadOnly;
    // A node that stays a replica gets no new connection with each call.
    assert!(is_refused(begin(&node, acquire("young")).await));
    assert!(is_refused(begin(&node, acquire("young")).await));
    assert_eq!(fake.connects(), 1);
    sleep(Duration::from_secs(1)).await;
    fake.hold(true);
    let in_flight = in_turn(&node, 0..4, acquire).await;
    let queued = begin(&node, acquire("queued"));
    is_replica.store(false, Ordering::Relaxed);
    fake.settle();
    assert!(join_all(in_flight).await.into_iter().all(is_refused), "each has its own answer");
    assert_eq!(vote(queued.await).unwrap(), Vote::Granted);
    assert_eq!(fake.connects(), 2);
    assert_eq!(fake.sent().last().unwrap().connection, 2);
}

/// As the primary of a group that fails over: no reply will come, long before the reply limit.
#[tokio::test(start_paused = true)]
async fn a_silent_connection_is_over_once_its_address_leads_to_another_server() {
    let (fake, node) = pair();
    fake.set(|state| state.has_moved = Some(false));
    begin(&node, acquire("first")).await.unwrap();
    fake.hold(true);
    let start = Instant::now();
    let mut lost = begin(&node, acquire("lost"));
    sleep(3 * SILENT).await;
    assert!((&mut lost).now_or_never().is_none(), "it is the same server");
    fake.set(|state| state.has_moved = Some(true));
    assert!(is_lost(&lost.await));
    assert!(start.elapsed() < REPLY_LIMIT);
    fake.hold(false);
    begin(&node, acquire("next")).await.unwrap();
    assert_eq!(fake.connects(), 2);
}

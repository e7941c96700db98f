//! The batcher: order, bounds, connections that end, runtimes that end.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::{FutureExt, poll};
use quorate_core::runtime::TokioRuntime;
use quorate_core::{BackendError, BackendErrorKind};
use quorate_protocol::{Admission, Batcher, Command, Failure, Purpose, Push, Reply, Transport};
use tokio::time::{Instant, sleep, timeout};

use crate::fake::Fake;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// So that a test ends which would wait for ever. Virtual.
const LIMIT: Duration = Duration::from_secs(3600);

/// Long enough for everything that can happen to have happened. Virtual.
const TICK: Duration = Duration::from_micros(10);

fn batcher(fake: &Fake) -> Batcher<Fake> {
    let dial = Arc::new(fake.clone());
    Batcher::new(dial, TokioRuntime::new(), Purpose::Commands, CONNECT_TIMEOUT, drop)
}

fn get(key: &str) -> Command {
    Command::new("GET", 8).arg(key)
}

type Call<'a> = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send + 'a>>;

/// A call that was polled once, so it is queued.
async fn queued<'a>(batcher: &'a Batcher<Fake>, key: &str, admission: Admission) -> Call<'a> {
    let mut call: Call<'a> = Box::pin(batcher.call(get(key), admission));
    assert!(poll!(&mut call).is_pending());
    call
}

fn is_lost(answer: &Result<Reply, Failure>) -> bool {
    matches!(answer, Err(Failure::Lost(_)))
}

fn is_not_sent(answer: &Result<Reply, Failure>) -> bool {
    matches!(answer, Err(Failure::NotSent(_)))
}

fn names(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_order_at_the_node_is_that_of_the_first_polls() {
    let fake = Fake::new();
    let batcher = batcher(&fake);
    fake.hold();
    let made: Vec<Call<'_>> = (0..300)
        .map(|number| Box::pin(batcher.call(get(&number.to_string()), Admission::Other)) as _)
        .collect();
    // Made in one order, polled in another.
    let mut polled: Vec<Call<'_>> = made.into_iter().rev().collect();
    for call in &mut polled {
        assert!(poll!(call).is_pending());
        if fake.keys().len() % 7 == 3 {
            sleep(TICK).await;
        }
    }
    sleep(TICK).await;
    fake.settle();
    join_all(polled).await;
    assert_eq!(fake.keys(), names(0..300).into_iter().rev().collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn each_reply_reaches_its_own_call() {
    let fake = Fake::with(|parts| Reply::Text(parts[1].clone().into_bytes()));
    let batcher = batcher(&fake);
    let calls = names(0..500).into_iter().map(|key| {
        let batcher = &batcher;
        async move {
            let reply = batcher.call(get(&key), Admission::Other).await.unwrap();
            assert_eq!(reply, Reply::Text(key.into_bytes()));
        }
    });
    join_all(calls).await;
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_is_bounded_in_commands_and_in_bytes() {
    let fake = Fake::new();
    let batcher = batcher(&fake);
    let call = |size: usize| batcher.call(get("k").arg(vec![b'x'; size]), Admission::Other);
    join_all((0..200).map(|_| call(1))).await;
    assert_eq!(fake.batches(), [64, 64, 64, 8]);

    // A batch of 64 scripts with 1 MiB each was possible.
    let fake = Fake::new();
    let batcher = self::batcher(&fake);
    let call = |size: usize| batcher.call(get("k").arg(vec![b'x'; size]), Admission::Other);
    let sizes = [30_000, 30_000, 30_000, 1 << 20, 1 << 20, 1, 65_000, 1_000];
    join_all(sizes.map(call)).await;
    assert_eq!(fake.batches(), [2, 1, 1, 1, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn four_pipelines_are_in_flight_and_no_more() {
    let fake = Fake::new();
    fake.hold();
    let batcher = batcher(&fake);
    let mut calls = Vec::new();
    for key in names(0..7) {
        calls.push(queued(&batcher, &key, Admission::Other).await);
        sleep(TICK).await;
    }
    assert_eq!(fake.batches(), [1, 1, 1, 1]);
    fake.settle_one();
    sleep(TICK).await;
    assert_eq!(fake.batches(), [1, 1, 1, 1, 3]);
    fake.settle();
    assert!(join_all(calls).await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn window_slots_are_not_leaked() {
    let fake = Fake::new();
    let batcher = batcher(&fake);
    for _ in 0..20 {
        fake.hold();
        // Callers that leave while their commands are in flight, and a connection that ends.
        for key in names(0..6) {
            drop(queued(&batcher, &key, Admission::Other).await);
            drop(queued(&batcher, &key, Admission::Release).await);
            let _in_flight = queued(&batcher, &key, Admission::Other).await;
            sleep(TICK).await;
        }
        fake.settle();
        let free = timeout(LIMIT, batcher.call(get("k"), Admission::Other)).await;
        free.expect("a place in the window").unwrap();
        fake.hold();
        let call = queued(&batcher, "k", Admission::Other).await;
        sleep(TICK).await;
        fake.end_after(0);
        assert!(is_lost(&timeout(LIMIT, call).await.expect("the end of the connection")));
        fake.settle_connectionless();
    }
    fake.hold();
    let before = fake.batches().len();
    let mut calls = Vec::new();
    for key in names(0..4) {
        calls.push(queued(&batcher, &key, Admission::Other).await);
        sleep(TICK).await;
    }
    assert_eq!(fake.batches().len() - before, 4, "all four pipelines are still to be had");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_dropped_in_the_queue_is_not_sent() {
    let fake = Fake::new();
    let batcher = batcher(&fake);
    let withdrawn = queued(&batcher, "withdrawn", Admission::Acquire).await;
    let release = queued(&batcher, "release", Admission::Release).await;
    drop(withdrawn);
    release.await.unwrap();
    assert_eq!(fake.keys(), ["release"]);
}

#[tokio::test(start_paused = true)]
async fn acquires_are_bounded_and_releases_are_admitted() {
    let fake = Fake::new();
    fake.hang();
    let batcher = batcher(&fake);
    let mut calls = Vec::new();
    for key in names(0..Batcher::<Fake>::MAX_ACQUIRES) {
        calls.push(queued(&batcher, &key, Admission::Acquire).await);
    }
    let refused = batcher.call(get("k"), Admission::Acquire).now_or_never().unwrap();
    assert!(is_not_sent(&refused));
    calls.push(queued(&batcher, "release", Admission::Release).await);
    calls.push(queued(&batcher, "extend", Admission::Other).await);
    // The connect fails at its timeout, all are refused, and there is room again.
    sleep(CONNECT_TIMEOUT + TICK).await;
    assert!(join_all(calls).await.iter().all(is_not_sent));
    sleep(CONNECT_TIMEOUT).await;
    let _admitted = queued(&batcher, "k", Admission::Acquire).await;
}

/// A waiter asks such a node once a second, and gives up each time.
#[tokio::test(start_paused = true)]
async fn a_hung_node_keeps_nothing_of_callers_that_have_gone() {
    let fake = Fake::new();
    fake.hold();
    let batcher = batcher(&fake);
    let mut in_flight = Vec::new();
    for key in names(0..4) {
        in_flight.push(queued(&batcher, &key, Admission::Other).await);
        sleep(TICK).await;
    }
    let kept = queued(&batcher, "kept", Admission::Acquire).await;
    for _ in 0..3 * Batcher::<Fake>::MAX_ACQUIRES {
        drop(queued(&batcher, "acquire", Admission::Acquire).await);
        drop(queued(&batcher, "refresh", Admission::Other).await);
    }
    fake.settle();
    kept.await.unwrap();
    assert_eq!(fake.keys(), ["0", "1", "2", "3", "kept"]);
}

#[tokio::test(start_paused = true)]
async fn a_reconnect_keeps_the_order_and_sends_nothing_again() {
    let fake = Fake::with(|parts| Reply::Text(parts[1].clone().into_bytes()));
    let batcher = batcher(&fake);
    batcher.call(get("first"), Admission::Other).await.unwrap();
    fake.hold();
    let mut in_flight = Vec::new();
    for key in names(0..4) {
        in_flight.push(queued(&batcher, &key, Admission::Acquire).await);
        sleep(TICK).await;
    }
    let mut waiting = Vec::new();
    for key in names(4..150) {
        waiting.push(queued(&batcher, &key, Admission::Release).await);
    }
    fake.end_after(2);
    fake.settle_connectionless();
    let answers = join_all(in_flight).await;
    // Replies that came before the end count, and the others may have been executed.
    let is_ok: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(is_ok, [true, true, false, false]);
    assert!(is_lost(&answers[2]) && is_lost(&answers[3]));
    assert!(join_all(waiting).await.iter().all(Result::is_ok));
    let sent = fake.sent();
    assert_eq!(fake.keys()[1..], names(0..150));
    let connections: Vec<usize> = sent.iter().map(|sent| sent.connection).collect();
    assert_eq!(connections, [vec![1; 5], vec![2; 146]].concat());
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_cut_in_half_is_half_answered_and_not_sent_again() {
    let fake = Fake::with(|parts| Reply::Text(parts[1].clone().into_bytes()));
    let batcher = batcher(&fake);
    fake.hold();
    let mut calls = Vec::new();
    for key in names(0..10) {
        calls.push(queued(&batcher, &key, Admission::Acquire).await);
    }
    sleep(TICK).await;
    assert_eq!(fake.batches(), [10]);
    fake.end_after(3);
    for (number, call) in calls.into_iter().enumerate() {
        match call.await {
            Ok(Reply::Text(key)) if number < 3 => assert_eq!(key, number.to_string().into_bytes()),
            Err(Failure::Lost(_)) if number >= 3 => {}
            other => panic!("{number}: {other:?}"),
        }
    }
    fake.settle_connectionless();
    batcher.call(get("next"), Admission::Other).await.unwrap();
    assert_eq!(fake.keys().len(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ended_silently_costs_no_call() {
    let fake = Fake::new();
    let batcher = batcher(&fake);
    batcher.call(get("a"), Admission::Other).await.unwrap();
    fake.end_silently();
    batcher.call(get("b"), Admission::Other).await.unwrap();
    assert_eq!((fake.connects(), fake.keys()), (2, vec!["a".to_owned(), "b".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_failed_connect_refuses_what_is_queued_and_what_arrives_with_its_reason() {
    let fake = Fake::new();
    let source = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    let error = BackendError::new(BackendErrorKind::Connection, "no route").with_source(source);
    fake.refuse(Some(error));
    let batcher = batcher(&fake);
    let (one, other) = join(
        batcher.call(get("a"), Admission::Acquire),
        batcher.call(get("b"), Admission::Release),
    )
    .await;
    let meanwhile = batcher.call(get("c"), Admission::Release).now_or_never().unwrap();
    for answer in [one, other, meanwhile] {
        let Err(Failure::NotSent(error)) = answer else { panic!("{answer:?}") };
        assert_eq!(error.to_string(), "no route");
        let source = std::error::Error::source(&error).unwrap();
        assert!(source.is::<std::io::Error>(), "a_node_error_has_its_client_error_as_source");
    }
    assert_eq!(fake.connects(), 1);
    fake.refuse(None);
    sleep(Duration::from_millis(60)).await;
    batcher.call(get("d"), Admission::Other).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn back_offs_double_up_to_a_second_with_jitter() {
    let fake = Fake::new();
    fake.refuse(Some(BackendError::new(BackendErrorKind::Connection, "no route")));
    let batcher = batcher(&fake);
    let (mut pauses, mut failed_at) = (Vec::new(), None::<Instant>);
    while fake.connects() < 12 {
        let before = fake.connects();
        assert!(is_not_sent(&batcher.call(get("k"), Admission::Other).await));
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
    fake.refuse(None);
    sleep(Duration::from_secs(1)).await;
    batcher.call(get("k"), Admission::Other).await.unwrap();
    fake.end_silently();
    fake.refuse(Some(BackendError::new(BackendErrorKind::Connection, "no route")));
    assert!(is_not_sent(&batcher.call(get("k"), Admission::Other).await));
    fake.refuse(None);
    sleep(Duration::from_millis(60)).await;
    batcher.call(get("k"), Admission::Other).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connect_that_hangs_is_given_up() {
    let fake = Fake::new();
    fake.hang();
    let batcher = batcher(&fake);
    let start = Instant::now();
    let Err(Failure::NotSent(error)) = batcher.call(get("k"), Admission::Other).await else {
        panic!("sent without a connection");
    };
    assert_eq!(start.elapsed().as_secs(), CONNECT_TIMEOUT.as_secs());
    assert_eq!(error.kind(), BackendErrorKind::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_every_connection_is_not_asked_again_and_again() {
    let fake = Fake::new();
    fake.hold();
    let batcher = batcher(&fake);
    let start = Instant::now();
    for _ in 0..10 {
        let call = queued(&batcher, "k", Admission::Other).await;
        sleep(TICK).await;
        if fake.is_connected() {
            fake.end_after(0);
        }
        assert!(call.await.is_err());
        while batcher.call(get("probe"), Admission::Other).now_or_never().is_some() {
            sleep(Duration::from_millis(1)).await;
        }
    }
    assert!(start.elapsed() > Duration::from_secs(2), "{:?}", start.elapsed());
}

/// Such a node would keep the key for its ttl, since no release works there.
#[tokio::test(start_paused = true)]
async fn a_node_without_scripts_grants_nothing_it_cannot_release() {
    let is_forbidden = Arc::new(Mutex::new(true));
    let forbidden = Arc::clone(&is_forbidden);
    let fake = Fake::with_setup(move |parts| match parts[0].as_str() {
        "EVAL" if *forbidden.lock().unwrap() => {
            Reply::Error("NOPERM this user has no permissions to run the 'eval' command".into())
        }
        "EVAL" => Reply::Int(1),
        "COMMAND" => Reply::List(Vec::new()),
        _ => Reply::Text(b"OK".to_vec()),
    });
    let batcher = batcher(&fake);
    let Err(Failure::NotSent(error)) = batcher.call(get("k"), Admission::Acquire).await else {
        panic!("sent to a node that cannot release");
    };
    assert_eq!(error.kind(), BackendErrorKind::Permission);
    assert!(error.to_string().contains("'eval'"), "{error}");
    assert!(fake.keys().is_empty());
    // It is asked anew, so that a permission that was granted is noticed.
    *is_forbidden.lock().unwrap() = false;
    sleep(Duration::from_millis(60)).await;
    batcher.call(get("k"), Admission::Acquire).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_forbidden_key_costs_no_other_call() {
    let fake = Fake::with(|parts| match parts[1].as_str() {
        "secret" => Reply::Error("NOPERM No permissions to access a key".into()),
        _ => Reply::Int(1),
    });
    let batcher = batcher(&fake);
    let keys = ["a", "secret", "b"].map(|key| batcher.call(get(key), Admission::Other));
    let replies: Vec<Reply> = join_all(keys).await.into_iter().map(Result::unwrap).collect();
    assert_eq!((&replies[0], &replies[2]), (&Reply::Int(1), &Reply::Int(1)));
    assert!(matches!(&replies[1], Reply::Error(text) if text.starts_with("NOPERM")));
    assert_eq!((fake.batches(), fake.connects()), (vec![3], 1));
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_ends_the_task_and_its_connection() {
    let fake = Fake::new();
    let lost = Arc::new(Mutex::new(0));
    let listener = {
        let lost = Arc::clone(&lost);
        move |push| *lost.lock().unwrap() += usize::from(push == Push::ConnectionLost)
    };
    let (dial, runtime) = (Arc::new(fake.clone()), TokioRuntime::new());
    let batcher = Batcher::new(dial, runtime, Purpose::Commands, CONNECT_TIMEOUT, listener);
    let clone = batcher.clone();
    batcher.call(get("a"), Admission::Other).await.unwrap();
    drop(batcher);
    sleep(TICK).await;
    assert!(fake.is_connected(), "a clone is left");
    clone.call(get("b"), Admission::Other).await.unwrap();
    assert_eq!((fake.connects(), *lost.lock().unwrap()), (1, 0));
    // Also while a node is silent.
    fake.hold();
    let call = queued(&clone, "c", Admission::Other).await;
    sleep(TICK).await;
    drop(call);
    drop(clone);
    sleep(TICK).await;
    assert!(!fake.is_connected());
    assert!(*lost.lock().unwrap() > 0, "watches must not outlive their connection");
}

/// Spends what tokio gives a task for one poll.
async fn spend_the_budget() {
    poll_fn(|context| {
        while pin!(tokio::task::consume_budget()).poll(context).is_ready() {}
        Poll::Ready(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_spent_budget_does_not_delay_the_first_send() {
    let fake = Fake::new();
    let batcher = batcher(&fake);
    spend_the_budget().await;
    // Both in one poll of this task, whose budget is spent.
    let first = queued(&batcher, "first", Admission::Acquire).await;
    let other = tokio::spawn({
        let batcher = batcher.clone();
        async move { batcher.call(get("second"), Admission::Release).await }
    });
    first.await.unwrap();
    other.await.unwrap().unwrap();
    assert_eq!(fake.keys(), ["first", "second"]);
    // The fake hands nothing over before it has spent more than a budget: the task has to see to it
    // that one poll is enough.
    fake.hold();
    let _call = queued(&batcher, "third", Admission::Acquire).await;
    tokio::task::yield_now().await;
    assert_eq!(fake.keys().len(), 3);
}

/// Such calls were dropped without an answer.
#[test]
fn calls_are_answered_when_their_runtime_ends() {
    let build = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().start_paused(true).build().unwrap()
    };
    let (one, other) = (build(), build());
    let fake = Fake::new();
    fake.hold();
    let batcher = {
        let _entered = one.enter();
        batcher(&fake)
    };
    let mut sent = Box::pin(batcher.call(get("sent"), Admission::Acquire));
    let mut waiting = Vec::new();
    one.block_on(async {
        assert!(poll!(&mut sent).is_pending());
        sleep(TICK).await;
        for key in names(0..3) {
            drop(queued(&batcher, &key, Admission::Other).await);
            let _fills_the_window = queued(&batcher, &key, Admission::Other).await;
            sleep(TICK).await;
        }
        for key in names(3..6) {
            waiting.push(queued(&batcher, &key, Admission::Release).await);
        }
        assert_eq!(fake.batches(), [1, 1, 1, 1]);
    });
    drop(one);
    other.block_on(async {
        let sent = timeout(LIMIT, sent).await.expect("an answer");
        assert!(is_lost(&sent), "it was in flight");
        let waiting = timeout(LIMIT, join_all(waiting)).await.expect("an answer for each");
        assert!(waiting.iter().all(is_not_sent));
        fake.settle_connectionless();
        let next = batcher.call(get("next"), Admission::Other);
        timeout(LIMIT, next).await.expect("another task").unwrap();
        assert_eq!((fake.connects(), fake.keys().last().unwrap().as_str()), (2, "next"));
    });
}

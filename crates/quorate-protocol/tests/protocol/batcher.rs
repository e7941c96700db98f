//! The batcher: order, bounds and runtimes that end.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::join_all;
use quorate_core::LockManager;
use quorate_core::backend::{Mode, Operation, ReleaseOptions, Vote};
use quorate_core::runtime::{BoxFuture, EntropyError, Runtime, TokioRuntime};
use quorate_protocol::{RedisNode, Settings, Value};
use tokio::time::{sleep, sleep_until, timeout};

use crate::calls::{
    TICK, acquire, begin, claim, held, in_turn, is_lost, is_not_sent, on, pair, release, runtime,
    vote,
};

/// So that a test ends which would wait for ever. Virtual.
const LIMIT: Duration = Duration::from_secs(3600);

/// How many acquires are queued at most.
const MAX_ACQUIRES: usize = 4096;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The paused clock of tokio. That of [`TokioRuntime`] goes on.
#[derive(Debug)]
struct Paused;

impl Runtime for Paused {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        sleep_until(deadline.into()).boxed()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(tokio::spawn(task));
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        TokioRuntime::new().fill_random(bytes)
    }
}

fn names(range: Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// The release of a reader, which shares no script.
fn unread(name: &str) -> Operation {
    Operation::Release(claim(&[name]).with_mode(Mode::Shared), ReleaseOptions::default())
}

#[tokio::test(start_paused = true)]
async fn the_order_at_the_node_is_that_of_the_begins() {
    let (fake, node) = held();
    let mut calls = Vec::new();
    for (number, name) in names(0..300).into_iter().enumerate() {
        calls.push(begin(&node, [acquire, unread, acquire][number % 3](&name)));
        if number % 7 == 3 {
            sleep(TICK).await;
        }
    }
    sleep(TICK).await;
    fake.settle();
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    assert_eq!(fake.keys(), names(0..300));
}

#[tokio::test(start_paused = true)]
async fn each_reply_reaches_its_own_call() {
    let (_, node) = on(|parts| {
        let number = parts[1].parse::<usize>().ok()?;
        (number % 3 == 0).then(|| Value::Text(b"another".to_vec()))
    });
    let calls = names(0..500).into_iter().map(|name| begin(&node, acquire(&name)));
    for (number, result) in join_all(calls).await.into_iter().enumerate() {
        assert_eq!(vote(result).unwrap() == Vote::Granted, number % 3 != 0, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_is_bounded_in_commands() {
    let (fake, node) = pair();
    join_all((0..200).map(|_| begin(&node, acquire("k")))).await;
    assert_eq!(fake.batches(), [64, 64, 64, 8]);
}

#[tokio::test(start_paused = true)]
async fn four_pipelines_are_in_flight_and_no_more() {
    let (fake, node) = held();
    // More than one pipeline can hold are queued.
    let calls = in_turn(&node, 0..71, acquire).await;
    assert_eq!(fake.batches(), [1, 1, 1, 1]);
    fake.settle_one();
    sleep(TICK).await;
    assert_eq!(fake.batches(), [1, 1, 1, 1, 64]);
    fake.settle_one();
    sleep(TICK).await;
    assert_eq!(fake.batches(), [1, 1, 1, 1, 64, 3]);
    fake.settle();
    assert!(join_all(calls).await.iter().all(Result::is_ok));
}

/// The extension tells that the node answers. A release that had left at once would be unanswered after 500 ms.
#[tokio::test(start_paused = true)]
async fn a_release_that_waits_for_a_full_window_has_a_node_timeout_more() {
    let (fake, node) = pair();
    let manager = LockManager::builder([Arc::clone(&node)]).runtime(Paused).build().unwrap();
    let extended = manager.lock("extended").await.unwrap();
    let released = manager.lock("released").await.unwrap();
    fake.hold(true);
    let extension = tokio::spawn(async move { extended.extend().await.map(|()| extended) });
    sleep(TICK).await;
    let _in_flight = in_turn(&node, 0..3, acquire).await;
    let before = fake.batches().len();
    let release = tokio::spawn(released.release());
    sleep(Duration::from_millis(400)).await;
    assert_eq!(fake.batches().len(), before, "the window is full");
    fake.settle_one();
    sleep(Duration::from_millis(300)).await;
    assert_eq!(fake.batches().len(), before + 1);
    fake.settle();
    assert!(extension.await.unwrap().is_ok());
    release.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn window_slots_are_not_leaked() {
    let (fake, node) = pair();
    for _ in 0..20 {
        fake.hold(true);
        // Calls that are given up while they are in flight, and a connection that ends.
        for name in names(0..6) {
            drop(begin(&node, acquire(&name)));
            drop(begin(&node, release(&name)));
            let _in_flight = begin(&node, acquire(&name));
            sleep(TICK).await;
        }
        fake.settle();
        let free = timeout(LIMIT, begin(&node, acquire("k"))).await;
        free.expect("a place in the window").unwrap();
        fake.hold(true);
        let call = begin(&node, acquire("k"));
        sleep(TICK).await;
        fake.end_after(0);
        assert!(is_lost(&timeout(LIMIT, call).await.expect("the end of the connection")));
        fake.hold(false);
    }
    fake.hold(true);
    let before = fake.batches().len();
    let _calls = in_turn(&node, 0..4, acquire).await;
    assert_eq!(fake.batches().len() - before, 4, "all four pipelines are still to be had");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_given_up_in_the_queue_is_not_sent() {
    let (fake, node) = pair();
    let given_up = begin(&node, acquire("given up"));
    let release = begin(&node, release("release"));
    drop(given_up);
    release.await.unwrap();
    assert_eq!(fake.keys(), ["release"]);
}

#[tokio::test(start_paused = true)]
async fn acquires_are_bounded_and_releases_are_admitted() {
    let (fake, node) = pair();
    fake.set(|state| state.is_hanging = true);
    let mut calls: Vec<_> =
        names(0..MAX_ACQUIRES).iter().map(|name| begin(&node, acquire(name))).collect();
    let refused = begin(&node, acquire("k")).now_or_never().unwrap();
    assert!(is_not_sent(&refused));
    for operation in [release("release"), unread("other")] {
        let mut call = begin(&node, operation);
        assert!((&mut call).now_or_never().is_none(), "it was refused");
        calls.push(call);
    }
    // The connect fails at its timeout, all are refused, and there is room again.
    sleep(CONNECT_TIMEOUT + TICK).await;
    assert!(join_all(calls).await.iter().all(is_not_sent));
    sleep(CONNECT_TIMEOUT).await;
    assert!(begin(&node, acquire("k")).now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_has_left_makes_room_for_another() {
    let (_fake, node) = pair();
    for _ in 0..2 {
        let calls = names(0..MAX_ACQUIRES);
        let calls = calls.iter().map(|name| begin(&node, acquire(name)));
        let calls: Vec<_> = calls.collect();
        assert!(join_all(calls).await.iter().all(Result::is_ok));
    }
}

/// A waiter asks such a node once a second, and gives up each time.
#[tokio::test(start_paused = true)]
async fn a_hung_node_keeps_nothing_of_calls_that_were_given_up() {
    let (fake, _) = held();
    let mut settings = Settings::default();
    settings.limits.reply = Duration::MAX;
    let node = Arc::new(RedisNode::new(fake.clone(), &settings));
    let _in_flight = in_turn(&node, 0..4, acquire).await;
    let kept = begin(&node, acquire("kept"));
    for _ in 0..3 * MAX_ACQUIRES {
        assert!(begin(&node, acquire("acquire")).now_or_never().is_none(), "it was refused");
        drop(begin(&node, acquire("other")));
        sleep(Duration::from_millis(1)).await;
    }
    fake.settle();
    kept.await.unwrap();
    assert_eq!(fake.keys(), ["0", "1", "2", "3", "kept"]);
}

#[test]
fn calls_are_answered_when_their_runtime_ends() {
    let (one, other) = (runtime(), runtime());
    let (fake, node) = {
        let _entered = one.enter();
        held()
    };
    let (sent, waiting) = one.block_on(async {
        let sent = begin(&node, acquire("sent"));
        sleep(TICK).await;
        for name in names(0..3) {
            drop(begin(&node, acquire(&name)));
            let _fills_the_window = begin(&node, acquire(&name));
            sleep(TICK).await;
        }
        let waiting: Vec<_> = names(3..6).iter().map(|name| begin(&node, release(name))).collect();
        assert_eq!(fake.batches(), [1, 1, 1, 1]);
        (sent, waiting)
    });
    drop(one);
    other.block_on(async {
        let sent = timeout(LIMIT, sent).await.expect("an answer");
        assert!(is_lost(&sent), "it was in flight");
        let waiting = timeout(LIMIT, join_all(waiting)).await.expect("an answer for each");
        assert!(waiting.iter().all(is_not_sent));
        fake.hold(false);
        let next = begin(&node, acquire("next"));
        timeout(LIMIT, next).await.expect("another task").unwrap();
        assert_eq!((fake.connects(), fake.keys().last().unwrap().as_str()), (2, "next"));
    });
    // Outside of any runtime: one helper thread.
    drop(other);
    assert!(Arc::strong_count(&node) == 1);
}

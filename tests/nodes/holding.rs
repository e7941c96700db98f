//! Leases that last a minute of real time, while the nodes under them fail one after the other.

use std::convert::Infallible;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use quorate::runtime::time_suspended;
use quorate::{Lease, Lost, Released, Said, Stopped, WithError};
use quorate_tests::{Nodes, RedisServer, Referee};

use crate::client::{BACKSTOP, Client, nothing_is_left, on_tokio};
use crate::contention::{Contender, contend};

const HOLD: Duration = Duration::from_secs(60);
const TTL: Duration = Duration::from_secs(2);

/// Longer than other tests on the same machine keep us from noticing.
const MARGIN: Duration = Duration::from_millis(400);

/// One is kept alive by its guard, the other by `with`.
const LOCKS: [&str; 2] = ["kept", "worked"];

/// Both clients at once, as most of the minute is waiting.
#[test]
fn leases_last_while_nodes_fail_one_by_one_and_end_in_time_when_three_do() {
    thread::scope(|scope| {
        scope.spawn(|| hold(Client::Redis, Client::Fred));
        scope.spawn(|| hold(Client::Fred, Client::Redis));
    });
}

fn hold(client: Client, rival: Client) {
    let nodes = Nodes::start(5);
    let referee = RedisServer::start();
    let section = |lock| Referee::to_port(referee.port(), lock).unwrap();
    thread::scope(|scope| {
        let failing = scope.spawn(|| {
            let tokens = LOCKS.map(|lock| token_on_all(&nodes, lock));
            let mut rivals = LOCKS.map(|lock| contend(rival, &referee, lock, 1, &nodes));
            fail_one_by_one(&nodes, &tokens);
            assert!(rivals.iter_mut().all(Contender::is_waiting), "nobody else had a lock");
            nodes[..3].iter().for_each(RedisServer::pause);
            (tokens, rivals)
        });
        on_tokio(async {
            let builder = client.builder(&nodes).ttl(TTL).margin(MARGIN);
            // So that this ends, too, if something else fails.
            let manager = builder.hold_limit(2 * HOLD).build().unwrap();
            let kept = manager.lock(LOCKS[0]).await.unwrap();
            kept.keep_alive();
            let (tell, with_told) = channel();
            let visitor = section(LOCKS[1]);
            let with = manager.with(LOCKS[1], async move |lease| work(lease, visitor, tell).await);
            let with = tokio::spawn(with);

            let (tell, run_told) = channel();
            let ended = kept.run(work(kept.lease(), section(LOCKS[0]), tell)).await;
            // They wake with the key: the work is over before the first of them has lost it.
            nodes[..3].iter().for_each(RedisServer::resume);
            let left = nodes.iter().map(|node| node.get(LOCKS[0])).collect::<Vec<_>>();
            let (tokens, [kept_rival, with_rival]) = failing.join().unwrap();
            assert!(left.iter().all(|token| token.as_ref() == Some(&tokens[0])), "{client:?}");
            let Err(Stopped { reason, .. }) = ended;
            assert_three_were_silent(&reason);
            let shift = run_told.recv_timeout(BACKSTOP).unwrap();
            assert!(!shift.left.is_zero(), "{client:?}");
            assert_eq!(kept.release().await.unwrap(), Released::Lost);
            kept_rival.succeeds();
            assert_eq!(Referee::verdict(&referee, LOCKS[0]), Some(shift.visits + 1));

            // The other one may have got over it, if its turn to renew came later.
            if !with.is_finished() {
                nodes[..3].iter().for_each(RedisServer::pause);
            }
            let ended = with.await.unwrap();
            nodes[..3].iter().for_each(RedisServer::resume);
            let Err(WithError::Lost(Stopped { reason, .. })) = ended else {
                panic!("{ended:?}");
            };
            assert_three_were_silent(&reason);
            let shift = with_told.recv_timeout(BACKSTOP).unwrap();
            assert!(!shift.left.is_zero(), "{client:?}");
            with_rival.succeeds();
            assert_eq!(Referee::verdict(&referee, LOCKS[1]), Some(shift.visits + 1));
            nothing_is_left(&manager, &nodes).await;
        });
    });
}

/// One node is killed and comes back empty, the next one is stopped for a while, and so on.
fn fail_one_by_one(nodes: &Nodes, tokens: &[Vec<u8>; 2]) {
    // Two in three are over before the ttl is.
    const STOPS: [Duration; 3] =
        [Duration::from_millis(500), Duration::from_millis(1500), Duration::from_millis(2500)];
    let end = Instant::now() + HOLD;
    let mut stops = STOPS.iter().cycle();
    let mut turn = 0;
    while Instant::now() < end {
        let node = &nodes[turn % nodes.len()];
        if turn % 2 == 0 {
            node.kill();
            thread::sleep(TTL / 4);
            node.restart();
        } else {
            node.pause();
            thread::sleep(*stops.next().unwrap());
            node.resume();
        }
        // All five have it before the next one fails: nothing but a repair brings it back.
        let back = Instant::now() + BACKSTOP;
        while LOCKS.iter().zip(tokens).any(|(lock, token)| node.get(lock).as_ref() != Some(token)) {
            assert!(Instant::now() < back, "{node} did not get its keys back");
            thread::sleep(Duration::from_millis(10));
        }
        turn += 1;
    }
}

/// What the nodes keep for a lock, once all of them do.
fn token_on_all(nodes: &Nodes, lock: &str) -> Vec<u8> {
    let back = Instant::now() + BACKSTOP;
    loop {
        let kept: Option<Vec<_>> = nodes.iter().map(|node| node.get(lock)).collect();
        match kept {
            Some(tokens) if tokens.iter().all(|token| *token == tokens[0]) => {
                return tokens[0].clone();
            }
            _ => assert!(Instant::now() < back, "{lock} is not on all nodes"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
fn assert_three_were_silent(reason: &Lost) {
    let Lost::Expired { votes } = reason else { panic!("{reason:?}") };
    // One that hung before the last round began may have been left alone in it.
    let is_silent = |said: &Said| match said {
        Said::Silent { .. } => true,
        Said::Failed(error) => error.to_string().starts_with("not asked: it has not answered"),
        _ => false,
    };
    let silent: Vec<_> = votes.iter().map(|node| is_silent(&node.said)).collect();
    assert_eq!(silent, [true, true, true, false, false], "{votes}");
}

/// What is known of some work when it is over.
#[derive(Debug)]
struct Shift {
    /// How much was left of the lease.
    left: Duration,
    visits: u64,
}

/// Visits the referee as long as it is let.
async fn work(lease: Lease, mut referee: Referee, tell: Sender<Shift>) -> Infallible {
    let mut worker = Worker { valid_until: lease.valid_until(), visits: 0, tell };
    loop {
        // It only grows as long as the lease lasts, so what is known here is rather too little.
        worker.valid_until = lease.valid_until();
        referee.visit().unwrap();
        worker.visits += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

struct Worker {
    valid_until: Instant,
    visits: u64,
    tell: Sender<Shift>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let now = Instant::now() + time_suspended();
        let left = self.valid_until.saturating_duration_since(now);
        self.tell.send(Shift { left, visits: self.visits }).ok();
    }
}

//! Leases that are renewed on real nodes while these fail one after the other, and the end of a lease
//! when a majority hangs.

use std::convert::Infallible;
use std::fmt;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use quorate::error::Answer;
use quorate::{Lost, Stopped, WithError};
use quorate_tests::wait::{LIMIT, eventually, receive, times};
use quorate_tests::{Nodes, RedisServer, Referee};
use tokio::sync::{oneshot, watch};

use crate::client::{Client, close, on_tokio};
use crate::contention::{Contender, contend};

/// One is kept alive by its guard, the other by `with`.
const LOCKS: [&str; 2] = ["kept", "worked"];

/// Both clients at once, as most of it is waiting.
fn for_both_clients(check: impl Fn(Client, Client) + Sync) {
    thread::scope(|scope| {
        scope.spawn(|| check(Client::Redis, Client::Fred));
        scope.spawn(|| check(Client::Fred, Client::Redis));
    });
}

#[test]
fn leases_last_while_nodes_fail_one_by_one_and_no_rival_gets_the_lock() {
    for_both_clients(last);
}

fn last(client: Client, rival: Client) {
    let nodes = Nodes::start(5);
    let referee = RedisServer::start();
    let section = |lock| Referee::to_port(referee.port(), lock).unwrap();
    thread::scope(|scope| {
        let (stop, stopped) = watch::channel(());
        let failing = scope.spawn(|| {
            // The work ends with this thread, whatever ends that.
            let _stop = stop;
            let tokens = LOCKS.map(|lock| token_on_all(&nodes, lock));
            let mut rivals = LOCKS.map(|lock| contend(rival, &referee, lock, 1, &nodes));
            fail_one_by_one(&nodes, &tokens);
            assert!(rivals.iter_mut().all(Contender::is_waiting), "a rival had a lock");
            rivals
        });
        on_tokio(async {
            let builder = client.builder(&nodes).renew_interval(Duration::from_millis(20));
            let manager = builder.build().unwrap();
            let kept = manager.lock(LOCKS[0]).await.unwrap();
            kept.auto_renew();
            let worked = async |lock, tell| {
                let mut stopped = stopped.clone();
                tokio::select! {
                    never = work(section(lock), tell) => match never {},
                    _ = stopped.changed() => {}
                }
            };
            let [(tell_run, run_told), (tell_with, with_told)] = [channel(), channel()];
            let runs = kept.run(worked(LOCKS[0], tell_run));
            let with = manager.with(LOCKS[1], async |_| worked(LOCKS[1], tell_with).await);
            let (ran, worked) = tokio::join!(runs, with);
            ran.unwrap();
            worked.unwrap();
            kept.release().await.unwrap();
            failing.join().unwrap().into_iter().for_each(Contender::succeeds);
            for (lock, told) in LOCKS.into_iter().zip([run_told, with_told]) {
                let visits = receive(&told).unwrap();
                assert!(visits > 0, "{client:?}: nobody worked");
                assert_eq!(
                    Referee::verdict(&referee, lock),
                    Some(visits + 1),
                    "{client:?}, {lock}"
                );
            }
            close(&manager, &nodes).await;
        });
    });
}

/// One node is killed and comes back empty, the next one is stopped, and so on.
fn fail_one_by_one(nodes: &Nodes, tokens: &[Vec<u8>; 2]) {
    for turn in 0..times(7, 60) {
        let node = &nodes[turn % nodes.len()];
        if turn % 2 == 0 {
            node.kill();
            wait_for_renewals(&nodes[(turn + 1) % nodes.len()]);
            node.restart();
        } else {
            node.pause();
            wait_for_renewals(&nodes[(turn + 1) % nodes.len()]);
            node.resume();
        }
        // All five have it before the next one fails: nothing but a repair brings it back.
        eventually(HasKeys(node, tokens), || {
            LOCKS.iter().zip(tokens).all(|(lock, token)| node.get(lock).as_ref() == Some(token))
        });
    }
}

/// A node that is to get its keys back; `Display` is what it has, and its connections.
struct HasKeys<'a>(&'a RedisServer, &'a [Vec<u8>; 2]);

impl fmt::Display for HasKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(node, tokens) = self;
        let kept = LOCKS.map(|lock| node.get(lock));
        let clients = node.cli(&["CLIENT", "LIST"]);
        write!(f, "{node} has {kept:?}, and not {tokens:?}; its clients: {}", clients.text())
    }
}

/// Renewals go on at a node while another one is away.
fn wait_for_renewals(node: &RedisServer) {
    let scripts = || {
        let told = node.cli(&["INFO", "commandstats"]).text();
        let calls = told.lines().find_map(|line| line.strip_prefix("cmdstat_pexpire:calls="));
        calls.map_or(0, |calls| calls.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    let before = scripts();
    eventually("ten renewals", || scripts() >= before + 10);
}

/// What the nodes keep for a lock, once all of them do.
fn token_on_all(nodes: &Nodes, lock: &str) -> Vec<u8> {
    let kept = || nodes.iter().map(|node| node.get(lock)).collect::<Option<Vec<_>>>();
    eventually("a lock is on all nodes", || {
        kept().is_some_and(|tokens| tokens.iter().all(|token| *token == tokens[0]))
    });
    kept().unwrap().remove(0)
}

/// That the holder is told in time is shown on a clock that is set by hand: by the rules H4 and H5,
/// and in the seeded world.
#[test]
fn a_lease_ends_when_three_of_five_nodes_hang_and_they_are_named() {
    for_both_clients(|client, rival| {
        let mut ttl = Duration::from_secs(1);
        // Else the machine was too slow for the lease to be renewed at all.
        while !ends_by_silence(client, rival, ttl) {
            assert!(ttl < LIMIT, "{client:?}");
            ttl *= 2;
        }
    });
}

/// Whether both leases ended because three nodes were silent.
fn ends_by_silence(client: Client, rival: Client, ttl: Duration) -> bool {
    let nodes = Nodes::start(5);
    let referee = RedisServer::start();
    let section = |lock| Referee::to_port(referee.port(), lock).unwrap();
    on_tokio(async {
        let manager = client.builder(&nodes).ttl(ttl).node_timeout(ttl / 4).build().unwrap();
        let [(tell_run, run_told), (tell_with, with_told)] = [channel(), channel()];
        let kept = manager.lock(LOCKS[0]).await.unwrap();
        kept.auto_renew();
        let (holds, held) = oneshot::channel();
        let visitor = section(LOCKS[1]);
        let with = tokio::spawn(manager.with(LOCKS[1], async move |_| {
            holds.send(()).unwrap();
            work(visitor, tell_with).await
        }));
        held.await.unwrap();
        nodes[..3].iter().for_each(RedisServer::pause);
        // From here on, nobody gets a quorum.
        let rivals = LOCKS.map(|lock| contend(rival, &referee, lock, 1, &nodes));
        let Err(Stopped { reason, .. }) = kept.run(work(section(LOCKS[0]), tell_run)).await;
        let Err(WithError::Lost(Stopped { reason: other, .. })) = with.await.unwrap() else {
            panic!("it ended for another reason");
        };
        let visits = [run_told, with_told].map(|told| receive(&told).unwrap_or_default());
        for (lock, visits) in LOCKS.into_iter().zip(visits) {
            assert_eq!(Referee::verdict(&referee, lock), Some(visits), "{client:?}, {lock}");
        }
        nodes[..3].iter().for_each(RedisServer::resume);
        assert!(kept.release().await.unwrap_err().is_lost());
        rivals.into_iter().for_each(Contender::succeeds);
        for (lock, visits) in LOCKS.into_iter().zip(visits) {
            assert_eq!(Referee::verdict(&referee, lock), Some(visits + 1), "{client:?}, {lock}");
        }
        close(&manager, &nodes).await;
        are_three_silent(&reason) && are_three_silent(&other)
    })
}

fn are_three_silent(reason: &Lost) -> bool {
    let Lost::Expired { last } = reason else { panic!("{reason}") };
    let silent = last.nodes().iter().map(|node| matches!(node.answer, Answer::NoReply { .. }));
    silent.eq([true, true, true, false, false])
}

/// Visits the referee as long as it is let, and tells how often.
async fn work(mut referee: Referee, tell: Sender<u64>) -> Infallible {
    let mut worker = Worker { visits: 0, tell };
    loop {
        referee.visit().unwrap();
        worker.visits += 1;
        tokio::task::yield_now().await;
    }
}

struct Worker {
    visits: u64,
    tell: Sender<u64>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.tell.send(self.visits).ok();
    }
}

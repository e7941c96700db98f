//! Three processes, one of which leads. The leader dies, is stopped, is cut off or resigns.

use std::thread;
use std::time::Duration;

use quorate_tests::clock::Nanos;
use quorate_tests::keys::waiters;
use quorate_tests::wait::{LONG_TTL, eventually};
use quorate_tests::{End, Mode, Nodes, Program, Proxy, RedisServer, When};

use crate::client::Client;

/// Short enough to be waited for.
const TTL: Duration = Duration::from_secs(3);

/// A line of a process: in which term its body did something, and when.
#[derive(Clone, Debug)]
struct Line {
    token: u64,
    at: Nanos,
}

/// A process that leads whenever it can.
fn start(client: Client, ttl: Duration, addresses: &[String]) -> Program {
    let words = ["lead".to_owned(), client.word().to_owned(), ttl.as_millis().to_string()];
    let words = words.into_iter().chain(addresses.iter().cloned());
    Program::start(env!("CARGO_BIN_EXE_program"), words)
}

/// What the body of a process did so far.
fn all(process: &Program, what: &str) -> Vec<Line> {
    let parse = |line: String| match line.split(' ').collect::<Vec<_>>()[..] {
        [it, token, at] if it == what => {
            Some(Line { token: token.parse().ok()?, at: at.parse().ok()? })
        }
        _ => None,
    };
    process.lines().into_iter().filter_map(parse).collect()
}

/// What becomes of the first leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Killed,
    Stopped,
    CutOff,
    Resigns,
}

#[test]
fn e1_a_leader_that_is_killed_is_followed() {
    follow(Fate::Killed);
}

#[test]
fn e1_a_leader_that_is_stopped_does_not_go_on() {
    follow(Fate::Stopped);
}

#[test]
fn e1_a_leader_that_is_cut_off_stops_before_the_next_one_begins() {
    follow(Fate::CutOff);
}

#[test]
fn e5_a_leader_that_resigns_is_followed_at_once() {
    follow(Fate::Resigns);
}

fn follow(fate: Fate) {
    thread::scope(|scope| {
        for client in Client::ALL {
            scope.spawn(move || follow_with(client, fate));
        }
    });
}

fn follow_with(client: Client, fate: Fate) {
    // Who resigns is not waited for: nothing but its release frees the lock in time.
    let ttl = if fate == Fate::Resigns { LONG_TTL } else { TTL };
    let nodes = Nodes::start(3);
    let proxies: Vec<Proxy> = nodes.iter().map(|node| Proxy::start(node.port())).collect();
    let through: Vec<String> = proxies.iter().map(Proxy::address).collect();
    let mut first = start(client, ttl, &through);
    eventually("the first process leads", || !all(&first, "works").is_empty());
    let others = [(); 2].map(|()| start(client, ttl, &nodes.addresses()));
    let waiting = |node: &RedisServer| node.cli(&["ZCARD", &waiters("leader")]).integer();
    eventually("both others wait", || nodes.iter().map(waiting).max() == Some(2));

    match fate {
        Fate::Killed => first.kill(),
        Fate::Stopped => first.stop(),
        Fate::CutOff => proxies.iter().for_each(|proxy| proxy.set(Mode::End(End::Cut, When::Now))),
        Fate::Resigns => first.say("resign\n"),
    }
    eventually("another process leads", || {
        others.iter().any(|other| !all(other, "works").is_empty())
    });
    if fate == Fate::Stopped {
        first.go_on();
    }
    if fate != Fate::Killed {
        let terms = || all(&first, "leads").len();
        eventually("its body is dropped", || all(&first, "over").len() >= terms());
    }
    if fate == Fate::Resigns {
        first.end();
    }
    judge(client, fate, &first, &others);
}

/// No body works while another one does: in the order of time, the terms of all work never fall.
fn judge(client: Client, fate: Fate, first: &Program, others: &[Program; 2]) {
    let of_all = |what| [first].into_iter().chain(others).flat_map(move |it| all(it, what));
    let mut works: Vec<Line> = of_all("works").collect();
    works.sort_by_key(|line| line.at);
    let falls = works.windows(2).find(|two| two[1].token < two[0].token);
    assert!(falls.is_none(), "{client:?}, {fate:?}: {falls:?}");
    // A process that is stopped within a piece of work ends that piece.
    let late: Vec<Line> = of_all("late").collect();
    assert!(late.len() <= usize::from(fate == Fate::Stopped), "{client:?}, {fate:?}: {late:?}");
}

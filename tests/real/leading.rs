//! Three processes, one of which leads. The leader dies, is stopped, is cut off or resigns.

use std::thread;
use std::time::Duration;

use quorate_tests::keys::waiters;
use quorate_tests::wait::{LONG_TTL, eventually};
use quorate_tests::{End, Mode, Nodes, Program, Proxy, RedisServer, When};

use crate::client::Client;
use crate::working::{assert_right, holds, start};

/// Short enough to be waited for.
const TTL: Duration = Duration::from_secs(3);

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
    // A leader that resigns is not waited for: only its release frees the lock in time.
    let ttl = if fate == Fate::Resigns { LONG_TTL } else { TTL };
    let nodes = Nodes::start(3);
    let proxies: Vec<Proxy> = nodes.iter().map(|node| Proxy::start(node.port())).collect();
    let through: Vec<String> = proxies.iter().map(Proxy::address).collect();
    let mut first = start("leading", client, ttl, &through);
    let works = |process: &Program| holds([process]).iter().any(|hold| hold.end > hold.acquired);
    eventually("the first process leads", || works(&first));
    let others = [(); 2].map(|()| start("leading", client, ttl, &nodes.addresses()));
    let waiting = |node: &RedisServer| node.cli(&["ZCARD", &waiters("leader")]).integer();
    eventually("both others wait", || nodes.iter().map(waiting).max() == Some(2));

    match fate {
        Fate::Killed => first.kill(),
        Fate::Stopped => first.stop(),
        Fate::CutOff => proxies.iter().for_each(|proxy| proxy.set(Mode::End(End::Cut, When::Now))),
        Fate::Resigns => drop(first.end()),
    }
    eventually("another process leads", || others.iter().any(works));
    if fate == Fate::Stopped {
        first.go_on();
    }
    if fate != Fate::Killed {
        let is_over = || first.lines().iter().any(|line| line == "over");
        eventually("its body is dropped", is_over);
    }
    let all = holds([&first].into_iter().chain(&others));
    assert_right("leading", &all);
    // A process that is stopped within a piece of work ends that piece.
    let late = all.iter().filter(|hold| hold.refused > 0).count();
    assert!(late <= usize::from(fate == Fate::Stopped), "{client:?}, {fate:?}: {all:?}");
}

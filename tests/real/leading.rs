//! Three processes, one of which leads. The leader dies, is stopped, is cut off or resigns.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use quorate_tests::clock::Nanos;
use quorate_tests::keys::waiters;
use quorate_tests::wait::{LONG_TTL, eventually};
use quorate_tests::{End, Mode, Nodes, Proxy, RedisServer, When};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::client::Client;

/// Short enough to be waited for.
const TTL: Duration = Duration::from_secs(3);

/// A line of a process: what its body did, in which term, and when.
#[derive(Clone, Debug)]
struct Line {
    what: String,
    token: u64,
    at: Nanos,
}

/// A process that leads whenever it can.
struct Process {
    child: Child,
    input: ChildStdin,
    lines: Arc<Mutex<Vec<Line>>>,
}

impl Process {
    fn start(client: Client, ttl: Duration, addresses: &[String]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_program"))
            .args(["lead", client.word(), &ttl.as_millis().to_string()])
            .args(addresses)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let lines = Arc::<Mutex<Vec<Line>>>::default();
        let seen = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let words: Vec<&str> = line.split(' ').collect();
                // The last line of a process that was killed may be cut short.
                if let [what, token, at] = words[..]
                    && let (Ok(token), Ok(at)) = (token.parse(), at.parse())
                {
                    seen.lock().unwrap().push(Line { what: what.to_owned(), token, at });
                }
            }
        });
        Self { child, input, lines }
    }

    fn all(&self, what: &str) -> Vec<Line> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| line.what == what).cloned().collect()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn stop(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
        let stopped = waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED).unwrap();
        assert!(stopped.is_some_and(|status| status.stopped()));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
    let mut first = Process::start(client, ttl, &through);
    eventually("the first process leads", || !first.all("works").is_empty());
    let others = [(); 2].map(|()| Process::start(client, ttl, &nodes.addresses()));
    let waiting = |node: &RedisServer| node.cli(&["ZCARD", &waiters("leader")]).integer();
    eventually("both others wait", || nodes.iter().map(waiting).max() == Some(2));

    match fate {
        Fate::Killed => first.child.kill().unwrap(),
        Fate::Stopped => first.stop(),
        Fate::CutOff => proxies.iter().for_each(|proxy| proxy.set(Mode::End(End::Cut, When::Now))),
        Fate::Resigns => first.input.write_all(b"resign\n").unwrap(),
    }
    eventually("another process leads", || {
        others.iter().any(|other| !other.all("works").is_empty())
    });
    if fate == Fate::Stopped {
        kill_process(first.pid(), Signal::CONT).unwrap();
    }
    if fate != Fate::Killed {
        let terms = || first.all("leads").len();
        eventually("its body is dropped", || first.all("over").len() >= terms());
    }
    if fate == Fate::Resigns {
        assert!(first.child.wait().unwrap().success(), "{client:?}: it leaves nothing");
    }
    judge(client, fate, &first, &others);
}

/// No body works while another one does: in the order of time, the terms of all work never fall.
fn judge(client: Client, fate: Fate, first: &Process, others: &[Process; 2]) {
    let all = || [first].into_iter().chain(others);
    let mut works: Vec<Line> = all().flat_map(|process| process.all("works")).collect();
    works.sort_by_key(|line| line.at);
    let falls = works.windows(2).find(|two| two[1].token < two[0].token);
    assert!(falls.is_none(), "{client:?}, {fate:?}: {falls:?}");
    // A process that is stopped within a piece of work ends that piece.
    let late: Vec<Line> = all().flat_map(|process| process.all("late")).collect();
    assert!(late.len() <= usize::from(fate == Fate::Stopped), "{client:?}, {fate:?}: {late:?}");
}

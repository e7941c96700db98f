//! A rolling restart by the page *running the nodes*: no two holders, whatever the nodes keep. And two by a shorter rule.

use std::time::Instant;
use std::{fs, thread};

use quorate::backend::{Drift, SafetyMargin, Ttl};
use quorate_tests::wait::{eventually, now};
use quorate_tests::{Nodes, RedisServer};

use crate::support::{Dir, Done, ask, hold, run};

const PAGE: &str = include_str!("../../../quorate/docs/running-the-nodes.md");

/// So short that a test can wait for the end of it at each node.
const SHORT: &str = "5s";

/// What the page says to run before the first restart and after each, with these options of all commands.
fn line_of_the_page<'a>(options: &[&'a str]) -> Vec<&'a str> {
    let line = PAGE.lines().find(|line| line.starts_with("quorate nodes --wait ")).unwrap();
    let words = line.split(" #").next().unwrap().split_whitespace().skip(1);
    options.iter().copied().chain(words).collect()
}

/// A record of another process, and until when it holds the lock at least.
struct Record {
    name: String,
    until: Instant,
}

/// Nodes with the same settings, the options that all commands need there, and the ttl of all locks.
struct Setting<'a> {
    nodes: &'a Nodes,
    options: &'a [&'a str],
    ttl: &'a str,
    dir: Dir,
}

impl Setting<'_> {
    fn run(&self, words: &[&str]) -> Done {
        run(&self.dir, &self.nodes.addresses(), &[self.options, words].concat())
    }

    fn record(&self, name: String) -> Record {
        let ttl = humantime::parse_duration(self.ttl).unwrap();
        let ttl = Ttl::try_from(ttl).unwrap();
        let until = now() + SafetyMargin::default().validity(Drift::default(), ttl);
        let locked = self.run(&["lock", "--ttl", self.ttl, &name]);
        assert_eq!(locked.code(), Some(0), "{locked:?}");
        Record { name, until }
    }

    /// Whether another process gets the lock now.
    fn is_free(&self, name: &str) -> bool {
        let options = ["--no-wait", "--ttl", SHORT, "--kill-after", "1s"];
        self.run(&[&["run"], &options[..], &[name, "--", "true"]].concat()).code() == Some(0)
    }

    /// How many of the records are held by another process as well.
    fn overlaps(&self, records: &mut Vec<Record>) -> usize {
        let free = records.extract_if(.., |record| self.is_free(&record.name));
        // Two clocks read after the lock was acquired: it was so before the end of the record.
        free.map(|record| usize::from(now() < record.until)).sum()
    }

    /// Restarts each node, and goes on as `goes_on` says. A record is acquired before each restart, and a command runs
    /// under a renewed lock. Returns how often a second process got the lock of one of them.
    fn restart_all(&self, goes_on: impl Fn(&Self)) -> usize {
        goes_on(self);
        let words = format!("{} --ttl {} --kill-after 1s work", self.options.join(" "), self.ttl);
        let mut work = hold(&self.dir, &self.nodes.addresses(), &words);
        let (mut records, mut overlaps) = (Vec::new(), 0);
        for (at, node) in self.nodes.iter().enumerate() {
            records.push(self.record(format!("record-{at}")));
            node.restart();
            overlaps += self.overlaps(&mut records);
            goes_on(self);
            overlaps += self.overlaps(&mut records);
            overlaps += usize::from(self.is_free("work") && work.is_running());
        }
        self.dir.write("go", "");
        let done = work.done();
        assert!(overlaps > 0 || done.code() == Some(0), "the command was stopped: {done:?}");
        overlaps
    }
}

/// As the page says: with 0, or with 70 when nothing forbids it.
fn by_the_page(setting: &Setting<'_>, words: &[&str]) -> Done {
    let done = run(&setting.dir, &setting.nodes.addresses(), words);
    assert!(
        matches!(done.code(), Some(0 | 70)) && !done.out.contains("restart no other node"),
        "{done:?}"
    );
    done
}

/// On nodes that keep each write, behind the guard, and on nodes that forget: all at once, since it takes long.
#[test]
fn a_rolling_restart_by_the_page_makes_no_two_holders() {
    let (longest, guard) = (["--max-ttl", SHORT], ["--guard-max-ttl", SHORT]);
    let (keeps, forgets) = (RedisServer::builder().append_only(), RedisServer::builder());
    let restart_all = |builder, options: &[&str], longest: &[&str], code, problems| {
        let nodes = &Nodes::start_with(3, builder);
        let setting = Setting { nodes, options, ttl: SHORT, dir: Dir::new() };
        let words = [&line_of_the_page(options), longest].concat();
        let overlaps = setting.restart_all(|setting| {
            let done = by_the_page(setting, &words);
            let told = done.out.matches("forgets its locks when it restarts").count();
            assert_eq!((done.code(), told), (Some(code), problems), "{done:?}");
        });
        assert_eq!(overlaps, 0, "{options:?}");
    };
    thread::scope(|scope| {
        scope.spawn(|| restart_all(&keeps, &[], &longest, 0, 0));
        scope.spawn(|| restart_all(&forgets, &guard, &[], 0, 0));
        scope.spawn(|| restart_all(&forgets, &[], &longest, 70, 3));
    });
}

/// Two nodes come back with the keys of locks that were released while they were away. A node that answers is not enough:
/// both together would refuse such a lock.
#[test]
fn a_rolling_restart_of_nodes_that_keep_each_write_refuses_no_lock_that_is_free() {
    let nodes = &Nodes::start_with(3, &RedisServer::builder().append_only());
    let setting = Setting { nodes, options: &[], ttl: SHORT, dir: Dir::new() };
    let words = [line_of_the_page(&[]), vec!["--max-ttl", SHORT]].concat();
    // The key of a run that ends while its node is away.
    let restart = |node: &RedisServer| {
        let words = format!("--ttl {SHORT} --kill-after 1s deploy");
        let mut run = hold(&setting.dir, &nodes.addresses(), &words);
        eventually("a key on each node", || node.keys().iter().any(|key| key == "deploy"));
        node.kill();
        setting.dir.write("go", "");
        assert_eq!(run.done().code(), Some(0));
        for file in ["started", "go"] {
            fs::remove_file(setting.dir.file(file)).unwrap();
        }
        node.restart();
    };
    restart(&nodes[0]);
    let words_of_a_check = ["nodes", "--max-ttl", "1h"];
    assert_eq!(setting.run(&words_of_a_check).code(), Some(0), "it locks");
    let waited = setting.run(&[&words_of_a_check[..], &["--wait", "1ms"]].concat());
    assert_eq!(waited.code(), Some(70));
    assert!(waited.out.contains("it may refuse locks that were released meanwhile"), "{waited:?}");
    assert_eq!(by_the_page(&setting, &words).code(), Some(0));
    restart(&nodes[1]);
    assert!(setting.is_free("deploy"), "it is refused by the node that was away alone");
    assert_eq!(by_the_page(&setting, &words).code(), Some(0));
    restart(&nodes[2]);
    assert!(setting.is_free("deploy"));
}

/// Without the page: the next node is restarted when the last one answers.
#[test]
fn a_rolling_restart_of_nodes_that_forget_and_answer_makes_two_holders() {
    let nodes = &Nodes::start(3);
    let setting = Setting { nodes, options: &[], ttl: "60s", dir: Dir::new() };
    let overlaps = setting.restart_all(|setting| {
        let answer = || !setting.run(&["nodes", "-v"]).out.contains("check the address");
        eventually("three nodes that answer", answer);
    });
    assert!(overlaps > 0);
    let told = ask(&setting.dir, &nodes.addresses(), &["nodes", "-v"]);
    assert_eq!(told.out.matches("restart no other node").count(), 3, "{told:?}");
}

//! Every example, run as a user runs it, against the nodes it names.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::thread;

use quorate_tests::wait::{eventually, times};
use quorate_tests::{Nodes, Program, RedisServer};
use rustix::process::Signal;

use crate::client::calls;

/// Runs an example that `cargo` has built with the rest of the workspace.
pub(crate) fn run(example: &str, arguments: &[String]) -> Output {
    build();
    Command::new(path(example)).args(arguments).env("NO_COLOR", "1").output().unwrap()
}

fn path(example: &str) -> PathBuf {
    // deps/nodes-… stands beside examples/.
    let here = std::env::current_exe().unwrap();
    let target = here.parent().and_then(|deps| deps.parent()).unwrap();
    target.join("examples").join(example)
}

fn build() {
    static BUILT: OnceLock<()> = OnceLock::new();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    BUILT.get_or_init(|| {
        let build = ["build", "--quiet", "--workspace", "--all-features", "--examples"];
        let others = ["--exclude", "quorate-postgres"];
        let mut command = Command::new(&cargo);
        // Cargo sets these for a test. Build scripts that read them would run again, and all that
        // depends on them would be built again.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        assert!(command.args(build).args(others).status().unwrap().success());
    });
}

/// Runs an example until it prints the expected story. Examples work with ttls of half a second,
/// and a slow machine can end such a lease before the story is over. A broken one never prints it.
fn tells(example: &str, arguments: &[String], is_expected: impl Fn(&str) -> bool) {
    let mut last = String::new();
    let tells = || {
        let output = run(example, arguments);
        let [story, error] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
        last = format!("{story}{error}");
        output.status.success() && is_expected(&story)
    };
    let told = catch_unwind(AssertUnwindSafe(|| eventually("the story of an example", tells)));
    assert!(told.is_ok(), "{example}: {last}");
}

fn contains_all(story: &str, words: &[&str]) -> bool {
    words.iter().all(|words| story.contains(words))
}

#[test]
fn examples_without_servers() {
    tells("quickstart", &[], |story| {
        let words = ["locked orders:42", "a second lock is refused", "extended", "held until then"];
        words.iter().all(|words| story.matches(words).count() == 3)
            && story.contains("no quorum: 2 of 5 nodes granted, 3 needed; memory-1: connection")
    });
    tells("custom_backend", &[], |story| story.matches("ok: ").count() == 16);
    tells("custom_runtime", &[], |story| story.matches("ok: ").count() == 5);
    tells("embed", &[], |story| story == "report sales on tokio\nreport sales on smol\n");
    tells("fencing", &[], |story| {
        contains_all(story, &["the first holder wakes up and is refused", "8 pieces left\n"])
            && story.ends_with("the second holder releases\n")
    });
    tells("renew", &[], |story| {
        story.matches(": true").count() == 3
            && contains_all(story, &["a quorum is gone: lost ", "memory-2: no reply within"])
    });
    for (example, words) in [
        ("test_your_code", &["nothing lost"][..]),
        (
            "with",
            &["2 orders", "InvalidDigit", "no node was asked", "memory-2: connection refused"],
        ),
        (
            "lead",
            &[
                "one hands over, as \"deploy\" asks",
                "two hands over",
                "Left {",
                "all released, all",
            ],
        ),
        (
            "blocking",
            &[
                "counted to 10",
                "is not locked",
                "held until",
                " steps: counter: the lease expired",
                "all released",
            ],
        ),
    ] {
        tells(example, &[], |story| contains_all(story, words));
    }
    tells("handover", &[], is_handed_over);
}

fn is_handed_over(story: &str) -> bool {
    contains_all(story, &["adopted, valid for ", "held until then", "the lock is gone: 0 of "])
}

#[test]
fn a_lock_is_handed_over_to_a_process() {
    let nodes = Nodes::start(3);
    tells("handover", &nodes.addresses(), is_handed_over);
    eventually("no key is left", || nodes.keys_left().is_empty());
}

fn start_importer(nodes: &Nodes) -> Program {
    build();
    Program::start(path("importer").to_str().unwrap(), nodes.addresses())
}

fn is_printed(process: &Program, what: &str) -> bool {
    process.lines().iter().any(|line| line.contains(what))
}

/// The leader is asked to end in the middle of its imports: each that has begun is done, and the other process leads.
#[test]
fn a_service_that_is_asked_to_end_cuts_nothing_off() {
    let nodes = Nodes::start(3);
    let mut leader = start_importer(&nodes);
    eventually("a leader", || is_printed(&leader, "cleans up"));
    let mut other = start_importer(&nodes);
    eventually("an import of the other process", || is_printed(&other, ": done"));
    eventually("an import", || leader.lines().last().is_some_and(|line| line.contains("begins")));
    leader.signal(Signal::TERM);
    let lines = leader.end();
    let count = |what: &str| lines.iter().filter(|line| line.ends_with(what)).count();
    assert_eq!(count("begins"), count("done"), "{lines:?}");
    assert_eq!((count("resigns"), count("all released")), (1, 1), "{lines:?}");
    eventually("another leader", || is_printed(&other, "cleans up"));
    other.signal(Signal::TERM);
    let lines = other.end();
    assert!(!lines.iter().any(|line| line.contains("closed")), "{lines:?}");
    // The mark of the report stays, and what fences and tickets need.
    let is_lock = |(_, key): &(usize, String)| key.contains("customer:") || key == "clean-up";
    let left: Vec<_> = nodes.keys_left().into_iter().filter(is_lock).collect();
    assert_eq!(left, [], "nothing is held");
}

/// At a deploy, both end with 0, in either order. The standby waits for the lock, a report for its next turn.
#[test]
fn a_standby_that_is_asked_to_end_ends_without_an_error() {
    let nodes = Nodes::start(3);
    let mut leader = start_importer(&nodes);
    eventually("a leader", || is_printed(&leader, "cleans up"));
    let mut standby = start_importer(&nodes);
    eventually("an import of the standby", || is_printed(&standby, ": done"));
    standby.signal(Signal::TERM);
    let lines = standby.end();
    assert_eq!(lines.last().unwrap(), "has not led", "{lines:?}");
    let errors = ["closed", "lost", "no quorum"];
    assert!(!lines.iter().any(|line| errors.iter().any(|error| line.contains(error))), "{lines:?}");
    leader.signal(Signal::TERM);
    let lines = leader.end();
    assert!(lines.iter().any(|line| line == "resigns"), "{lines:?}");
}

/// In virtual time.
#[test]
fn the_example_observe_tells_which_node_hangs_and_what_comes_of_it() {
    tells("observe", &[], |story| {
        let count = |words: &[&str]| story.lines().filter(|line| contains_all(line, words)).count();
        let votes = "quorate_node_votes_total";
        [
            &["WARN", "node failing node=\"memory-2\"", "kind=\"Silent\""][..],
            &["INFO", "node recovered node=\"memory-2\""],
            &["WARN", "lost keys=stock:7 reason=\"expired\""],
            &[votes, "memory-2 acquire", "silent"],
            &[votes, "memory-1 acquire"],
            &[votes, "memory-3 acquire"],
            &["quorate_wait_seconds", "p50"],
        ]
        .iter()
        .all(|words| count(words) == 1)
            && count(&[votes, "acquire", "silent"]) == 1
            && story.lines().count() < 40
    });
}

/// Examples on five nodes of which some fail.
#[test]
fn c8_a_program_that_exits_on_the_error_leaves_nothing() {
    thread::scope(|scope| {
        scope.spawn(|| fail_one_by_one("redis"));
        scope.spawn(|| fail_one_by_one("fred"));
    });
}

fn fail_one_by_one(example: &str) {
    let nodes = Nodes::start(5);
    let addresses = nodes.addresses();
    let works = || tells(example, &addresses, |story| story.contains("free for the next one"));
    works();
    nodes[..2].iter().for_each(RedisServer::pause);
    works();
    nodes[..2].iter().for_each(RedisServer::resume);
    nodes[3..].iter().for_each(RedisServer::kill);
    works();

    // A program that ends on the error leaves no lock on the nodes that answer (C8).
    nodes[2].kill();
    let live = &nodes[..2];
    live.iter().for_each(RedisServer::flushall);
    let before = live.iter().map(|node| calls(node, "set")).sum::<u64>();
    for turn in 0..times(8, 100) {
        // In any order of the nodes: the dead ones may be asked first.
        let mut addresses = addresses.clone();
        addresses.rotate_left(turn % 5);
        let output = run(example, &addresses);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains("no quorum: "), "{output:?}");
        let is_named = |port: u16| error.contains(&format!("127.0.0.1:{port}"));
        assert!(nodes[2..].iter().all(|dead| is_named(dead.port())), "{error}");
        // An entry of a wait queue may be left on a slow machine: the error waits for its answer no longer than
        // its round took. It expires by itself.
        let left = nodes.keys_left().into_iter().filter(|(_, key)| !key.contains(":quorate:"));
        assert_eq!(left.collect::<Vec<_>>(), [], "{example}, {turn}: {error}");
    }
    assert!(live.iter().map(|node| calls(node, "set")).sum::<u64>() > before, "none was asked");
}

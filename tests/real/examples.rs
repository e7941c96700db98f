//! Every example, run as a user runs it, against the nodes it names.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Output};
use std::sync::OnceLock;

use quorate_tests::Nodes;
use quorate_tests::wait::eventually;

/// Runs an example that `cargo` has built with the rest of the workspace.
pub(crate) fn run(example: &str, arguments: &[String]) -> Output {
    static BUILT: OnceLock<()> = OnceLock::new();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    BUILT.get_or_init(|| {
        let build = ["build", "--quiet", "--workspace", "--all-features", "--examples"];
        let mut command = Command::new(&cargo);
        // Cargo sets these for a test. Build scripts that read them would run again, and all that
        // depends on them would be built again.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        assert!(command.args(build).status().unwrap().success());
    });
    // deps/nodes-… stands beside examples/.
    let here = std::env::current_exe().unwrap();
    let target = here.parent().and_then(|deps| deps.parent()).unwrap();
    let program = target.join("examples").join(example);
    Command::new(program).args(arguments).env("NO_COLOR", "1").output().unwrap()
}

/// Runs an example until it prints the expected story. Examples work with ttls of half a second,
/// and a slow machine can end such a lease before the story is over. A broken one never prints it.
fn tells(example: &str, arguments: &[String], is_expected: impl Fn(&str) -> bool) {
    let mut last = String::new();
    let tells = || {
        let output = run(example, arguments);
        let (story, error) = (&output.stdout, &output.stderr);
        last = format!("{}{}", String::from_utf8_lossy(story), String::from_utf8_lossy(error));
        output.status.success() && is_expected(&String::from_utf8_lossy(story))
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
    tells("test_your_code", &[], |story| story.contains("nothing lost"));
    tells("renew", &[], |story| {
        story.matches(": true").count() == 3
            && contains_all(story, &["a quorum is gone: lost ", "memory-2: no reply within"])
    });
    tells("with", &[], |story| {
        let told =
            ["2 orders", "InvalidDigit", "no node was asked", "memory-2: connection refused"];
        contains_all(story, &told)
    });
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

#[test]
fn the_example_observe_tells_which_node_hangs_and_what_comes_of_it() {
    // In virtual time.
    let output = run("observe", &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let story = String::from_utf8(output.stdout).unwrap();
    let line = |words: &[&str]| {
        let is_it = |line: &&str| words.iter().all(|word| line.contains(word));
        let lines: Vec<_> = story.lines().filter(is_it).collect();
        assert_eq!(lines.len(), 1, "{words:?}: {story}");
        lines[0]
    };
    line(&["WARN", "node failing node=\"memory-2\"", "kind=\"Silent\""]);
    line(&["INFO", "node recovered node=\"memory-2\""]);
    line(&["WARN", "lost keys=stock:7 reason=\"expired\""]);
    assert!(line(&["quorate_node_votes_total memory-2 acquire"]).contains("silent"));
    for node in ["memory-1", "memory-3"] {
        assert!(!line(&["quorate_node_votes_total", node, "acquire"]).contains("silent"));
    }
    line(&["quorate_wait_seconds", "p50"]);
    assert!(story.lines().count() < 40, "{story}");
}

#[test]
fn examples_on_five_nodes_of_which_some_fail() {
    let is_whole = |story: &str| story.contains("free for the next one");
    for example in ["redis", "fred"] {
        let nodes = Nodes::start(5);
        let addresses = nodes.addresses();
        tells(example, &addresses, is_whole);

        nodes[0].pause();
        nodes[1].pause();
        tells(example, &addresses, is_whole);
        nodes[0].resume();
        nodes[1].resume();

        nodes[3].kill();
        nodes[4].kill();
        tells(example, &addresses, is_whole);

        nodes[2].kill();
        eventually("an error that names the dead nodes", || {
            let output = run(example, &addresses);
            assert!(!output.status.success());
            let error = String::from_utf8_lossy(&output.stderr);
            let is_named = |port: u16| error.contains(&format!("127.0.0.1:{port}"));
            error.contains("no quorum") && nodes[2..].iter().all(|dead| is_named(dead.port()))
        });
    }
}

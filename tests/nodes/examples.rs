//! Every example, run as a user runs it, against the nodes it names.

use std::process::{Command, Output};
use std::sync::OnceLock;

use quorate_tests::Nodes;

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
    Command::new(program).args(arguments).output().unwrap()
}

fn succeeds(example: &str, arguments: &[String]) -> String {
    let output = run(example, arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn examples_without_servers() {
    let story = succeeds("quickstart", &[]);
    for words in ["locked orders:42", "a second lock is refused", "extended", "Held to the end"] {
        assert_eq!(story.matches(words).count(), 3, "{words}: {story}");
    }
    assert!(story.contains("no quorum: 2 of 5 nodes granted, 3 needed; memory-1: connection"));
    assert_eq!(succeeds("custom_backend", &[]).matches("ok: ").count(), 14);
    assert_eq!(succeeds("custom_runtime", &[]).matches("ok: ").count(), 5);
    assert_eq!(succeeds("embed", &[]), "report sales on tokio\nreport sales on smol\n");
    let story = succeeds("fencing", &[]);
    assert!(story.contains("the first holder wakes up and is refused"), "{story}");
    assert!(story.contains("8 pieces left\n"), "{story}");
    assert!(story.ends_with("gives it back: Held\n"), "{story}");
    assert!(succeeds("test_your_code", &[]).contains("nothing lost"));
    let story = succeeds("renew", &[]);
    assert_eq!(story.matches(": true").count(), 3, "{story}");
    assert!(story.contains("a majority is gone, told "), "{story}");
    assert!(story.contains("memory-2: no answer within"), "{story}");
    let story = succeeds("with", &[]);
    for words in ["2 orders", "InvalidDigit", "memory-3: refused", "memory-2: connection refused"] {
        assert!(story.contains(words), "{words}: {story}");
    }
    assert_handed_over(&succeeds("handover", &[]));
}

fn assert_handed_over(story: &str) {
    for words in ["adopted, valid for ", "Held to the end", "the lock is gone: 0 of "] {
        assert!(story.contains(words), "{words}: {story}");
    }
}

#[test]
fn a_lock_is_handed_over_to_a_process() {
    let nodes = Nodes::start(3);
    assert_handed_over(&succeeds("handover", &nodes.addresses()));
    assert_eq!(nodes.keys_left(), []);
}

#[test]
fn the_example_observe_tells_which_node_hangs_and_what_comes_of_it() {
    let story = succeeds("observe", &[]);
    let line = |words: &[&str]| {
        let is_it = |line: &&str| words.iter().all(|word| line.contains(word));
        let lines: Vec<_> = story.lines().filter(is_it).collect();
        assert_eq!(lines.len(), 1, "{words:?}: {story}");
        lines[0]
    };
    line(&["WARN", "node failing node=\"memory-2\"", "kind=Silent"]);
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
    for example in ["redis", "fred"] {
        let nodes = Nodes::start(5);
        let addresses = nodes.addresses();
        assert!(succeeds(example, &addresses).contains("free for the next one"));

        nodes[0].pause();
        nodes[1].pause();
        assert!(succeeds(example, &addresses).contains("free for the next one"));
        nodes[0].resume();
        nodes[1].resume();

        nodes[3].kill();
        nodes[4].kill();
        assert!(succeeds(example, &addresses).contains("free for the next one"));

        nodes[2].kill();
        let output = run(example, &addresses);
        assert!(!output.status.success());
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("NoQuorum"), "{example}: {error}");
        for dead in &nodes[2..] {
            assert!(error.contains(&format!("127.0.0.1:{}", dead.port())), "{example}: {error}");
        }
    }
}

//! Every example, run as a user runs it, against the nodes it names.

use std::process::{Command, Output};
use std::sync::OnceLock;

use quorate_tests::Nodes;

/// Runs an example that `cargo` has built with the rest of the workspace.
fn run(example: &str, arguments: &[String]) -> Output {
    static BUILT: OnceLock<()> = OnceLock::new();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    BUILT.get_or_init(|| {
        let build = ["build", "--quiet", "--workspace", "--all-features", "--examples"];
        assert!(Command::new(&cargo).args(build).status().unwrap().success());
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
    assert_eq!(succeeds("custom_backend", &[]).matches("ok: ").count(), 13);
    assert_eq!(succeeds("custom_runtime", &[]).matches("ok: ").count(), 5);
    assert_eq!(succeeds("embed", &[]), "report sales on tokio\nreport sales on smol\n");
    let story = succeeds("fencing", &[]);
    assert!(story.contains("the first holder wakes up and is refused"), "{story}");
    assert!(story.ends_with("8 pieces left\n"), "{story}");
    assert!(succeeds("test_your_code", &[]).contains("nothing lost"));
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

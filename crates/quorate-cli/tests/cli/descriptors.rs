//! Few file descriptors, or few processes: an exit code and a sentence, and no panic.

use std::process::Command;

use quorate_tests::Nodes;

use crate::support::{Dir, QUORATE, Started, take, with_nodes};

#[test]
fn with_few_descriptors_a_sentence_says_so() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    take(nodes, "held");
    let mut found = Vec::new();
    for limit in 3..=20 {
        for (words, code) in [
            (&["run", "--no-wait", "a", "--", "true"][..], 0),
            (&["run", "--no-wait", "held", "--", "true"], 75),
            (&["inspect", "held"], 0),
        ] {
            let mut command = with_nodes(Command::new("sh"), dir, &nodes.addresses());
            command
                .args(["-c", "ulimit -n $0; exec \"$@\"", &limit.to_string(), QUORATE])
                .args(words);
            let done = Started::spawn(command, dir).done();
            let text = format!("{}{}", done.out, done.err);
            match done.code() {
                // The system cannot load the program.
                Some(127) => assert!(limit == 3, "{limit}: {done:?}"),
                Some(71) => {
                    assert!(text.starts_with("quorate: ") && text.contains("ulimit -n"), "{done:?}")
                }
                Some(69) => {
                    assert!(text.contains("no quorum") || text.contains("unclear"), "{done:?}")
                }
                done_with => assert_eq!(done_with, Some(code), "{limit}: {done:?}"),
            }
            assert!(!text.contains("panicked"), "{limit}: {text}");
            found.extend(done.code());
        }
    }
    assert!(found.contains(&71) && found.ends_with(&[0, 75, 0]), "{found:?}");
}

/// A thread counts as a process. Names of hosts are looked up in one.
#[cfg(target_os = "linux")]
#[test]
fn with_few_processes_a_sentence_says_so() {
    let (nodes, dir) = (&Nodes::start(1), &Dir::new());
    let addresses = [nodes[0].address().replace("127.0.0.1", "localhost")];
    // No limit counts for root.
    let user =
        rustix::process::getuid().is_root().then_some("setpriv --reuid 65534 --clear-groups");
    // That user may not be able to reach the checkout.
    let quorate = dir.file("quorate");
    // By a process of its own: what another test starts meanwhile would have our file open.
    let copied = Command::new("cp").arg(QUORATE).arg(&quorate).status().unwrap();
    assert!(copied.success());
    let mut found = Vec::new();
    for limit in 1..=5 {
        for (words, code) in [("run --no-wait a -- true", 0), ("inspect b", 1)] {
            let line =
                format!("{} prlimit --nproc={limit} \"$0\" {words}", user.unwrap_or_default());
            let mut command = with_nodes(Command::new("sh"), dir, &addresses);
            command.args(["-c", &line]).arg(&quorate);
            let done = Started::spawn(command, dir).done();
            assert!(done.code() == Some(code) || done.code() == Some(71), "{limit}: {done:?}");
            let is_told = done.err.starts_with("quorate: ") && done.err.contains("ulimit -u");
            assert_eq!(done.code() == Some(71), is_told, "{limit}: {done:?}");
            found.extend(done.code());
        }
    }
    assert!(found.starts_with(&[71, 71]), "{found:?}");
}

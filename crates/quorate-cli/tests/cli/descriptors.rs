//! Few file descriptors: an exit code and a sentence, and no panic.

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

//! Labels: how others see a holder.

use std::process::Command;

use quorate_tests::Nodes;

use crate::support::{Dir, QUORATE, Started, UNTIL_GO, run, start, with_nodes};

#[test]
fn l1_a_label_deceives_nobody() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let addresses = &nodes.addresses();
    let label = "web-3\" on 3 of 3 nodes\u{202e} \u{2066}";
    let mut holder = start(dir, addresses, &["run", "--label", label, "a", "-c", UNTIL_GO]);
    dir.wait_for("started");
    let escaped = r#""web-3\" on 3 of 3 nodes\u{202e} \u{2066}""#;
    let seen = run(dir, addresses, &["inspect", "a"]);
    let refused = run(dir, addresses, &["run", "--no-wait", "a", "--", "true"]);
    assert!(seen.out.contains(escaped) && refused.err.contains(escaped), "{seen:?} {refused:?}");
    let json = run(dir, addresses, &["inspect", "--json", "a"]);
    assert!(
        json.out.contains(r"\u202e \u2066")
            && json.out.chars().all(|it| it == '\n' || matches!(it, ' '..='~')),
        "{json:?}"
    );
    assert_eq!(json.json()["locks"][0]["label"], label);
    dir.write("go", "");
    assert_eq!(holder.done().code(), Some(0));
}

#[test]
fn the_default_label_never_fails() {
    let (nodes, dir) = (&Nodes::start(1), &Dir::new());
    for (user, shown) in [
        ("max müller", "max müller@"),
        ("a\nb\u{1b}[2J\u{202e}", "a�b�[2J�@"),
        (&*"ü".repeat(150), &*"ü".repeat(100)),
        ("", "someone@"),
    ] {
        let mut command = with_nodes(Command::new(QUORATE), dir, &nodes.addresses());
        command.env("USER", user).env("LOGNAME", "someone");
        command.args(["run", "a", "--", QUORATE, "inspect", "--json", "a"]);
        let told = Started::spawn(command, dir).done().json();
        let label = told["locks"][0]["label"].as_str().unwrap();
        assert!(label.starts_with(shown) && label.len() <= 200, "{user:?}: {label:?}");
    }
}

//! What a newcomer types: a mistake gets a tip, and the help is readable at any width.

use std::process::Command;

use crate::support::{Dir, Done, QUORATE, Started};

/// Runs `quorate` without nodes, on a terminal of this width.
fn run(width: usize, line: &str) -> Done {
    let dir = &Dir::new();
    let mut command = Command::new(QUORATE);
    command.args(line.split_whitespace()).env("COLUMNS", width.to_string());
    Started::spawn(command, dir).done()
}

#[test]
fn a_mistake_gets_a_tip() {
    let to_run =
        "tip: `quorate run NAME -- COMMAND`: the command and its options stand behind `--`";
    let to_wait = "tip: see --wait and --no-wait of `run` and `lock`";
    let rows = [
        // Nearly right.
        ("inspct name", "tip: a similar subcommand exists: 'inspect'"),
        ("run --permit 3 name -- true", "tip: a similar argument exists: '--permits'"),
        ("run --once 1h name -- true", "tip: a similar argument exists: '--once-per'"),
        ("run --nowait name -- true", "tip: a similar argument exists: '--no-wait'"),
        ("nodes --jsn", "tip: a similar argument exists: '--json'"),
        // As other commands have it.
        ("run --timeout 5s name -- true", to_wait),
        ("run --timeout=5s name -- true", to_wait),
        ("lock --timeout 5s name", to_wait),
        ("run -w 5 name -- true", to_wait),
        ("run -n name -- true", to_wait),
        // Without the word, and without the dashes.
        ("rnu name -- true", to_run),
        ("report -- true", to_run),
        ("run", to_run),
        ("run name", to_run),
        ("run name --", to_run),
        ("run name true", to_run),
        ("run name ./deploy.sh --production", to_run),
        ("run --production name -- true", to_run),
        // Values.
        ("run --wait 30 name -- true", "time unit needed"),
        (
            "run --once-per day name -- true",
            "local-day, local-week or local-month in the time zone",
        ),
        ("run --once-per 24 name -- true", "time unit needed"),
    ];
    for (line, tip) in rows {
        let done = run(100, line);
        assert_eq!((done.code(), &*done.out), (Some(64), ""), "{line}: {done:?}");
        assert!(done.err.contains(tip), "{line}: {done:?}");
        // An option that is no option of ours is no command either.
        assert!(!done.err.contains("as a value"), "{line}: {done:?}");
    }
}

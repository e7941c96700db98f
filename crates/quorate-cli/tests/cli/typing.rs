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

#[test]
fn help_is_a_word_as_well_as_an_option() {
    for (word, option) in
        [("help", "--help"), ("help run", "run --help"), ("help lock", "lock --help")]
    {
        let [word, option] = [word, option].map(|line| run(100, line));
        assert_eq!((word.code(), &*word.err), (Some(0), ""), "{word:?}");
        assert!(word.out.contains("Usage: quorate"), "{word:?}");
        assert_eq!(word.out, option.out);
    }
}

#[test]
fn the_help_has_headings() {
    let help = run(100, "run --help").out;
    let lines: Vec<&str> = help.lines().collect();
    let of = |option: &str| {
        let is_of = |line: &&str| line.ends_with(option) || line.contains(&format!("{option} <"));
        let at = lines.iter().position(is_of).unwrap();
        lines[..at].iter().rfind(|line| line.ends_with(':') && !line.starts_with(' ')).unwrap()
    };
    for (heading, options) in [
        ("Nodes:", &["--nodes", "--nodes-file", "--prefix", "--guard-max-ttl"][..]),
        ("Waiting:", &["--wait", "--no-wait", "--skip", "-E"]),
        ("Holding:", &["--ttl", "--read", "--permits", "--once-per", "--fenced", "--label"]),
        ("Stopping:", &["--kill-after"]),
        ("Options:", &["-c", "--quiet", "--verbose"]),
    ] {
        for option in options {
            assert_eq!(*of(option), heading, "{option}");
        }
    }
}

/// No line ends where the next word has room: not twice, by us and by clap.
#[test]
fn the_help_is_wrapped_once() {
    for (width, line) in [
        (60, "--help"),
        (60, "run --help"),
        (80, "--help"),
        (80, "run --help"),
        (100, "run --help"),
    ] {
        let help = run(width, line).out;
        let lines: Vec<&str> = help.lines().collect();
        for pair in lines.windows(2) {
            let [line, next] = [pair[0], pair[1]];
            assert!(line.len() <= width, "{width}: {line}");
            // Lists have a line for each thing.
            let is_prose = !line.is_empty() && !line.starts_with(' ') && !next.starts_with(' ');
            let word = next.split(' ').next().unwrap_or_default();
            if is_prose && !word.is_empty() {
                assert!(line.len() + 1 + word.len() > width, "{width}: {line}\n{next}");
            }
        }
    }
}

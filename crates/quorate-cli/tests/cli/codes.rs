//! Scenarios, and the exit code of each.

use std::collections::BTreeSet;
use std::process::Stdio;

use quorate_tests::peer::Peer;
use quorate_tests::{Nodes, RedisServer};

use crate::streams::closed;
#[cfg(target_os = "linux")]
use crate::streams::full;
use crate::support::{Dir, LONG_PERIOD, Started, UNTIL_GO, delete, quorate, run, take};
use crate::terminal::ends;

/// What happens while the command runs.
type Meanwhile<'a> = &'a dyn Fn(&str);

/// One scenario: its nodes, the words of `quorate` with `NAME` for the lock, what happens once the command has written
/// `started`, the exit code, and what standard error says, with `NAME` for the lock; nothing if that is empty.
type Row<'a> = (&'a [String], &'a str, Option<Meanwhile<'a>>, i32, &'a str);

/// Long enough for the nodes of a busy machine, short enough for the row of a test.
const SHORT: &str = "--ttl 3s --kill-after 500ms";

/// A command that runs until it is asked to stop.
const RUNS: &str = "while [ -e here ]; do sleep 0.05; done";

/// Words with quoted ones among them. `RAN` is a command that says that it ran.
fn words(line: &str) -> Vec<String> {
    let line = line.replace("RAN", "-c 'echo ran >> ran'");
    let words = line.split('\'').enumerate().flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().map(str::to_owned).collect(),
        _ => vec![part.to_owned()],
    });
    words.collect()
}

/// Rule X4.
#[test]
fn x1_x5_the_exit_code_says_what_happened() {
    scenarios(None);
}

#[test]
fn x4_the_exit_code_is_the_same_if_nobody_reads_standard_error() {
    scenarios(Some(closed));
}

#[cfg(target_os = "linux")]
#[test]
fn x4_the_exit_code_is_the_same_if_standard_error_is_full() {
    scenarios(Some(|| full().into()));
}

#[test]
fn x4_the_exit_code_is_the_same_on_a_terminal_that_went_away() {
    scenarios(Some(|| ends().1.into()));
}

/// Each scenario, with this standard error, if it is not a file that is read.
fn scenarios(errors: Option<fn() -> Stdio>) {
    let nodes = &Nodes::start(3);
    let closed = &Nodes::start_with(3, &RedisServer::builder().user("default", "on >pw ~* +@all"));
    let (good, closed) = (&nodes.addresses()[..], &closed.addresses()[..]);
    let nowhere = || format!("redis://{}", Peer::nowhere());
    let lonely = &[good[0].clone(), nowhere(), nowhere()][..];
    let twins = &[good[0].clone(), good[0].replace("127.0.0.1", "localhost")][..];
    let twice = &[good[0].clone(), good[0].clone(), good[1].clone()][..];
    let not_one = &["http://10.0.0.1".to_owned()][..];
    let wrong: Vec<_> = closed.iter().map(|at| at.replace("redis://", "redis://:no@")).collect();

    // Of three nodes that fail for different reasons, two say that it will last, or one.
    let [lasting, passing] =
        [&*wrong[1], &*nowhere()].map(|second| [&*good[0], &*wrong[0], second].map(str::to_owned));

    let runs =
        |options: &str| format!("run {SHORT} {options} NAME -c 'echo started > started; {RUNS}'");
    let (plain, fenced) = (runs(""), runs("--fenced"));
    // Without --kill-after, a command under a short lease has time to stop as well.
    let short = plain.replace(SHORT, "--ttl 3s");
    let once = runs(&format!("--once-per {LONG_PERIOD}"));
    let ends = &format!("run --ttl 1h NAME -c '{UNTIL_GO}'");
    let stop: Meanwhile<'_> = &|_| nodes[..2].iter().for_each(RedisServer::pause);
    let del: Meanwhile<'_> = &|name| delete(nodes, name);
    let free = |words: &'static [&str]| {
        move |name: &str| {
            let dir = &Dir::new();
            let done = run(dir, good, &[&["free", name][..], words].concat());
            assert_eq!(done.code(), Some(0), "{done:?}");
        }
    };
    let (freed, freed_now) = (free(&["--yes"]), free(&["--yes", "--now"]));

    let done = format!("run --once-per {LONG_PERIOD} done RAN");
    let rows: &[Row<'_>] = &[
        // The code of the command.
        (good, "run NAME -- true", None, 0, ""),
        (good, "run NAME -c 'exit 7'", None, 7, ""),
        (good, "run NAME -c 'exit 255'", None, 255, ""),
        (good, "run NAME -c 'kill -9 $$'", None, 128 + 9, ""),
        (good, "run NAME -c 'kill -15 $$'", None, 128 + 15, ""),
        (good, "run NAME other -c 'exit 7'", None, 7, ""),
        (good, "run --ttl 10s NAME -c 'exit 7'", None, 7, ""),
        (good, "run NAME -- /", None, 126, "/: "),
        (good, "run NAME -- /no/such/command", None, 127, "/no/such/command: "),
        (good, "run NAME -- no-such-command", None, 127, "no-such-command: "),
        (good, "run -v NAME -c 'exit 7'", None, 7, "acquired, valid for "),
        // Held by another client.
        (good, "run --no-wait held RAN", None, 75, "held by"),
        (good, "run --wait 1s held RAN", None, 75, "held by"),
        (good, "run --no-wait -E 3 held RAN", None, 3, "held by"),
        (good, "run --no-wait -E 0 held RAN", None, 0, "held by"),
        (good, "run --no-wait -E 255 held RAN", None, 255, "held by"),
        (good, "run --no-wait --skip held RAN", None, 0, ""),
        (good, "run --wait 1s --skip -E 3 held RAN", None, 3, ""),
        (good, "lock --no-wait held", None, 75, "held by"),
        (good, &done, None, 0, ""),
        // The nodes.
        (lonely, "run --wait 50ms NAME RAN", None, 69, "no quorum"),
        (lonely, "run --no-wait --skip NAME RAN", None, 69, "no quorum"),
        (lonely, "run --once-per 1h NAME RAN", None, 69, "no quorum"),
        (lonely, "inspect NAME", None, 69, ""),
        (lonely, "nodes", None, 69, ""),
        (good, "nodes", None, 70, ""),
        (good, "nodes --max-ttl 1h --wait 1ms", None, 70, "passes by itself"),
        (twins, "nodes", None, 78, ""),
        (good, "--guard-max-ttl 30s run --no-wait NAME RAN", None, 69, "quarantined"),
        (good, "--guard-max-ttl 5s nodes", None, 69, ""),
        (good, "--guard-max-ttl 5s inspect --permits 1 NAME", None, 1, ""),
        (good, "--guard-max-ttl 5s free --yes --permits 1 NAME", None, 0, ""),
        (closed, "run NAME RAN", None, 78, "NOAUTH"),
        (&wrong, "run NAME RAN", None, 78, "WRONGPASS"),
        (&wrong, "run --once-per 1h NAME RAN", None, 78, "WRONGPASS"),
        (&lasting, "run --no-wait NAME RAN", None, 78, "WRONGPASS"),
        (&passing, "run --no-wait NAME RAN", None, 69, "no quorum"),
        (&lasting, "inspect NAME", None, 78, ""),
        (&passing, "inspect NAME", None, 69, ""),
        (&lasting, "free --yes NAME", None, 78, ""),
        (&passing, "free --yes NAME", None, 69, ""),
        (twins, "run NAME RAN", None, 78, "are one server"),
        (twice, "run NAME RAN", None, 78, "is configured twice"),
        (not_one, "run NAME RAN", None, 78, "http://10.0.0.1"),
        // Lost.
        (good, &plain, Some(stop), 79, "the lock was lost, and the command stopped: NAME: "),
        (good, &short, Some(stop), 79, "stopped: NAME: no renewal succeeded until"),
        (good, &once, Some(stop), 79, "the lock was lost, and the command stopped: NAME@"),
        (good, &plain, Some(del), 79, "the lock was lost, and the command stopped: NAME: "),
        (good, &fenced, Some(del), 79, "the lock was lost, and the command stopped: NAME: "),
        (good, &plain, Some(&freed), 79, "the lock was lost, and the command stopped: NAME: "),
        (good, &plain, Some(&freed_now), 79, "the lock was lost, and the command stopped: NAME: "),
        // At the release, unless a push has come before.
        (good, ends, Some(del), 79, "the lock was lost"),
        // Usage.
        (good, "", None, 64, "Usage"),
        (good, "walk", None, 64, "walk"),
        (good, "run", None, 64, "Usage"),
        (good, "run NAME", None, 64, "Usage"),
        (good, "run -- true", None, 64, "Usage"),
        (good, "run --ttl 1x NAME -- true", None, 64, "--ttl"),
        (good, "run --ttl 1ms NAME -- true", None, 64, "1ms"),
        (good, "run --ttl 10s --kill-after 5s NAME -- true", None, 64, "--kill-after 5s is over"),
        (good, "run --ttl 30s --kill-after 10s NAME -- true", None, 64, "at most 9.732s"),
        (good, "run --wait 1s --no-wait NAME -- true", None, 64, "--no-wait"),
        (good, "run -E 256 NAME -- true", None, 64, "256"),
        (good, "run -E 1,256 NAME -- true", None, 64, "256"),
        (good, "run -E 1,2 NAME -- true", None, 64, "-E CODE,DONE needs --once-per"),
        (good, "run -c true NAME -- true", None, 64, "-c"),
        (good, "run --label '' NAME -- true", None, 64, "label"),
        (good, "run --once-per 1ms NAME -- true", None, 64, "period"),
        (good, "run --once-per 25h NAME -- true", None, 64, "local-month"),
        (good, "run --once-per 30days NAME -- true", None, 64, "local-month"),
        (good, "inspect --once-per 2weeks NAME", None, 64, "local-month"),
        (good, "run --once-per 1h NAME other -- true", None, 64, "one name"),
        (good, "run --permits 2 NAME other -- true", None, 64, "--permits"),
        (good, "run --permits 0 NAME -- true", None, 64, "--permits"),
        (good, "run --guard-max-ttl 1s NAME -- true", None, 64, "1s"),
        (good, "run quorate:fence:1 -- true", None, 64, "cannot be locked"),
        (good, "--nodes-file /no/such/file nodes", None, 64, "/no/such/file"),
        (&[], "nodes", None, 64, "no nodes"),
        (good, "nodes --accept", None, 64, "--accept needs --group"),
        (good, "extend", None, 64, "record"),
        (good, "release", None, 64, "record"),
    ];
    take(nodes, "held");
    run(&Dir::new(), good, &["run", "--once-per", LONG_PERIOD, "done", "--", "true"])
        .assert_silent();
    // Where nobody reads what is written, of the rows that write one of each code.
    let mut codes = BTreeSet::new();
    let is_enough = |(_, _, _, code, text): &&Row<'_>| {
        errors.is_none() || !text.is_empty() && codes.insert(*code)
    };
    for (at, row) in rows.iter().filter(is_enough).enumerate() {
        let (addresses, line, meanwhile, code, text) = row;
        let (dir, name) = (&Dir::new(), &format!("lock-{at}"));
        let mut command = quorate(dir, addresses);
        command.args(words(&line.replace("NAME", name)));
        let mut started = Started::spawn_with(command, dir, errors.map(|stream| stream()));
        if let Some(meanwhile) = meanwhile {
            dir.wait_for("started");
            meanwhile(name);
            dir.write("go", "");
        }
        let (done, text) = (started.done(), text.replace("NAME", name));
        nodes[..2].iter().for_each(RedisServer::resume);
        assert_eq!(done.code(), Some(*code), "{line}: {done:?}");
        if errors.is_none() {
            assert_eq!(done.told().is_empty(), text.is_empty(), "{line}: {done:?}");
            assert!(done.err.contains(&text), "{line}: {done:?}");
        }
        assert!(done.out.is_empty() || !line.contains("run"), "{line}: {done:?}");
        // Nothing runs without the lock.
        assert_eq!(dir.read("ran"), "", "{line}");
    }
}

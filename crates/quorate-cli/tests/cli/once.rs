//! `--once-per`: the command runs once in each period, on one of all machines.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use quorate::LockManager;
use quorate_tests::Nodes;

use crate::support::{Dir, LONG_PERIOD, run};

const MACHINES: usize = 5;

#[test]
fn once_per_five_processes_at_the_same_moment_are_one_run() {
    const JOBS: usize = 20;
    let (nodes, dir, barrier) = (&Nodes::start(3), &Dir::new(), &Barrier::new(MACHINES));
    let addresses = &nodes.addresses();
    thread::scope(|scope| {
        for _ in 0..MACHINES {
            scope.spawn(move || {
                for job in 0..JOBS {
                    let (name, script) = (format!("job-{job}"), format!("echo {job} >> runs"));
                    barrier.wait();
                    let words = ["run", "--once-per", LONG_PERIOD, &name, "-c", &script];
                    run(dir, addresses, &words).assert_silent();
                }
            });
        }
    });
    let runs = dir.read("runs");
    let mut runs: Vec<usize> = runs.lines().map(|line| line.parse().unwrap()).collect();
    runs.sort_unstable();
    assert_eq!(runs, (0..JOBS).collect::<Vec<_>>());
}

#[test]
fn once_per_a_command_that_fails_is_run_again() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let run = |script: &str| {
        let words = ["run", "--once-per", LONG_PERIOD, "job", "-c", script];
        run(dir, &nodes.addresses(), &words)
    };
    assert_eq!(run("echo a >> runs; exit 3").code(), Some(3));
    assert_eq!(run("echo b >> runs; kill -9 $$").code(), Some(128 + 9));
    assert_eq!(run("echo c >> runs").code(), Some(0));
    run("echo d >> runs").assert_silent();
    assert_eq!(dir.read("runs"), "a\nb\nc\n");
}

/// A period of any length has the number of its own in the time since 1970, to the nanosecond.
#[test]
#[expect(clippy::disallowed_methods, reason = "the wall clock names a period")]
fn once_per_a_period_need_not_be_whole_seconds() {
    let (nodes, dir) = (&Nodes::start(1), &Dir::new());
    let number = |period: Duration| UNIX_EPOCH.elapsed().unwrap().as_nanos() / period.as_nanos();
    for (text, nanos) in [
        ("1s", 1_000_000_000),
        ("1500ms", 1_500_000_000),
        ("1999ms", 1_999_000_000),
        ("1h 1ms", 3_600_001_000_000),
        ("1s 1ns", 1_000_000_001),
        ("1s 999999us", 1_999_999_000),
    ] {
        let period = Duration::from_nanos(nanos);
        let before = number(period);
        let words = ["run", "--once-per", text, "job", "-c", "echo $QUORATE_LOCK"];
        let done = run(dir, &nodes.addresses(), &words);
        let after = number(period);
        let found = done.out.trim_end().strip_prefix("job@").map(|number| number.parse().unwrap());
        assert!(found.is_some_and(|found| (before..=after).contains(&found)), "{text}: {done:?}");
        nodes[0].flushall();
    }
}

/// The label, the name of the period, and the mark are those of [`LockManager::once_per`].
#[tokio::test]
async fn once_per_is_that_of_the_library() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let period = Duration::from_secs(300 * 24 * 60 * 60);
    let backends = quorate::redis::connect(nodes.addresses()).unwrap();
    let manager = LockManager::builder(backends).label("a library").build().unwrap();
    let done = manager.once_per("first", period, async |_| Ok::<(), ()>(())).await;
    assert_eq!(done.unwrap(), Some(Ok(())));
    let words = |name, script| {
        [
            "run",
            "--ttl",
            "20s",
            "--label",
            "a command",
            "--once-per",
            LONG_PERIOD,
            name,
            "-c",
            script,
        ]
    };
    run(dir, &nodes.addresses(), &words("first", "echo ran > ran")).assert_silent();
    assert_eq!(dir.read("ran"), "");

    let script = format!("'{}' inspect \"$QUORATE_LOCK\"", crate::support::QUORATE);
    let seen = run(dir, &nodes.addresses(), &words("second", &script));
    assert!(seen.code() == Some(0) && seen.out.contains("a command"), "{seen:?}");
    let done = manager.once_per("second", period, async |_| Ok::<(), ()>(())).await;
    assert_eq!(done.unwrap(), None);
    // The mark stays for two periods.
    let key = seen.out.split(": ").next().unwrap();
    let least = i64::try_from(period.as_millis()).unwrap();
    assert!(nodes.iter().all(|node| node.pttl(key) > least));
}

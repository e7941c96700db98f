//! `--once-per`: the command runs once in each period, on one of all machines.

use std::process::Command;
use std::sync::Barrier;
use std::thread;
use std::time::UNIX_EPOCH;

use quorate::{LockManager, Period};
use quorate_tests::wait::{LONG_TTL, NODE_TIMEOUT};
use quorate_tests::{Nodes, RedisServer};
use rustix::process::Signal;

use crate::support::{
    Dir, Done, LONG_PERIOD, Started, ask, begin, hold, quorate, run_until, take, with_quorum,
};

const MACHINES: usize = 5;

fn run(dir: &Dir, addresses: &[String], words: &[&str]) -> Done {
    with_quorum(|| crate::support::run(dir, addresses, words))
}

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

/// The label, the name of the period, and the mark are those of [`LockManager::once_per`].
#[tokio::test]
async fn once_per_is_that_of_the_library() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let period = Period::Month;
    let backends = quorate::redis::connect(nodes.addresses()).unwrap();
    let builder = LockManager::builder(backends).ttl(LONG_TTL).node_timeout(NODE_TIMEOUT);
    let manager = builder.label("a library").build().unwrap();
    let done = manager.once_per("first", period, async |_| Ok::<(), ()>(())).await;
    assert_eq!(done.unwrap(), Some(Ok(())));
    let run = |name, script| {
        let options = ["--ttl", "20s", "--label", "a command", "--once-per", LONG_PERIOD];
        run(dir, &nodes.addresses(), &[&["run"], &options[..], &[name, "-c", script]].concat())
    };
    run("first", "echo ran > ran").assert_silent();
    assert_eq!(dir.read("ran"), "");

    let script = format!("'{}' inspect \"$QUORATE_LOCK\"", crate::support::QUORATE);
    let seen = run("second", &script);
    assert!(seen.code() == Some(0) && seen.out.contains("a command"), "{seen:?}");
    let done = manager.once_per("second", period, async |_| Ok::<(), ()>(())).await;
    assert_eq!(done.unwrap(), None);
    // The mark stays for two periods. A node more than a quorum may have been slow.
    let key = seen.out.split(": ").next().unwrap();
    let least = i64::try_from(period.length().as_millis()).unwrap();
    assert!(nodes.iter().filter(|node| node.pttl(key) > least).count() >= 2);
}

/// A time zone that is so many seconds behind UTC, as `TZ` has it.
fn zone(behind: i64) -> String {
    let (sign, seconds) = (if behind < 0 { "-" } else { "+" }, behind.abs());
    format!("<here>{sign}{}:{}:{}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[test]
fn once_per_local_day_is_a_day_of_the_local_calendar() {
    const HOUR: i64 = 3600;
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let addresses = &nodes.addresses();
    let run = |zone: &str, period: &str| {
        let mut command = quorate(dir, addresses);
        command.args(["run", "--once-per", period, "job", "-c", "echo $QUORATE_LOCK >> runs"]);
        command.env("TZ", zone);
        Started::spawn(command, dir).done()
    };
    let run = |zone: &str, period: &str| with_quorum(|| run(zone, period));
    // As the system has it.
    let date = |zone: &str, format: &str| {
        let output = Command::new("date").arg(format).env("TZ", zone).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    // It is noon, at whatever hour this test runs, and elsewhere another day.
    let now: i64 = date("UTC0", "+%s").trim_end().parse().unwrap();
    let noon = now % (24 * HOUR) - 12 * HOUR;
    let elsewhere = &zone(if noon < 0 { noon + 18 * HOUR } else { noon - 18 * HOUR });
    let noon = &zone(noon);
    for _ in 0..2 {
        run(noon, "local-day").assert_silent();
    }
    let name = date(noon, "+job@%Y-%m-%d");
    assert_eq!(dir.read("runs"), name);
    // The longest two days of a calendar are those of 25 and 24 hours. A node more than a quorum may have been slow.
    let outlives = |node: &&RedisServer| node.pttl(name.trim_end()) > 49 * HOUR * 1000;
    assert!(nodes.iter().filter(outlives).count() >= 2);
    run(elsewhere, "local-day").assert_silent();
    assert_eq!(dir.read("runs"), [&*name, &date(elsewhere, "+job@%Y-%m-%d")].concat());
    // A number is no date.
    run(noon, LONG_PERIOD).assert_silent();
    assert_eq!(dir.read("runs").lines().count(), 3);
    // Another machine has the zone, and would run the command on another day.
    let unknown = run("Nowhere/City", "local-day");
    assert_eq!(unknown.code(), Some(64), "{unknown:?}");
    assert!(unknown.err.contains("there is no such time zone"), "{unknown:?}");
}

/// Its name, the time until which it is done, and by which machine. Under the name of the job as well as with the period.
#[test]
#[expect(clippy::disallowed_methods, reason = "a mark has times of the wall clock")]
fn once_per_a_mark_reads_done_and_can_be_freed() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let run = |words: &[&str]| run(dir, &nodes.addresses(), words);
    let job = |options: &[&str]| {
        let options = [&["--label", "web-3", "--once-per", LONG_PERIOD], options].concat();
        run(&[&["run"], &*options, &["job", "-c", "echo >> runs"]].concat())
    };
    let count = || dir.read("runs").lines().count();
    let inspect = |words: &[&str], code| {
        let seen = ask(dir, &nodes.addresses(), &[&["inspect", "job"], words].concat());
        assert_eq!(seen.code(), Some(code), "{seen:?}");
        seen.out
    };
    // Under the name of the job alone, some 240 are asked for at once. One that no quorum has the time to answer is unclear.
    let find = |words: &[&str], text: &str, code| {
        let found = run_until(|done| done.out.contains(text), || run(words));
        assert!(found.code() == Some(code) || !found.is_answered(), "{found:?}");
        found
    };
    let period = ["--once-per", LONG_PERIOD];
    assert!(inspect(&period, 1).contains(": free on "));
    // A run that is in progress holds the lock.
    let script = "echo > started; while [ -e here ]; do sleep 0.05; done";
    let words = format!("--label db-1 --once-per {LONG_PERIOD} job");
    let (mut running, _) = begin(dir, &nodes.addresses(), &words, script, "started");
    let held = ": held by \"db-1\" on ";
    let seen = inspect(&period, 0);
    assert!(seen.contains(held), "{seen}");
    find(&["inspect", "job"], held, 1);
    let skipped = job(&["-v"]).err;
    assert!(skipped.contains("skipped: job@") && skipped.contains(held), "{skipped}");
    let again = job(&["--again"]);
    assert!(again.code() == Some(75) && again.err.contains("held by \"db-1\""), "{again:?}");
    // What runs is named, and left alone: a name that is free is not all.
    let left = find(&["free", "--now", "--yes", "job"], held, 75).out;
    assert!(left.contains("\njob: nothing was done. Free what runs by its name: job@"), "{left}");
    assert!(running.is_running());
    running.signal(Signal::TERM);
    running.done();

    let begun = UNIX_EPOCH.elapsed().unwrap().as_secs();
    job(&[]).assert_silent();
    job(&[]).assert_silent();
    assert_eq!(count(), 1);
    let [one, other] = [inspect(&period, 0), find(&["inspect", "job"], ": done until ", 1).out];
    let told = find(&["inspect", "job", "--json"], "\"done\"", 1).json();
    let text = |field: &str| told["locks"][1][field].as_str().unwrap();
    let (name, until, began) = (text("name"), text("until"), text("began"));
    assert_eq!(text("state"), "done");
    // The end of the period, not that of the mark.
    let month = name.strip_prefix("job@").and_then(|month| month.strip_suffix('Z')).unwrap();
    let next = format!("{month}-01 +1 month");
    let ends = Command::new("date").args(["-u", "-d", &next, "+%FT%TZ"]).output().unwrap();
    assert_eq!(until, String::from_utf8(ends.stdout).unwrap().trim_end());
    // It has one end, that of the period, and says when the command ran, and by whom.
    let done = &format!("{name}: done until {until}, ran ");
    assert!(other.lines().nth(1).unwrap().starts_with(done) && !one.contains(" left"), "{other}");
    let ran = one.strip_prefix(done).expect("a mark");
    let (time, by) = ran.split_once(&format!(" from {began}, by ")).expect("when it ran");
    assert!(by.starts_with("\"web-3\" on "), "{one}");
    let seconds = |time: &str| {
        humantime::parse_rfc3339(time).unwrap().duration_since(UNIX_EPOCH).unwrap().as_secs()
    };
    let ended = seconds(began) + humantime::parse_duration(time).unwrap().as_secs();
    let seen = [begun, seconds(began), ended, UNIX_EPOCH.elapsed().unwrap().as_secs()];
    assert!(seen.is_sorted(), "{one}: {seen:?}");
    assert!(seconds(text("ended")).abs_diff(ended) <= 1, "{told}: {one}");
    let skipped = job(&["-v"]).err;
    let expected = format!("skipped: {name}: done by \"web-3\" on ");
    assert!(skipped.contains(&expected), "{skipped}");

    assert_eq!((job(&["--again"]).code(), count()), (Some(0), 2));
    assert!(inspect(&period, 0).contains("done until "), "it is marked again");
    for (words, runs) in [(&["--now"][..], 3), (&[], 4), (&period, 5)] {
        assert_eq!(run(&[&["free", "job"], words].concat()).code(), Some(64), "it needs --yes");
        find(&[&["free", "--yes", "job"], words].concat(), ": deleted: done on ", 0);
        job(&[]).assert_silent();
        assert_eq!(count(), runs, "{words:?}");
    }
}

/// So that a script tells what was done here, what is done, and what still runs elsewhere, and may
/// fail.
#[test]
fn once_per_the_exit_code_tells_what_is_done_from_what_runs() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let addresses = &nodes.addresses();
    let words = ["run", "--once-per", LONG_PERIOD];
    let code = |options: &[&str]| {
        let fails = ["job", "-c", "exit 1"];
        let done = run(dir, addresses, &[&words[..], options, &fails].concat());
        assert_eq!((&*done.out, &*done.told()), ("", ""), "{options:?}");
        done.code().unwrap()
    };
    let mut running = hold(dir, addresses, &format!("--once-per {LONG_PERIOD} -E 10,11 job"));
    let options = [&[][..], &["-E", "10"], &["-E", "10,11"], &["-E", "0,11"]];
    assert_eq!(options.map(code), [0, 10, 10, 0], "while it runs");
    let skips = |options: &[&str]| code(&[options, &["--skip"]].concat());
    assert_eq!(options.map(skips), [0, 10, 10, 0], "while it runs");
    dir.write("go", "");
    assert_eq!(running.done().code(), Some(0), "done here");
    assert_eq!(options.map(code), [0, 0, 11, 11], "once it is done");
    assert_eq!(code(&["-E", "10,11", "--again"]), 1, "it runs once more");
}

/// Each name that is free adds some 240 others.
#[test]
fn once_per_the_marks_of_many_names_are_all_found() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let words = ["run", "--once-per", LONG_PERIOD, "job", "-c", "echo $QUORATE_LOCK > name"];
    run(dir, &nodes.addresses(), &words).assert_silent();
    let mark = dir.wait_for("name");
    let jobs: Vec<String> = (0..50).map(|number| format!("job-{number}")).collect();
    // A node more than a quorum may have been slow.
    for node in nodes.iter().filter(|node| node.pttl(&mark) > 0) {
        for job in &jobs {
            let copied = node.cli(&["COPY", &mark, &mark.replace("job", job)]);
            assert_eq!(copied.integer(), 1);
        }
    }
    // A whole line says which node had no time to answer.
    let names = jobs.iter().map(String::as_str);
    let words: Vec<&str> = ["-v", "inspect"].into_iter().chain(names).collect();
    let seen = ask(dir, &nodes.addresses(), &words);
    assert_eq!(seen.code(), Some(1), "{seen:?}");
    assert_eq!(seen.out.matches(": done until ").count(), jobs.len(), "{seen:?}");
}

/// It may be a permit, or a mark that is to be freed.
#[test]
fn once_per_a_name_that_was_not_given_is_shown_if_it_is_unclear() {
    let (nodes, dir) = (&Nodes::start(1), &Dir::new());
    // A key of another type shows no holder.
    nodes[0].cli(&["HSET", "job#1", "field", "value"]);
    for words in [&["inspect", "job"][..], &["free", "--yes", "job"]] {
        let seen = crate::support::run(dir, &nodes.addresses(), words);
        assert_eq!(seen.code(), Some(69), "{seen:?}");
        assert!(seen.out.contains("job#1: unclear"), "{seen:?}");
    }
}

/// Which option is given is for the user to say: nothing shows that there is such a mark.
#[test]
fn once_per_a_mark_of_a_period_that_is_not_looked_for_needs_the_option() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let words = ["run", "--once-per", "90m", "job", "--", "true"];
    run(dir, &nodes.addresses(), &words).assert_silent();
    for (options, has_tip) in [
        (&[][..], true),
        (&["-q"], false),
        (&["--permits", "1"], false),
        (&["--once-per", "91m"], false),
    ] {
        let words = [&["free", "--yes", "job"], options].concat();
        let freed = ask(dir, &nodes.addresses(), &words);
        assert_eq!(freed.code(), Some(0), "{freed:?}");
        assert!(freed.out.contains(": was free\n"), "{freed:?}");
        let tip = "quorate: job: if it ran with --once-per or --permits, give that option here\n";
        assert_eq!(freed.err, if has_tip { tip } else { "" }, "{options:?}");
    }
}

/// Those that people give are found by the name alone, and as many permits as the page says.
#[test]
fn once_per_the_usual_periods_and_64_permits_are_looked_for() {
    let (nodes, dir) = (&Nodes::start(1), &Dir::new());
    let addresses = &nodes.addresses();
    let run = |words: &[&str]| crate::support::run(dir, addresses, words);
    let periods = "59s 1m 59m 1h 23h 1day 24h 1week 1w 1month 1M local-day local-week local-month";
    for period in periods.split(' ') {
        // The period may end in between.
        run_until(
            |done| done.out.contains(": done until "),
            || {
                run(&["run", "--once-per", period, "job", "--", "true"]);
                run(&["inspect", "job"])
            },
        );
        nodes[0].flushall();
    }
    ["job#64", "job#65"].iter().for_each(|name| take(nodes, name));
    let found = run_until(|done| done.out.contains("job#64: held"), || run(&["inspect", "job"]));
    assert!(!found.out.contains("job#65"), "{found:?}");
}

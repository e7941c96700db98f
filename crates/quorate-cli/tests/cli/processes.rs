//! All processes of the command end with the lock, in whatever process group they are.
#![cfg(target_os = "linux")]

use std::fs;
use std::process::Command;

use quorate_tests::Nodes;
use quorate_tests::wait::eventually;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    Dir, QUORATE, Started, group_of, is_alive, is_stopped, pause_writes, pid, run, start,
    unpause_writes, with_nodes,
};

/// A process that ends when it is asked to, or when the test is over.
const WORK: &str = "sh -c 'echo $$ > work; while [ -e here ]; do sleep 0.02; done'";

/// A process that ends only with the test.
const STUBBORN: &str =
    r#"sh -c 'trap "" TERM; echo $$ > work; while [ -e here ]; do sleep 0.02; done'"#;

/// Scripts that put this work out of the group of the command.
fn scripts(work: &str) -> [(&'static str, String); 4] {
    [
        ("a group of its own", format!("timeout 3600 {work}; true")),
        ("an orphan with a group of its own", format!("(timeout 3600 {work} &); sleep 3600")),
        ("a lock inside the lock", format!("\"$QUORATE\" run inner -- {work}; true")),
        ("a terminal of its own", "script -qc \"$WORK\" /dev/null; true".to_owned()),
    ]
}

/// `quorate` with this script, once the work has begun.
fn begin(dir: &Dir, nodes: &Nodes, (name, script): &(&str, String), work: &str) -> (Started, Pid) {
    let mut command = crate::support::quorate(dir, &nodes.addresses());
    command.env("QUORATE", QUORATE).env("WORK", work);
    command.args(["run", "--ttl", "6s", "--kill-after", "1s", name, "-c", script]);
    let started = Started::spawn(command, dir);
    (started, pid(&dir.wait_for("work")))
}

#[test]
fn x2_a_signal_ends_what_the_command_has_put_into_other_groups() {
    let nodes = &Nodes::start(3);
    for kind in &scripts(WORK) {
        let dir = &Dir::new();
        let (mut started, work) = begin(dir, nodes, kind, WORK);
        assert_ne!(group_of(work), group_of(started.pid()));
        started.signal(Signal::TERM);
        assert_eq!(started.done().code(), Some(128 + 15), "{}", kind.0);
        // The last of them has a session of its own, which ends with its terminal.
        match kind.0 {
            "a terminal of its own" => eventually("the end of a session", || !is_alive(work)),
            _ => assert!(!is_alive(work), "{}", kind.0),
        }
    }
}

/// A shell answers a signal when the program that it waits for has ended: so that has to get it, too.
#[test]
fn x2_a_signal_goes_to_what_the_command_waits_for() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let script = format!("trap 'exit 5' TERM; timeout 3600 {WORK}");
    let (mut started, work) = begin(dir, nodes, &("lock", script), "");
    started.signal(Signal::TERM);
    assert_eq!(started.done().code(), Some(5));
    assert!(!is_alive(work));
}

/// The outer `quorate` signals the inner one, and leaves it to that one to signal the command.
#[test]
fn x3_a_signal_reaches_a_command_inside_two_locks_once() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let work = r#"trap 'echo usr1 >> got' USR1; trap 'echo winch >> got' WINCH; trap '' USR2; echo $PPID > inner; \
                  echo $$ > work; until [ -e go ] || [ ! -e here ]; do sleep 0.02; done; exit 5"#;
    let mut command = crate::support::quorate(dir, &nodes.addresses());
    command.args(["run", "outer", "--", QUORATE, "run", "inner", "-c", work]);
    let mut started = Started::spawn(command, dir);
    let (work, inner) = (pid(&dir.wait_for("work")), pid(&dir.wait_for("inner")));
    kill_process(inner, Signal::STOP).unwrap();
    eventually("a stop", || is_stopped(inner));
    // When the second one has arrived, the first one has gone wherever it goes.
    for signal in [Signal::USR1, Signal::USR2] {
        started.signal(signal);
        eventually("a signal that is pending", || {
            let status = fs::read_to_string(format!("/proc/{}/status", inner.as_raw_nonzero()));
            let status = status.unwrap();
            let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap();
            let pending = u64::from_str_radix(pending.trim(), 16).unwrap();
            pending >> (signal.as_raw() - 1) & 1 == 1
        });
    }
    kill_process(work, Signal::WINCH).unwrap();
    assert_eq!(dir.wait_for("got"), "winch");
    kill_process(inner, Signal::CONT).unwrap();
    eventually("USR1", || dir.read("got") == "winch\nusr1\n");
    dir.write("go", "");
    assert_eq!(started.done().code(), Some(5));
    assert_eq!(dir.read("got"), "winch\nusr1\n");
}

/// In a pid namespace with the `/proc` of another one, its processes cannot be looked at: then it is the group of the command.
/// The group of `quorate` is outside, and has no id.
#[test]
fn x2_in_a_pid_namespace_the_command_ends_with_the_lock() {
    let unshare = |words: &[&str]| {
        let mut command = Command::new("setsid");
        command.args(["--wait", "unshare", "--user", "--map-root-user", "--pid", "--fork"]);
        command.args(words);
        command
    };
    // Some systems make none.
    if !unshare(&["--mount-proc", "true"]).output().unwrap().status.success() {
        return;
    }
    let nodes = &Nodes::start(3);
    for options in [&["--mount-proc"][..], &[]] {
        let dir = &Dir::new();
        let run = |name: &str, script: &str| {
            let quorate = ["env", "--ignore-signal=INT", QUORATE, "run", name, "-c", script];
            let command = unshare(&[options, &quorate].concat());
            Started::spawn(with_nodes(command, dir, &nodes.addresses()), dir).done().code()
        };
        // An ignored interrupt is asked for its terminal.
        let script = "trap 'exit 5' INT; kill -INT $PPID; while [ -e here ]; do sleep 0.02; done";
        assert_eq!(run("interrupted", script), Some(5), "{options:?}");
        let script = r#"(trap 'echo term > term; exit' TERM; echo > begun; while [ -e here ]; do sleep 0.02; done) &
                        until [ -e begun ]; do sleep 0.02; done; exit 3"#;
        assert_eq!((run("left", script), &*dir.read("term")), (Some(3), "term\n"), "{options:?}");
    }
}

#[test]
fn x1_nothing_runs_after_the_lease_in_other_groups() {
    let (nodes, kinds) = (&Nodes::start(3), &scripts(STUBBORN)[..3]);
    let dirs = [(); 3].map(|()| Dir::new());
    let begun = kinds.iter().zip(&dirs).map(|(kind, dir)| begin(dir, nodes, kind, STUBBORN));
    let begun: Vec<_> = begun.collect();
    pause_writes(nodes);
    for ((mut started, work), (kind, _)) in begun.into_iter().zip(kinds) {
        let done = started.done();
        assert!(!is_alive(work), "{kind}");
        assert_eq!(done.code(), Some(79), "{kind}: {done:?}");
    }
    unpause_writes(nodes);
}

/// A process that begins a session of its own is no process of the command any more.
#[test]
fn x2_a_session_of_its_own_stays() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let script =
        format!("setsid -f {WORK}; until [ -e work ] || [ ! -e here ]; do sleep 0.02; done");
    let (mut started, work) = begin(dir, nodes, &("lock", script), "");
    assert_eq!(started.done().code(), Some(0));
    assert!(is_alive(work));
    let _ = kill_process(work, Signal::KILL);
}

/// The command ends, and leaves work behind that does not stop when it is asked to, or whose first thread has ended, so
/// that `/proc` shows a `Z`.
#[test]
fn x2_what_is_left_in_other_groups_or_without_its_first_thread_ends_before_the_release() {
    const SOURCE: &str = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <string.h>
        #include <unistd.h>
        void *work(void *none) {
            char stat[512] = "";
            while (!strstr(stat, ") Z ")) {
                FILE *file = fopen("/proc/self/stat", "r");
                if (file) { fgets(stat, sizeof stat, file); fclose(file); }
            }
            FILE *file = fopen("work", "w");
            fprintf(file, "%d\n", getpid());
            fclose(file);
            while (!access("here", F_OK)) usleep(20000);
            return none;
        }
        int main() {
            pthread_t thread;
            pthread_create(&thread, 0, work, 0);
            pthread_exit(0);
        }"#;
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    dir.write("work.c", SOURCE);
    let mut build = Command::new("cc");
    build.args(["-pthread", "-o", "threads", "work.c"]).current_dir(dir.path());
    assert!(build.status().unwrap().success());
    let waits = "until [ -e work ] || [ ! -e here ]; do sleep 0.02; done; exit 3";
    let stubborn = &format!("timeout 3600 {STUBBORN}");
    for left in [stubborn, "(exec ./threads)", "(trap '' TERM; exec ./threads)"] {
        let script = format!("{left} & {waits}");
        let (mut started, work) = begin(dir, nodes, &("lock", script), "");
        assert_eq!(started.done().code(), Some(3));
        assert!(!is_alive(work), "{left}");
        fs::remove_file(dir.file("work")).unwrap();
        run(dir, &nodes.addresses(), &["run", "--no-wait", "lock", "--", "true"]).assert_silent();
    }
}

/// A shell that has begun something else, and becomes `quorate`: a child, the child of one that ends
/// during the run, and one that is begun during the run.
#[test]
fn x2_what_was_there_before_the_command_stays() {
    // `quorate` has looked at its processes, each time that it was awake.
    let seen = "switches() { grep ^voluntary /proc/$PPID/status | tr -dc 0-9; }; \
                until=$(($(switches) + 20)); until [ $(switches) -gt $until ]; do sleep 0.02; done";
    let parent =
        format!("(echo > begun; {WORK} & until [ -e go ]; do sleep 0.02; done; echo > went)");
    let late = parent.replace("echo > begun", "until [ -e started ]; do sleep 0.02; done");
    let ends = "echo > go; until [ -e went ]; do sleep 0.02; done; ";
    for (begins, command) in [
        (WORK, String::new()),
        (&*parent, format!("until [ -s work ]; do sleep 0.02; done; {ends}")),
        (&*late, format!("echo > started; until [ -s work ]; do sleep 0.02; done; {seen}; {ends}")),
        // It has not: the parent ends as soon as the work has begun.
        (
            &*format!("(until [ -e started ]; do sleep 0.02; done; {WORK} &)"),
            "echo > started; ".to_owned(),
        ),
    ] {
        let (nodes, dir) = (&Nodes::start(3), &Dir::new());
        let mut shell = Command::new("sh");
        // As an orphan, it is our child.
        let orphan = "stat=/proc/$(cat work)/stat; until [ ! -e $stat ] || \
                      grep -q \") [A-Z] $PPID \" $stat; do sleep 0.02; done";
        let command = format!("{command}until [ -s work ]; do sleep 0.02; done; {orphan}; exit 4");
        shell.args([
            "-c",
            &format!("{begins} & exec \"$0\" run lock -c \"$1\""),
            QUORATE,
            &command,
        ]);
        let mut started = Started::spawn(with_nodes(shell, dir, &nodes.addresses()), dir);
        let work = pid(&dir.wait_for("work"));
        assert_eq!(started.done().code(), Some(4), "{begins}");
        assert!(is_alive(work), "{begins}");
        let _ = kill_process(work, Signal::KILL);
    }
}

/// Each orphan of the command is a child of `quorate`, and none stays as a zombie.
#[test]
fn x2_orphans_of_the_command_are_reaped_as_they_end() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let orphans = "for i in $(seq 50); do (sh -c 'echo $$ >> orphans' &); done";
    let script =
        format!("{orphans}; until [ -e go ] || [ ! -e here ]; do sleep 0.01; done; exit 4");
    let mut started = start(dir, &nodes.addresses(), &["run", "lock", "-c", &script]);
    eventually("50 orphans", || dir.read("orphans").lines().count() == 50);
    let is_there = |pid: &str| fs::exists(format!("/proc/{pid}")).unwrap();
    eventually("the end of all, with nothing left", || !dir.read("orphans").lines().any(is_there));
    dir.write("go", "");
    assert_eq!(started.done().code(), Some(4));
}

/// What `kill -9` of `quorate` leaves behind: nothing of the command itself, in a lock inside a lock
/// too, whatever it does with TERM.
#[test]
fn x7_the_command_is_killed_with_quorate() {
    let nodes = &Nodes::start(3);
    for (inner, work) in [
        ("", WORK),
        ("", STUBBORN),
        ("\"$QUORATE\" run inner -- ", WORK),
        ("\"$QUORATE\" run inner -- ", STUBBORN),
    ] {
        let dir = &Dir::new();
        let script = format!("exec {inner}{work}");
        let (mut started, work) = begin(dir, nodes, &("lock", script), "");
        started.signal(Signal::KILL);
        assert_eq!(started.done().code(), None);
        eventually("the end of the command", || !is_alive(work));
        crate::support::delete(nodes, "lock");
        crate::support::delete(nodes, "inner");
    }
}

/// It gets no other signal before, and what it has started goes on.
#[test]
fn x7_the_command_alone_is_killed_and_is_not_asked_before() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let script = format!(
        "for name in HUP INT QUIT TERM; do trap \"echo $name >> got\" $name; done; \
         echo $$ > command; {WORK} & while [ -e here ]; do sleep 0.02; done"
    );
    let (mut started, work) = begin(dir, nodes, &("lock", script), "");
    let command = pid(&dir.wait_for("command"));
    started.signal(Signal::KILL);
    assert_eq!(started.done().code(), None);
    eventually("the end of the command", || !is_alive(command));
    assert!(is_alive(work));
    assert_eq!(dir.read("got"), "");
}

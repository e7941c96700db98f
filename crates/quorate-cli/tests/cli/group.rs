//! The group of the command, and what the command inherits.

use std::process::Command;

use quorate_tests::Nodes;
use rustix::process::Signal;

use crate::support::{
    Dir, LONG_PERIOD, QUORATE, Started, begin, group_of, is_group_alive, pid, with_nodes,
    with_quorum,
};

#[test]
fn x2_the_command_leads_a_group_and_a_signal_goes_to_all_of_it() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    // The shell waits for the first of two, which ends by the signal as the shell does.
    let script = "echo $$ > group; sh -c 'echo $$ > child; while [ -e here ]; do sleep 0.05; done'; echo b > b";
    let (mut started, child) = begin(dir, &nodes.addresses(), "lock", script, "child");
    let (group, child) = (pid(&dir.wait_for("group")), pid(&child));
    assert_eq!([group, child].map(group_of), [group.as_raw_nonzero().get(); 2]);
    started.signal(Signal::TERM);
    assert_eq!((started.done().code(), &*dir.read("b")), (Some(128 + 15), ""));
    assert!(!is_group_alive(group));
}

/// The parent of `quorate` ignores or blocks SIGCHLD, and so does `quorate` at its start.
#[cfg(target_os = "linux")]
#[test]
fn the_exit_code_arrives_although_the_parent_ignores_or_blocks_the_signal_of_a_child() {
    let nodes = &Nodes::start(3);
    for (option, field) in [("--ignore-signal=CHLD", "SigIgn"), ("--block-signal=CHLD", "SigBlk")] {
        let dir = &Dir::new();
        let without = |words: &[&str]| {
            let mut command = Command::new("env");
            command.arg(option).args(words);
            Started::spawn(with_nodes(command, dir, &nodes.addresses()), dir).done()
        };
        // SIGCHLD is the signal 17.
        let mask = without(&["grep", field, "/proc/self/status"]).out;
        let mask = u64::from_str_radix(mask.split_whitespace().last().unwrap(), 16).unwrap();
        assert_eq!(mask >> 16 & 1, 1, "{option}");
        let run = |script| {
            // The end of a short lease would be one more moment in which the command is looked at.
            let words = [QUORATE, "run", "--ttl", "1h", "--once-per", LONG_PERIOD, field];
            let words = [&words[..], &["-c", script]].concat();
            with_quorum(|| without(&words))
        };
        let done = run("exit 5");
        assert_eq!((done.code(), &*done.told()), (Some(5), ""), "{option}");
        run("echo ran >> ran").assert_silent();
        run("echo ran >> ran").assert_silent();
        assert_eq!(dir.read("ran"), "ran\n", "{option}");
    }
}

#[test]
fn x6_the_command_sees_the_names_and_the_fencing_token_and_never_the_token() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let seen = |words: &[&str]| {
        let mut command = crate::support::quorate(dir, &nodes.addresses());
        // That of a lock around this one.
        command.args(words).env("QUORATE_FENCING_TOKEN", "7");
        let script = "env; echo \"$QUORATE_LOCK\" > names; echo ready > ready; until [ -e go ] || [ ! -e here ]; do sleep 0.01; done";
        command.args(["-c", script]);
        let mut started = Started::spawn(command, dir);
        dir.wait_for("ready");
        // A quorum has it, whichever nodes that is.
        let value = nodes.iter().find_map(|node| node.get("orders:1")).unwrap();
        let value = String::from_utf8(value).unwrap();
        dir.write("go", "");
        let done = started.done();
        let (token, label) = value.split_once(' ').unwrap();
        assert!(token.len() == 40 && !done.out.contains(token), "{done:?}");
        assert!(
            label.contains('@') && label.ends_with(&format!(":{}", started.pid().as_raw_nonzero()))
        );
        for name in ["ready", "go"] {
            std::fs::remove_file(dir.file(name)).unwrap();
        }
        let of = |line: &str| line.strip_prefix("QUORATE_FENCING_TOKEN=").map(str::to_owned);
        (dir.read("names"), done.out.lines().find_map(of))
    };
    assert_eq!(seen(&["run", "orders:1"]), ("orders:1\n".to_owned(), None));
    let (names, low) = seen(&["run", "--fenced", "orders:1", "orders of today"]);
    assert_eq!(names, "orders:1\norders of today\n");
    let (_, high) = seen(&["run", "--fenced", "orders:1"]);
    let number = |text: Option<String>| text.unwrap().parse::<u64>().unwrap();
    assert!(number(high) > number(low));
    // The prefix is that of the keys, not of the names.
    let script = "echo $QUORATE_LOCK; echo ready > ready; until [ -e go ] || [ ! -e here ]; do sleep 0.01; done";
    let words = "--prefix app: a";
    let (mut started, _) = begin(dir, &nodes.addresses(), words, script, "ready");
    assert!(nodes.iter().filter(|node| node.pttl("app:a") > 0).count() >= 2, "a quorum");
    assert!(nodes.iter().all(|node| node.pttl("a") == -2));
    dir.write("go", "");
    assert_eq!(started.done().out, "a\n");
}

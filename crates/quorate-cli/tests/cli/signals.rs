//! Signals while waiting and while the command runs.

use quorate_tests::Nodes;
use quorate_tests::wait::eventually;
use rustix::process::Signal;
#[cfg(target_os = "linux")]
use rustix_libc_wrappers::process::SignalExt as _;

use crate::support::{
    Dir, QUORATE, Started, ask, begin, hold, is_group_alive, is_stopped, keys_left, pid, start,
    take, wait_for_a_waiter, with_nodes,
};

/// Signals that end a process: by the keys of a terminal, timers, limits, devices and programs.
fn signals() -> Vec<Signal> {
    let mut signals = vec![
        Signal::TERM,
        Signal::INT,
        Signal::HUP,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::VTALARM,
        Signal::PROF,
        Signal::XCPU,
        Signal::XFSZ,
        Signal::ABORT,
        Signal::TRAP,
        Signal::SYS,
    ];
    #[cfg(target_os = "linux")]
    signals.extend([
        Signal::IO,
        Signal::POWER,
        Signal::STKFLT,
        Signal::rt_min(),
        Signal::rt(3).unwrap(),
        Signal::rt_max(),
    ]);
    signals
}

#[test]
fn x3_a_signal_ends_the_wait_and_leaves_no_key() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    for signal in signals() {
        let name = &signal.as_raw().to_string();
        take(nodes, name);
        let held = nodes[0].get(name);
        let words = ["run", "--wait", "1h", name, "-c", "echo ran > ran"];
        let mut started = start(dir, &nodes.addresses(), &words);
        wait_for_a_waiter(nodes, name);
        started.signal(signal);
        let done = started.done();
        let code = 128 + signal.as_raw();
        assert_eq!((done.code(), &*done.err, &*dir.read("ran")), (Some(code), "", ""), "{name}");
        // The lock of the other client is as it was, and nothing else is left.
        assert!(nodes.iter().all(|node| node.get(name) == held));
        let left = keys_left(nodes);
        assert!(left.iter().all(|(_, key)| !key.contains(':')), "{name}: {left:?}");
    }
}

#[test]
fn x3_a_signal_goes_to_the_command_and_the_lock_is_released_after_it() {
    let nodes = &Nodes::start(3);
    for signal in signals() {
        let (dir, name) = (&Dir::new(), &signal.as_raw().to_string());
        let script = format!(
            "trap 'echo got > got; until [ -e go ] || [ ! -e here ]; do sleep 0.01; done; echo first >> file; exit 5' {name}; \
             echo started > started; while [ -e here ]; do sleep 0.02; done"
        );
        let (mut started, _) = begin(dir, &nodes.addresses(), name, &script, "started");
        started.signal(signal);
        dir.wait_for("got");
        // The command takes its time, and has the lock.
        let held = ask(dir, &nodes.addresses(), &["inspect", name]);
        assert!(held.code() == Some(0) && held.out.contains(": held by "), "{held:?}");
        let mut second =
            start(dir, &nodes.addresses(), &["run", name, "-c", "echo second >> file"]);
        wait_for_a_waiter(nodes, name);
        dir.write("go", "");
        assert_eq!((started.done().code(), second.done().code()), (Some(5), Some(0)), "{name}");
        assert_eq!(dir.read("file"), "first\nsecond\n", "{name}");
    }
}

/// TSTP stops the command with `quorate`. After the end of the lease the command does not go on, not even for TERM.
#[test]
fn x3_a_stopped_command_goes_on_only_under_its_lease() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let script = "trap 'echo term >> file' TERM; echo $$ > group; \
                  while [ -e here ]; do echo first >> file; sleep 0.02; done";
    // It leads a group, as a job of a shell does. A group that no shell looks after is not stopped.
    let words = "--ttl 6s --kill-after 500ms lock";
    let (mut first, group) = begin(dir, &nodes.addresses(), words, script, "group");
    // A short stop: both go on.
    let size = || dir.read("file").len();
    first.signal(Signal::TSTP);
    // `quorate` stops last. The shell may be one that waits for a stopped child to start, which is no stop of its own.
    eventually("a stop", || is_stopped(first.pid()));
    let before = size();
    first.signal(Signal::CONT);
    eventually("a command that goes on", || size() > before);
    // A long one.
    first.signal(Signal::TSTP);
    eventually("a stop", || is_stopped(first.pid()));
    let before = dir.read("file");
    let mut second = hold(dir, &nodes.addresses(), "--wait 1h lock");
    first.signal(Signal::CONT);
    assert_eq!(first.done().code(), Some(79));
    assert!(!is_group_alive(pid(&group)));
    assert_eq!(dir.read("file"), before);
    dir.write("go", "");
    assert_eq!(second.done().code(), Some(0));
}

/// As one that has read from a terminal in the background.
#[test]
fn x3_a_command_that_is_stopped_ends_by_the_signal_that_ends_it() {
    let nodes = &Nodes::start(3);
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let dir = &Dir::new();
        let script = "echo $$ > pid; kill -STOP $$; while [ -e here ]; do sleep 0.02; done";
        let (mut started, command) = begin(dir, &nodes.addresses(), "lock", script, "pid");
        eventually("a stop", || is_stopped(pid(&command)));
        started.signal(signal);
        assert_eq!(started.done().code(), Some(128 + signal.as_raw()));
    }
}

#[test]
fn x3_a_second_interrupt_kills() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let script = "trap 'echo got > got' INT; (trap '' INT; while [ -e here ]; do sleep 0.02; done) & \
                  echo $$ > group; while [ -e here ]; do sleep 0.02; done";
    let (mut started, group) = begin(dir, &nodes.addresses(), "lock", script, "group");
    started.signal(Signal::INT);
    dir.wait_for("got");
    // Two of them are within 2 s, unless the machine sleeps.
    eventually("the end of the command", || {
        started.signal(Signal::INT);
        !started.is_running()
    });
    assert_eq!(started.done().code(), Some(128 + 9));
    assert!(!is_group_alive(pid(&group)));
}

/// As HUP under `nohup`: it does nothing to `quorate`, nor to the command.
#[cfg(target_os = "linux")]
#[test]
fn x3_a_signal_that_was_ignored_stays_ignored() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let script = "trap 'echo got > got' USR1; grep SigIgn /proc/$$/status > ignored; \
                  until [ -e got ] || [ ! -e here ]; do sleep 0.02; done; exit 5";
    let mut command = std::process::Command::new("env");
    command.args(["--ignore-signal=HUP", QUORATE, "run", "lock", "-c", script]);
    let mut started = Started::spawn(with_nodes(command, dir, &nodes.addresses()), dir);
    let ignored = dir.wait_for("ignored");
    let ignored = u64::from_str_radix(ignored.split_whitespace().last().unwrap(), 16).unwrap();
    assert_eq!(ignored & 1, 1, "HUP is the signal 1");
    // HUP would be taken first.
    started.signal(Signal::HUP);
    started.signal(Signal::USR1);
    assert_eq!(started.done().code(), Some(5));
}

/// `exec` of std makes it deadly again.
#[cfg(target_os = "linux")]
#[test]
fn x3_pipe_is_ignored_by_the_command_only_if_that_begins_so() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let show = ["grep", "SigIgn", "/proc/self/status"];
    for (begin, is_ignored) in [(&[][..], 0), (&["env", "--ignore-signal=PIPE"], 1)] {
        let mut command = std::process::Command::new("env");
        command.args(["--ignore-signal=PIPE", QUORATE, "run", "lock", "--"]);
        command.args(begin).args(show);
        let shown = Started::spawn(with_nodes(command, dir, &nodes.addresses()), dir).done().out;
        let mask = u64::from_str_radix(shown.split_whitespace().last().unwrap(), 16).unwrap();
        assert_eq!(mask >> 12 & 1, is_ignored, "PIPE is the signal 13");
    }
}

/// A shell has its background jobs ignore the keys of the terminal. A `kill` is no key.
#[cfg(target_os = "linux")]
#[test]
fn x3_an_interrupt_of_a_background_job_is_forwarded_if_it_is_no_key() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let script = "trap 'echo int > int; exit 5' INT; echo $PPID > pid; echo started > started; while [ -e here ]; do sleep 0.02; done";
    let mut command = std::process::Command::new("setsid");
    command.args(["--wait", "env", "--ignore-signal=INT", QUORATE, "run", "lock", "-c", script]);
    let mut started = Started::spawn(with_nodes(command, dir, &nodes.addresses()), dir);
    dir.wait_for("started");
    let quorate = pid(&dir.wait_for("pid"));
    rustix::process::kill_process(quorate, Signal::INT).unwrap();
    assert_eq!((started.done().code(), &*dir.read("int")), (Some(5), "int\n"));
}

//! Signals while waiting and while the command runs.

use quorate_tests::Nodes;
use quorate_tests::wait::eventually;
use rustix::process::Signal;

use crate::support::{Dir, is_group_alive, pid, run, start, take, wait_for_a_waiter};

const SIGNALS: &[(&str, Signal)] = &[
    ("TERM", Signal::TERM),
    ("INT", Signal::INT),
    ("HUP", Signal::HUP),
    ("QUIT", Signal::QUIT),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
];

#[test]
fn x3_a_signal_ends_the_wait_and_leaves_no_key() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    for (name, signal) in SIGNALS {
        take(nodes, name);
        let held = nodes[0].get(name);
        let words = ["run", "--wait", "1h", name, "-c", "echo ran > ran"];
        let mut started = start(dir, &nodes.addresses(), &words);
        wait_for_a_waiter(nodes, name);
        started.signal(*signal);
        let done = started.done();
        let code = 128 + signal.as_raw();
        assert_eq!((done.code(), &*done.err, &*dir.read("ran")), (Some(code), "", ""), "{name}");
        // The lock of the other client is as it was, and nothing else is left.
        assert!(nodes.iter().all(|node| node.get(name) == held));
        let left: Vec<_> = nodes.keys_left();
        assert!(left.iter().all(|(_, key)| !key.contains(':')), "{name}: {left:?}");
    }
}

#[test]
fn x3_a_signal_goes_to_the_command_and_the_lock_is_released_after_it() {
    let nodes = &Nodes::start(3);
    for (name, signal) in SIGNALS {
        let dir = &Dir::new();
        let script = format!(
            "trap 'echo got > got; until [ -e go ] || [ ! -e here ]; do sleep 0.01; done; echo first >> file; exit 5' {name}; \
             echo started > started; while [ -e here ]; do sleep 0.02; done"
        );
        let mut started = start(dir, &nodes.addresses(), &["run", name, "-c", &script]);
        dir.wait_for("started");
        started.signal(*signal);
        dir.wait_for("got");
        // The command takes its time, and has the lock.
        let held = run(dir, &nodes.addresses(), &["inspect", name]);
        assert!(held.code() == Some(0) && held.out.contains("on 3 of 3 nodes"), "{held:?}");
        let mut second =
            start(dir, &nodes.addresses(), &["run", name, "-c", "echo second >> file"]);
        wait_for_a_waiter(nodes, name);
        dir.write("go", "");
        assert_eq!((started.done().code(), second.done().code()), (Some(5), Some(0)), "{name}");
        assert_eq!(dir.read("file"), "first\nsecond\n", "{name}");
    }
}

#[test]
fn x3_a_second_interrupt_kills() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let script = "trap 'echo got > got' INT; (trap '' INT; while [ -e here ]; do sleep 0.02; done) & \
                  echo $$ > group; while [ -e here ]; do sleep 0.02; done";
    let mut started = start(dir, &nodes.addresses(), &["run", "lock", "-c", script]);
    let group = pid(&dir.wait_for("group"));
    started.signal(Signal::INT);
    dir.wait_for("got");
    // Two of them are within 2 s, unless the machine sleeps.
    eventually("the end of the command", || {
        started.signal(Signal::INT);
        !started.is_running()
    });
    assert_eq!(started.done().code(), Some(128 + 9));
    assert!(!is_group_alive(group));
}

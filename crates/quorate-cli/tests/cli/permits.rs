//! `--permits`: at most so many commands run at a time.

use std::thread;

use quorate_tests::Nodes;

use crate::support::{Dir, run, start};

/// Each command writes that it begins and that it ends, with the permit that it has.
const SCRIPT: &str = "echo + $QUORATE_LOCK >> runs; sleep 0.05; echo - $QUORATE_LOCK >> runs";

#[test]
fn permits_bound_how_many_commands_run_at_a_time() {
    const MACHINES: usize = 6;
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let addresses = &nodes.addresses();
    thread::scope(|scope| {
        for _ in 0..MACHINES {
            scope.spawn(|| {
                let words = ["run", "--prefix", "app:", "--permits", "2", "job", "-c", SCRIPT];
                run(dir, addresses, &words).assert_silent();
            });
        }
    });
    let (mut held, mut begun) = (Vec::new(), 0);
    for line in dir.read("runs").lines() {
        let (what, name) = line.split_once(' ').unwrap();
        assert!(["job#1", "job#2"].contains(&name), "{line}");
        if what == "+" {
            assert!(!held.contains(&name.to_owned()), "two commands have {name}");
            held.push(name.to_owned());
            begun += 1;
        } else {
            held.retain(|other| other != name);
        }
    }
    assert_eq!(begun, MACHINES);
}

#[test]
fn permits_that_are_all_held_are_exit_code_75() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let addresses = &nodes.addresses();
    let inner = ["run", "--no-wait", "--permits", "1", "job", "-c", "true"];
    let script = "echo > $QUORATE_LOCK.started; while [ -e here ]; do sleep 0.05; done";
    let outer = ["run", "--permits", "2", "job", "-c", script];
    let mut outers = [(); 2].map(|()| start(dir, addresses, &outer));
    ["job#1.started", "job#2.started"].iter().for_each(|name| drop(dir.wait_for(name)));
    let full = ["run", "--no-wait", "--permits", "2", "job", "-c", "true"];
    for words in [full, inner] {
        assert_eq!(run(dir, addresses, &words).code(), Some(75));
    }
    std::fs::remove_file(dir.file("here")).unwrap();
    outers.iter_mut().for_each(|outer| outer.done().assert_silent());
    run(dir, addresses, &inner).assert_silent();
    let two_names = ["run", "--permits", "2", "a", "b", "-c", "true"];
    assert_eq!(run(dir, addresses, &two_names).code(), Some(64));
    let none = ["run", "--permits", "0", "a", "-c", "true"];
    assert_eq!(run(dir, addresses, &none).code(), Some(64));
}

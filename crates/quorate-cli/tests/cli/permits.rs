//! `--permits`: at most so many commands run at a time.

use quorate_tests::Nodes;

use crate::support::{Dir, run, start};

#[test]
fn permits_that_are_all_held_are_exit_code_75() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let addresses = &nodes.addresses();
    let inner = ["run", "--no-wait", "--permits", "1", "job", "-c", "true"];
    let script = "echo > $QUORATE_LOCK.started; while [ -e here ]; do sleep 0.05; done";
    let outer = ["run", "--permits", "2", "job", "-c", script];
    let mut outers = [(); 2].map(|()| start(dir, addresses, &outer));
    for name in ["job#1.started", "job#2.started"] {
        dir.wait_for(name);
    }
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

//! `free`: the lock of the holder that is shown, and no other.

use quorate_tests::wait::eventually;
use quorate_tests::{Nodes, RedisServer};

use crate::support::{Dir, Done, ask, begin, delete, run, run_until, start, take};
use crate::terminal::{self, Terminal};

/// A command that holds the lock until the file `here` is gone.
const HOLDS: &str = "echo > $QUORATE_LOCK.started; while [ -e here ]; do sleep 0.05; done";

/// The values at a key.
fn values(nodes: &Nodes, name: &str) -> Vec<Option<Vec<u8>>> {
    nodes.iter().map(|node| node.get(name)).collect()
}

/// While it asks, the holder ends, and another one has the lock. Nothing but a yes frees it.
#[test]
fn v7_free_takes_the_lock_of_the_holder_that_it_has_shown_and_of_no_other() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let addresses = &nodes.addresses();
    let deletes = "though it may go on working? [y/N] ";
    for (words, asks, answer, is_other, code) in [
        (["free", "--no-wait", "lock"], "? [y/N] ", "y\n", true, 75),
        (["free", "--no-wait", "lock"], "? [y/N] ", "y\n", false, 0),
        (["free", "--now", "lock"], deletes, "y\n", true, 75),
        (["free", "--now", "lock"], deletes, "y\n", false, 0),
        (["free", "--now", "lock"], deletes, "n\n", false, 64),
        (["free", "--now", "lock"], deletes, "\n", false, 64),
    ] {
        let lock = |label| {
            let done = run(dir, addresses, &["lock", "--ttl", "1h", "--label", label, "lock"]);
            assert_eq!(done.code(), Some(0), "{done:?}");
        };
        lock("the first");
        let mut terminal = Terminal::open();
        let asking = terminal.run(dir, nodes, &words);
        terminal.wait_for("held by \"the first\" on ");
        terminal.wait_for(asks);
        if is_other {
            delete(nodes, "lock");
            lock("the next");
        }
        let before = values(nodes, "lock");
        terminal.answer(answer);
        if is_other {
            terminal.wait_for("lock: not freed: another has the lock by now: held by \"the next\"");
        }
        assert_eq!(terminal::code(asking), Some(code), "{words:?} {answer:?}");
        assert_eq!(values(nodes, "lock") == before, code != 0, "{words:?} {answer:?}");
        delete(nodes, "lock");
    }
}

#[test]
fn free_of_a_free_lock_is_no_error_and_of_a_held_one_needs_yes() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let free = |words: &[&str]| run(dir, &nodes.addresses(), &[&["free", "lock"], words].concat());
    for words in [&[][..], &["--now"], &["--yes"], &["--label", "web-3"]] {
        let done = free(words);
        assert_eq!((done.code(), &*done.out), (Some(0), "lock: was free\n"), "{done:?}");
    }
    run(dir, &nodes.addresses(), &["lock", "--ttl", "1h", "--label", "web-3", "lock"]);
    let before = values(nodes, "lock");
    for words in [&[][..], &["--now"]] {
        let done = free(words);
        assert!(done.code() == Some(64) && done.err.contains("--yes"), "{done:?}");
        assert!(done.out.contains("held by \"web-3\" on "), "{done:?}");
    }
    let other = free(&["--yes", "--label", "web"]);
    assert!(other.code() == Some(75) && other.out.contains("it has another label"), "{other:?}");
    assert_eq!(values(nodes, "lock"), before);
    let done = free(&["--yes", "--no-wait", "--label", "web-3"]);
    assert!(done.code() == Some(0) && done.out.contains("free in "), "{done:?}");
    assert_ne!(values(nodes, "lock"), before);
}

/// A value that is no token: another program has it, or another library.
#[test]
fn free_leaves_a_value_alone_that_is_no_lock_of_quorate() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    take(nodes, "session");
    nodes.iter().for_each(|node| node.set("for-ever", "x"));
    for name in ["session", "for-ever"] {
        let before = values(nodes, name);
        for words in [&["free", "--yes", name][..], &["free", "--yes", "--now", name]] {
            let done = run(dir, &nodes.addresses(), words);
            assert!(done.code() == Some(75) && done.out.contains("left alone"), "{done:?}");
            assert_eq!(values(nodes, name), before);
        }
    }
}

#[test]
fn free_and_inspect_find_the_permits_of_a_name() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let run = |words: &[&str]| run(dir, &nodes.addresses(), words);
    let ask = |words: &[&str]| ask(dir, &nodes.addresses(), words);
    let words = |label| ["run", "--label", label, "--permits", "2", "job", "-c", HOLDS];
    let mut holders = ["one", "two"].map(|label| start(dir, &nodes.addresses(), &words(label)));
    for name in ["job#1.started", "job#2.started"] {
        dir.wait_for(name);
    }
    // A holder that has a bare quorum leaves as soon as one node has deleted, and the others find it free.
    let has_both = |node: &RedisServer| ["job#1", "job#2"].iter().all(|name| node.pttl(name) > 0);
    eventually("each node has both", || nodes.iter().all(has_both));
    // The name alone is free, and says where the permits are.
    let names = |out: &str| -> Vec<String> {
        out.lines().map(|line| line.split(": ").next().unwrap().to_owned()).collect()
    };
    // Some 240 names are asked for at once. One that no quorum has the time to answer is unclear.
    let ask_for_all = |words: &[&str]| {
        let has_three = |done: &Done| names(&done.out).len() == 3;
        run_until(has_three, || run(words))
    };
    let seen = ask_for_all(&["inspect", "job"]);
    assert_eq!(seen.code(), Some(1), "{seen:?}");
    assert_eq!(names(&seen.out), ["job", "job#1", "job#2"]);
    assert!(seen.out.contains("held by \"one\"") && seen.out.contains("held by \"two\""));
    let freed = ask_for_all(&["free", "--yes", "job"]);
    assert_eq!((freed.code(), names(&freed.out)), (Some(75), names("job#1: \njob#2: \njob: ")));
    assert!(freed.out.ends_with("Free what runs by its name: job#1 job#2\n"), "{freed:?}");
    assert!(nodes[0].pttl("job#1") > 0 && nodes[0].pttl("job#2") > 0, "they are named only");
    let seen = ask(&["inspect", "--permits", "3", "job"]);
    assert_eq!((seen.code(), names(&seen.out).len()), (Some(1), 3), "{seen:?}");
    assert_eq!(ask(&["inspect", "--permits", "2", "job"]).code(), Some(0));
    // The one that has this label.
    let freed = run(&["free", "--now", "--yes", "--permits", "2", "--label", "two", "job"]);
    assert_eq!(freed.code(), Some(75), "the other has another one: {freed:?}");
    assert_eq!(freed.out.matches("deleted: done on").count(), 1, "{freed:?}");
    let stopped = holders[1].done();
    assert_eq!(stopped.code(), Some(79), "{stopped:?}");
    let two = ["run", "--no-wait", "--permits", "1", "job", "--", "true"];
    let three = ["run", "--no-wait", "--permits", "3", "other", "--", "true"];
    ["other#1", "other#2", "other#3"].iter().for_each(|name| take(nodes, name));
    let refused = run(&three);
    let text = "quorate: other#1, other#2, other#3: held by another client on";
    assert!(refused.code() == Some(75) && refused.err.starts_with(text), "{refused:?}");
    assert!([0, 75].contains(&run(&two).code().unwrap()));
    for words in
        [["inspect", "--permits", "2", "a", "b"], ["inspect", "--once-per", "1h", "a", "b"]]
    {
        assert_eq!(run(&words).code(), Some(64));
    }
    std::fs::remove_file(dir.file("here")).unwrap();
    assert_eq!(holders[0].done().code(), Some(0));
}

/// The holder is asked to leave. One that does not is waited for until its ttl has passed.
#[test]
fn free_says_whether_the_holder_has_left_or_the_ttl_has_passed() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let free = || run(dir, &nodes.addresses(), &["free", "--yes", "--label", "web-3", "job"]);
    let (mut holder, _) =
        begin(dir, &nodes.addresses(), "--ttl 1h --label web-3 job", HOLDS, "job.started");
    let done = free();
    assert_eq!(done.code(), Some(0), "{done:?}");
    assert!(done.out.contains("job: its holder left after "), "{done:?}");
    let stopped = holder.done();
    assert_eq!(stopped.code(), Some(79), "{stopped:?}");
    assert!(stopped.err.contains(", and the command stopped: job: revoked by \""), "{stopped:?}");
    // On a busy machine it may be over before the test looks, and the nodes may say so before it is over by the clock of the process.
    eventually("the end of a ttl", || {
        run(dir, &nodes.addresses(), &["lock", "--ttl", "2s", "--label", "web-3", "job"]);
        let done = free();
        let ends = ["was free", "its holder left after ", "its ttl has passed"];
        assert!(ends.iter().any(|end| done.out.contains(end)), "{done:?}");
        done.out.contains(ends[2])
    });
}

/// Each name is on one line, and changes no terminal.
#[test]
fn free_inspect_and_run_show_a_name_with_its_control_characters_escaped() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let (name, shown) = ("a\nb\u{1b}[31m müller", "a\\nb\\u{1b}[31m müller: ");
    let seen = ask(dir, &nodes.addresses(), &["inspect", name, "--permits", "1"]);
    assert!(seen.out.starts_with("a\\nb\\u{1b}[31m müller#1: free"), "{seen:?}");
    let freed = ask(dir, &nodes.addresses(), &["free", name]);
    assert_eq!(freed.out, format!("{shown}was free\n"));
    run(dir, &nodes.addresses(), &["lock", "--ttl", "1h", name]);
    let freed = run(dir, &nodes.addresses(), &["free", "--now", "--yes", name]);
    assert!(freed.out.lines().all(|line| line.starts_with(shown)), "{freed:?}");
    let done = run(dir, &nodes.addresses(), &["run", "-v", name, "--", "true"]);
    assert!(done.err.contains(&format!("quorate: {shown}acquired, ")), "{done:?}");
}

/// A key of readers is taken from all of them. In both orders.
#[test]
fn v7_free_by_a_label_leaves_readers_alone_of_whom_one_has_another() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let addresses = &nodes.addresses();
    let mut readers = ["one", "two"].map(|label| {
        let holds = format!("echo > {label}; while [ -e here ]; do sleep 0.05; done");
        begin(dir, addresses, &format!("--read --ttl 1h --label {label} job"), &holds, label).0
    });
    for label in ["one", "two", "three"] {
        for how in ["--now", "--no-wait"] {
            let done = ask(dir, addresses, &["free", "--yes", how, "--label", label, "job"]);
            assert_eq!(done.code(), Some(75), "{label} {how}: {done:?}");
            assert!(done.out.contains("it has another label"), "{label} {how}: {done:?}");
        }
    }
    std::fs::remove_file(dir.file("here")).unwrap();
    assert_eq!(readers.each_mut().map(|reader| reader.done().code()), [Some(0); 2]);
}

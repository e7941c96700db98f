//! `lock`, `extend`, `release`, `inspect` and `free`.

use std::fs::File;

use quorate_tests::wait::eventually;
use quorate_tests::{Nodes, RedisServer};
use serde_json::Value;

use crate::support::{Dir, Done, Started, ask, delete, keys_left, quorate, run};

/// Runs `quorate` with the record on standard input.
fn with_record(dir: &Dir, addresses: &[String], word: &str) -> Done {
    let mut command = quorate(dir, addresses);
    command.arg(word).stdin(File::open(dir.file("record")).unwrap());
    Started::spawn(command, dir).done()
}

#[test]
fn a_record_is_extended_again_and_again_and_released_once() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let addresses = &nodes.addresses();
    let locked = run(dir, addresses, &["lock", "--label", "a pipeline", "--ttl", "1h", "a", "b"]);
    assert_eq!((locked.code(), &*locked.told()), (Some(0), ""));
    dir.write("record", &locked.out);
    assert_eq!(run(dir, addresses, &["run", "--no-wait", "a", "--", "true"]).code(), Some(75));
    for _ in 0..2 {
        for node in nodes.iter() {
            node.cli(&["PEXPIRE", "a", "60000"]);
        }
        with_record(dir, addresses, "extend").assert_silent();
        assert!(nodes.iter().filter(|node| node.pttl("a") > 60_000).count() >= 2, "a quorum");
    }
    assert!(run(dir, addresses, &["inspect", "b"]).out.contains("a pipeline"));
    with_record(dir, addresses, "release").assert_silent();
    assert_eq!(keys_left(nodes), []);
    for word in ["release", "extend"] {
        let gone = with_record(dir, addresses, word);
        assert!(gone.code() == Some(79) && gone.err.contains("the lock is gone"), "{gone:?}");
    }
}

/// The steps of a pipeline are not told of a revoke, and end when they do.
#[test]
fn v9_a_record_whose_lock_was_revoked_is_released() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let addresses = &nodes.addresses();
    for names in [&["a"][..], &["a", "b"]] {
        dir.write("record", &run(dir, addresses, &[&["lock", "--ttl", "1h"], names].concat()).out);
        let freed = run(dir, addresses, &["free", "--yes", "--no-wait", "a"]);
        assert_eq!(freed.code(), Some(0), "{freed:?}");
        assert_eq!(run(dir, addresses, &["run", "--no-wait", "a", "--", "true"]).code(), Some(75));
        assert_eq!(with_record(dir, addresses, "extend").code(), Some(79));
        with_record(dir, addresses, "release").assert_silent();
        assert_eq!(keys_left(nodes), []);
    }
}

#[test]
fn a_lock_without_a_ttl_warns_that_nobody_renews_it() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let lock = |words: &[&str]| run(dir, &nodes.addresses(), &[&["lock"], words].concat());
    let warned = lock(&["a"]);
    let line = "quorate: nobody renews this lock: it ends after 30s. See --ttl\n";
    assert_eq!((warned.code(), &*warned.told(), warned.out.lines().count()), (Some(0), line, 1));
    for words in [&["-q", "b"][..], &["--ttl", "30s", "c"]] {
        let silent = lock(words);
        assert_eq!((silent.code(), &*silent.told()), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn what_is_wrong_with_the_settings_is_said_and_permanent() {
    let closed = &Nodes::start_with(3, &RedisServer::builder().user("default", "on >pw ~* +@all"));
    let with = |login: &str| {
        let addresses = closed.addresses().into_iter();
        addresses.map(|at| at.replace("redis://", login)).collect::<Vec<_>>()
    };
    let (right, wrong, dir) = (&with("redis://:pw@"), &with("redis://:no@"), &Dir::new());
    // As long as the guard below allows.
    dir.write("record", &run(dir, right, &["lock", "--ttl", "5s", "a"]).out);
    for words in [&["inspect", "a"][..], &["free", "--yes", "a"]] {
        let refused = run(dir, wrong, words);
        assert!(refused.code() == Some(78) && refused.out.contains("WRONGPASS"), "{refused:?}");
    }
    for word in ["extend", "release"] {
        let refused = with_record(dir, wrong, word);
        assert!(refused.code() == Some(78) && refused.err.contains("WRONGPASS"), "{refused:?}");
        // A guard for short locks only. The nodes have not seen it yet.
        let mut command = quorate(dir, right);
        command.args(["--guard-max-ttl", "5s", word]);
        command.stdin(File::open(dir.file("record")).unwrap());
        let done = Started::spawn(command, dir).done();
        assert_ne!(done.code(), Some(64), "{done:?}");
    }
}

#[test]
fn inspect_says_who_holds_and_free_takes_it_away() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let addresses = &nodes.addresses();
    let inspect = |words: &[&str]| ask(dir, addresses, &[&["inspect"], words].concat());
    let free = inspect(&["a"]);
    assert_eq!(
        (free.code(), &*free.out),
        (Some(1), "a: free on 3 of 3 nodes, 2 needed\n"),
        "{free:?}"
    );
    run(dir, addresses, &["lock", "--ttl", "1h", "--label", "web-3", "a"]);
    let held = inspect(&["a"]);
    assert!(held.code() == Some(0) && held.out.contains("web-3"), "{held:?}");
    // The worst of all, in any order. One is neither held nor free.
    nodes[0].cli(&["LPUSH", "split", "no lock"]);
    nodes[1].cli(&["LPUSH", "split", "no lock"]);
    for (names, code) in [
        (&["a", "b"][..], 1),
        (&["b", "a"], 1),
        (&["a", "a"], 0),
        (&["split"], 69),
        (&["split", "a", "b"], 69),
        (&["b", "split", "a"], 69),
        (&["a", "b", "split"], 69),
    ] {
        for words in [names.to_vec(), [&["--json"], names].concat()] {
            assert_eq!(inspect(&words).code(), Some(code), "{words:?}");
        }
    }

    // A quorum may have it before the third node does.
    eventually("each node has it", || nodes.iter().all(|node| node.get("a").is_some()));
    nodes[1].cli(&["DEL", "a"]);
    let told = inspect(&["--json", "a", "b"]).json();
    let left = told["locks"][0]["left_ms"].as_u64().unwrap();
    assert!(left > 3_000_000, "{told}");
    let states = |lock: &Value| {
        let nodes = lock["nodes"].as_array().unwrap().iter();
        nodes.map(|node| node["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let [a, b] = &told["locks"].as_array().unwrap()[..] else { panic!("{told}") };
    assert_eq!((&a["name"], &a["state"], &a["held_on"]), (&"a".into(), &"held".into(), &2.into()));
    assert_eq!((&a["label"], &a["nodes"][0]["label"]), (&"web-3".into(), &"web-3".into()));
    assert_eq!(
        (states(a), states(b)),
        (["held", "free", "held"].map(str::to_owned).to_vec(), vec!["free".to_owned(); 3])
    );
    assert_eq!(
        (&b["state"], &b["label"], &b["left_ms"]),
        (&"free".into(), &Value::Null, &Value::Null)
    );
    assert_documented("inspect --json", &told);

    // Safe: the key stays until its ttl has passed. At once: it is gone.
    let revoked = run(dir, addresses, &["free", "--yes", "--no-wait", "a"]);
    assert!(revoked.code() == Some(0) && revoked.out.contains("free in"), "{revoked:?}");
    assert!(nodes[0].pttl("a") > 3_000_000 && inspect(&["a"]).out.contains("revoked"));
    let deleted = run(dir, addresses, &["free", "--now", "--yes", "a"]);
    assert_eq!((deleted.code(), inspect(&["a"]).code()), (Some(0), Some(1)), "{deleted:?}");
    assert_eq!(run(dir, addresses, &["free", "a"]).code(), Some(0));
    delete(nodes, "a");
}

/// The page has an example of this output, with the same fields and kinds of values.
pub(crate) fn assert_documented(title: &str, told: &Value) {
    let page = include_str!("../../../quorate/docs/command.md");
    let (_, rest) = page.split_once(&format!("Of `quorate {title}")).expect("a sentence");
    let example = rest.split("```").nth(1).unwrap().strip_prefix("json").unwrap();
    let example = serde_json::from_str(example).unwrap();
    assert!(is_alike(&example, told), "not as the page says: {told}");
}

fn is_alike(example: &Value, told: &Value) -> bool {
    match (example, told) {
        (Value::Object(example), Value::Object(told)) => {
            example.keys().eq(told.keys())
                && example.iter().all(|(field, value)| is_alike(value, &told[field]))
        }
        (Value::Array(example), Value::Array(told)) => match &example[..] {
            [example] => told.iter().all(|told| is_alike(example, told)),
            _ => told.iter().all(Value::is_string),
        },
        (Value::Null, _) | (_, Value::Null) => true,
        (example, told) => std::mem::discriminant(example) == std::mem::discriminant(told),
    }
}

/// It would vote twice: nothing heals that.
#[test]
fn q6_a_record_is_neither_extended_nor_released_over_one_server_twice() {
    let (nodes, dir) = (&Nodes::start(1), &Dir::new());
    let twice = &[nodes[0].address(), nodes[0].address().replace("127.0.0.1", "localhost")];
    for word in ["extend", "release"] {
        nodes[0].flushall();
        let locked = run(dir, &nodes.addresses(), &["lock", "--ttl", "1h", "a"]);
        dir.write("record", &locked.out);
        let done = with_record(dir, twice, word);
        assert_eq!(done.code(), Some(78), "{word}: {done:?}");
        assert!(done.err.contains("are one server"), "{word}: {done:?}");
    }
}

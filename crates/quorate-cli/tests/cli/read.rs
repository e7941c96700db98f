//! `quorate run --read`: beside other readers, and not beside a lock.

use quorate_tests::Nodes;
use quorate_tests::wait::eventually;

use crate::support::{Dir, ask, hold, keys_left, run};

#[test]
fn commands_that_read_run_together_and_not_beside_a_lock() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let addresses = &nodes.addresses();
    let mut reading = hold(dir, addresses, "--read --label web-3 --ttl 1h r");
    let beside = run(dir, addresses, &["run", "--read", "--no-wait", "r", "--", "true"]);
    assert_eq!(beside.code(), Some(0), "{beside:?}");
    let alone = run(dir, addresses, &["run", "--no-wait", "r", "--", "true"]);
    assert_eq!(alone.code(), Some(75), "{alone:?}");
    let seen = ask(dir, addresses, &["inspect", "r"]);
    assert!(seen.out.starts_with("r: held by 1 reader (\"web-3\") on "), "{seen:?}");
    let told = ask(dir, addresses, &["inspect", "--json", "r"]).json();
    let lock = &told["locks"][0];
    assert_eq!((&lock["state"], &lock["readers"][0]["label"]), (&"held".into(), &"web-3".into()));
    let rows = lock["nodes"].as_array().unwrap();
    assert!(rows.iter().filter(|row| row["state"] == "read").count() >= 2, "a quorum: {told}");
    crate::records::assert_documented("inspect --json", &told);
    dir.write("go", "");
    assert_eq!(reading.done().code(), Some(0));
    assert_eq!(keys_left(nodes), []);
    // Two readers with a ttl and a label each, in both orders: a node keeps the key for as long as the last of them.
    for ttls in [["1h", "3h"], ["3h", "1h"]] {
        let mut both = ["web-3", "web-4"].into_iter().zip(ttls).map(|(label, ttl)| {
            let dir = Dir::new();
            let started = hold(&dir, addresses, &format!("--read --label {label} --ttl {ttl} r"));
            (dir, started)
        });
        let both = &mut [both.next().unwrap(), both.next().unwrap()];
        eventually("two readers on each node", || {
            nodes.iter().all(|node| node.cli(&["ZCARD", "r"]).integer() == 2)
        });
        let seen = ask(dir, addresses, &["inspect", "r"]);
        assert!(seen.out.starts_with("r: held by 2 readers (\"web-"), "{seen:?}");
        let told = ask(dir, addresses, &["inspect", "--json", "r"]).json();
        let lock = &told["locks"][0];
        for label in ["web-3", "web-4"] {
            assert!(seen.out.contains(&format!("\"{label}\"")), "{seen:?}");
            assert!(lock["readers"].to_string().contains(label), "{told}");
        }
        for left in lock["nodes"].as_array().unwrap().iter().chain([lock]) {
            assert!(left["left_ms"].as_u64().unwrap() > 7_200_000, "{told}");
        }
        for (dir, started) in both {
            dir.write("go", "");
            assert_eq!(started.done().code(), Some(0));
        }
    }
    for wrong in [&["--fenced"][..], &["--once-per", "1h"]] {
        let words = [&["run", "--read"], wrong, &["r", "--", "true"]].concat();
        assert_eq!(run(dir, addresses, &words).code(), Some(64), "{wrong:?}");
    }
}

//! Two processes, one with each client, one lock.

use std::process::{Command, Stdio};

use quorate_tests::{Nodes, RedisServer};

#[test]
fn two_processes_with_two_clients_never_overlap() {
    const TIMES: u32 = 1_000;
    let nodes = Nodes::start(5);
    let referee = RedisServer::start();
    let contend = |client: &str| {
        Command::new(env!("CARGO_BIN_EXE_contender"))
            .args([client, &referee.port().to_string(), &TIMES.to_string()])
            .args(nodes.addresses())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    for process in [contend("redis"), contend("fred")] {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(referee.get("overlaps"), None);
    assert_eq!(referee.get("counter"), Some((2 * TIMES).to_string().into_bytes()));
    assert_eq!(nodes.keys_left(), []);
}

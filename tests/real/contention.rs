//! Two processes, one with each client, one lock.

use std::process::{Child, Command, Stdio};

use quorate_tests::wait::times;
use quorate_tests::{Nodes, RedisServer, Referee};

use crate::client::Client;

/// Starts a process that takes a lock so many times. It is a section of the referee's, too.
pub(crate) fn contend(
    client: Client,
    referee: &RedisServer,
    resource: &str,
    times: u64,
    nodes: &Nodes,
) -> Contender {
    let client = match client {
        Client::Redis => "redis",
        Client::Fred => "fred",
    };
    let process = Command::new(env!("CARGO_BIN_EXE_contender"))
        .args([client, &referee.port().to_string(), resource, &times.to_string()])
        .args(nodes.addresses())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    Contender(Some(process))
}

/// Does not outlive the test.
#[derive(Debug)]
pub(crate) struct Contender(Option<Child>);

impl Contender {
    pub(crate) fn is_waiting(&mut self) -> bool {
        self.0.as_mut().is_some_and(|process| process.try_wait().unwrap().is_none())
    }

    /// Waits until it has had the lock as often as it wanted.
    pub(crate) fn succeeds(mut self) {
        let output = self.0.take().unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            process.kill().ok();
            process.wait().ok();
        }
    }
}

#[test]
fn two_processes_with_two_clients_never_overlap() {
    let each = times(200, 1_000);
    let nodes = Nodes::start(5);
    let referee = RedisServer::start();
    let contenders = Client::ALL.map(|client| contend(client, &referee, "r", each, &nodes));
    contenders.into_iter().for_each(Contender::succeeds);
    assert_eq!(Referee::verdict(&referee, "r"), Some(2 * each));
    assert_eq!(nodes.keys_left(), []);
}

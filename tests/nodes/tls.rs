//! Nodes that are reached over TLS.

use std::process::{Command, Output};

use quorate_tests::{RedisServer, TEST_CA};

/// Locks twice in a process of its own, which trusts the authorities in `trusted`, and waits for as
/// many seconds.
fn locks(client: &str, nodes: &[RedisServer], trusted: &str, wait: u32) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_last_guard"));
    program.env("SSL_CERT_FILE", trusted).env_remove("SSL_CERT_DIR");
    program.args(["multi-thread", client, &wait.to_string()]);
    program.args(nodes.iter().map(RedisServer::tls_address)).output().unwrap()
}

#[test]
fn a_lock_is_taken_over_tls_from_nodes_that_are_trusted() {
    for client in ["redis", "fred"] {
        let nodes: Vec<_> = (0..3).map(|_| RedisServer::builder().tls().start()).collect();
        let output = locks(client, &nodes, TEST_CA, 30);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{client}: {told}");
        for node in &nodes {
            assert!(node.info("cmdstat_set").starts_with("calls=2,"), "{client}");
        }
    }
}

#[test]
fn a_node_with_a_certificate_of_nobody_who_is_trusted_is_none() {
    let nodes = [RedisServer::builder().tls().start()];
    for client in ["redis", "fred"] {
        let output = locks(client, &nodes, "/dev/null", 1);
        let told = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert!(!output.status.success(), "{client}: {told}");
        assert!(told.contains("certificate"), "the reason: {client}: {told}");
    }
}

//! Nodes that are reached over TLS.

use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use quorate::redis::redis::{Client, TlsCertificates};
use quorate_tests::wait::{LIMIT, LONG_TTL};
use quorate_tests::{RedisServer, TEST_CA};

use crate::client::{on_tokio, unhurried};

fn nodes() -> Vec<RedisServer> {
    (0..3).map(|_| RedisServer::builder().tls().start()).collect()
}

/// Locks twice in a process of its own, which trusts the authorities in `trusted`, and waits for as
/// long as a ttl.
fn locks(client: &str, nodes: &[RedisServer], trusted: &str, ttl: Duration) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_program"));
    program.env("SSL_CERT_FILE", trusted).env_remove("SSL_CERT_DIR");
    program.args(["last-guard", "multi-thread", client, &ttl.as_secs().to_string()]);
    program.args(nodes.iter().map(RedisServer::tls_address)).output().unwrap()
}

/// Whether a quorum was asked for a lock.
fn were_asked(nodes: &[RedisServer]) -> bool {
    let asked =
        |node: &&RedisServer| node.cli(&["INFO", "commandstats"]).text().contains("cmdstat_set:");
    nodes.iter().filter(asked).count() >= 2
}

/// The authority is given: where both kinds of TLS are compiled in, redis-rs trusts none by itself.
#[test]
fn a_lock_is_taken_over_tls_through_redis_rs() {
    let nodes = nodes();
    on_tokio(async {
        let clients = nodes.iter().map(|node| {
            let root_cert = Some(fs::read(TEST_CA).unwrap());
            let certificates = TlsCertificates { client_tls: None, root_cert };
            Client::build_with_tls(node.tls_address(), certificates).unwrap()
        });
        let backends = quorate::redis::connect(clients).unwrap();
        let manager = unhurried(backends).build().unwrap();
        let guard = manager.lock("r").await.unwrap();
        guard.release().await.unwrap();
    });
    assert!(were_asked(&nodes));
}

#[test]
fn a_lock_is_taken_over_tls_through_fred_from_nodes_that_the_system_trusts() {
    let nodes = nodes();
    let output = locks("fred", &nodes, TEST_CA, LONG_TTL);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(were_asked(&nodes));
}

#[test]
fn a_node_with_a_certificate_of_nobody_who_is_trusted_is_none() {
    let nodes = [RedisServer::builder().tls().start()];
    for client in ["redis", "fred"] {
        let mut ttl = Duration::from_secs(1);
        loop {
            let output = locks(client, &nodes, "/dev/null", ttl);
            let told = String::from_utf8_lossy(&output.stderr).to_lowercase();
            assert!(!output.status.success(), "{client}: {told}");
            if told.contains("certificate") {
                break;
            }
            // A slow machine may not have come as far as the certificate.
            assert!(ttl < LIMIT, "the reason: {client}: {told}");
            ttl *= 2;
        }
    }
}

//! Nodes that are reached over TLS.

use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use quorate::redis::redis::{Client, TlsCertificates};
use quorate_tests::wait::LONG_TTL;
use quorate_tests::{RedisServer, TEST_CA};

use crate::client::{Client as QuorateClient, calls, on_tokio, unhurried};

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

/// redis-rs is given the authority: where both kinds of TLS are compiled in, it trusts none by itself. fred trusts
/// those of the system.
#[test]
fn a_lock_is_taken_over_tls() {
    for client in QuorateClient::ALL {
        let nodes = nodes();
        if client == QuorateClient::Fred {
            let output = locks("fred", &nodes, TEST_CA, LONG_TTL);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        } else {
            let clients = nodes.iter().map(|node| {
                let root_cert = Some(fs::read(TEST_CA).unwrap());
                let certificates = TlsCertificates { client_tls: None, root_cert };
                Client::build_with_tls(node.tls_address(), certificates).unwrap()
            });
            on_tokio(async {
                let manager = unhurried(quorate::redis::connect(clients).unwrap()).build().unwrap();
                manager.lock("r").await.unwrap().release().await.unwrap();
            });
        }
        let asked = nodes.iter().filter(|node| calls(node, "set") > 0).count();
        assert!(asked >= 2, "{client:?}: a quorum was asked");
    }
}

#[test]
fn a_node_with_a_certificate_of_nobody_who_is_trusted_is_none() {
    let nodes = [RedisServer::builder().tls().start()];
    for client in ["redis", "fred"] {
        // A slow machine may not come as far as the certificate.
        let is_told = [1, 4, 16, 64].into_iter().any(|ttl| {
            let output = locks(client, &nodes, "/dev/null", Duration::from_secs(ttl));
            assert!(!output.status.success(), "{client}");
            String::from_utf8_lossy(&output.stderr).to_lowercase().contains("certificate")
        });
        assert!(is_told, "{client}: the reason");
    }
}

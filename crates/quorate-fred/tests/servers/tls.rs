//! A server that is reached over TLS.

use std::process::{Command, Output};

use quorate_core::Vote;
use quorate_core::backend::{AcquireOptions, LockBackend};
use quorate_tests::{RedisServer, TEST_CA};

use crate::{claim, node_at};

/// Where the child that is a test finds its server.
const ADDRESS: &str = "QUORATE_FRED_TLS_ADDRESS";

/// Acquires a lock in a process of its own, which trusts the authorities in `trusted`.
fn acquire(server: &RedisServer, trusted: &str) -> Output {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "tls::a_lock_is_acquired_over_tls", "--nocapture"]);
    child.env(ADDRESS, server.tls_address()).env_remove("SSL_CERT_DIR");
    child.env("SSL_CERT_FILE", trusted).output().unwrap()
}

#[tokio::test]
async fn a_lock_is_acquired_over_tls() {
    if let Ok(address) = std::env::var(ADDRESS) {
        let acquired = node_at(&address).acquire(&claim("k"), AcquireOptions::default()).await;
        assert_eq!(acquired.unwrap().vote, Vote::Granted);
        return;
    }
    let server = RedisServer::builder().tls().start();
    let output = acquire(&server, "/dev/null");
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).to_lowercase();
    assert!(!output.status.success() && told.contains("certificate"), "{told}");
    assert!(server.keys().is_empty());
    let output = acquire(&server, TEST_CA);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(server.keys(), ["k"]);
}

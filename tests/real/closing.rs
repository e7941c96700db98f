//! The end: of a manager, and of a program.

use std::io::Read;
use std::mem::forget;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use quorate::{LeaseEnd, LockError};
use quorate_tests::Nodes;
use quorate_tests::wait::{LONG_TTL, receive, until};

use crate::client::{close, with_each_client};

#[test]
fn a_closed_manager_leaves_no_key_whatever_was_held() {
    with_each_client(|client| async move {
        let nodes = Nodes::start(5);
        let builder = client.builder(&nodes);
        let manager = builder.renew_interval(Duration::from_millis(5)).build().unwrap();
        let held = manager.lock("held").await.unwrap();
        let kept = manager.lock("kept").auto_renew().await.unwrap();
        forget(manager.lock(["forgotten", "with it"]).await.unwrap());
        forget(manager.lock("forgotten and kept").auto_renew().await.unwrap());
        let waiting = tokio::spawn(manager.lock("held").into_future());
        let with = tokio::spawn(manager.with("with", async |_| std::future::pending::<()>().await));
        // It has been renewed, and the last of them is held.
        let valid_until = kept.valid_until();
        until("a renewal", || kept.valid_until() != valid_until).await;
        until("the last lock", || nodes[..3].iter().all(|n| n.get("with").is_some())).await;

        close(&manager, &nodes).await;
        for guard in [&held, &kept] {
            assert!(!guard.is_valid());
            assert!(matches!(guard.lost().await, LeaseEnd::Closed));
        }
        assert!(matches!(waiting.await.unwrap(), Err(LockError::Closed)));
        assert!(with.await.unwrap().is_err());
        let more = manager.lock("more").no_wait().await;
        assert!(matches!(more, Err(LockError::Closed)));
    });
}

/// Two guards, one of them renewed, are dropped at the end of `main`.
#[test]
fn a1_a_program_whose_runtime_has_gone_ends_at_once() {
    for client in ["redis", "fred", "memory"] {
        for runtime in ["current-thread", "multi-thread", "smol"] {
            let nodes = Nodes::start(3);
            let mut program = Command::new(env!("CARGO_BIN_EXE_program"))
                .args(["last-guard", runtime, client, &LONG_TTL.as_secs().to_string()])
                .args(nodes.addresses())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stderr = program.stderr.take().unwrap();
            let (tell, ended) = mpsc::channel();
            thread::spawn(move || {
                let mut said = String::new();
                tell.send(stderr.read_to_string(&mut said).map(|_| said))
            });
            // The pipe ends with the program: long before a ttl has passed.
            assert_eq!(receive(&ended).unwrap().unwrap(), "", "{runtime} and {client}");
            assert!(program.wait().unwrap().success(), "{runtime} and {client}");
        }
    }
}

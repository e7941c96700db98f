//! Releases and extensions that begin at one moment, and so share a script, on real nodes.

use std::future::IntoFuture;

use futures_util::future::{join_all, try_join_all};
use quorate::backend::{AcquireOptions, Claim, ExtendOptions, ReleaseOptions, Reply, Ttl};
use quorate::{BackendError, LockBackend, LockManager};
use quorate_tests::RedisServer;
use quorate_tests::wait::LONG_TTL;

use crate::calls::claim_all;
use crate::client::{Client, calls, current_thread};

/// What is told of one call.
fn told(seen: Result<Reply, BackendError>) -> String {
    match seen {
        Ok(reply) => format!("{:?} {} {}", reply.vote, reply.holder.is_some(), reply.is_marked),
        Err(error) => format!("{:?} {error}", error.kind()),
    }
}

/// Ten claims, and what others have left at their keys.
async fn ten(server: &RedisServer, node: &dyn LockBackend) -> Vec<Claim> {
    let names: [&[&str]; 10] = [
        &["held"],
        &["marked"],
        &["gone"],
        &["of another"],
        &["of another type"],
        &["read"],
        &["for ever"],
        &["one", "and gone"],
        &["two", "and held"],
        &["last"],
    ];
    let claims: Vec<Claim> = names.iter().map(|names| claim_all(names)).collect();
    for claim in &claims {
        node.acquire(claim, AcquireOptions::default()).await.unwrap();
    }
    let run = |words: &[&[u8]]| {
        let reply = server.cli(words);
        assert_eq!(reply.error(), None, "{words:?}");
        reply
    };
    let digest: &[&[u8]] =
        &[b"EVAL", b"return redis.sha1hex(ARGV[1])", b"0", claims[1].token().as_bytes()];
    let mark = format!("revoked:{} ops", run(digest).text());
    run(&[b"SET", b"marked", mark.as_bytes(), b"KEEPTTL"]);
    run(&[b"DEL", b"gone", b"of another type", b"read", b"and gone"]);
    run(&[b"SET", b"of another", b"1", b"PX", b"3600000"]);
    run(&[b"LPUSH", b"of another type", b"x"]);
    run(&[b"ZADD", b"read", b"9e15", "ab".repeat(20).as_bytes()]);
    run(&[b"PEXPIRE", b"read", b"3600000"]);
    run(&[b"PERSIST", b"for ever"]);
    claims
}

/// The keys, and whether each lives for longer than a lock that was not extended.
fn left(server: &RedisServer) -> String {
    let long = i64::try_from(LONG_TTL.as_millis()).unwrap();
    let mut keys = server.keys();
    keys.sort();
    let left = keys.iter().map(|key| match server.pttl(key) {
        -1 => format!("{key} for ever"),
        left => format!("{key} {}", left > long),
    });
    left.collect::<Vec<_>>().join(", ")
}

/// Rules H2, H3, V9.
#[test]
fn q4_each_call_of_a_script_is_told_what_it_is_told_alone() {
    let resp2 = || RedisServer::builder().config("rename-command", &["HELLO", ""]).start();
    for (client, server) in Client::ALL
        .into_iter()
        .flat_map(|client| [(client, RedisServer::start()), (client, resp2())])
    {
        current_thread().block_on(async {
            let node = &*client.connect_one(&server.address());
            let twice = Ttl::try_from(2 * LONG_TTL).unwrap();
            let mut seen = Vec::new();
            for shares in [false, true] {
                server.flushall();
                let claims = ten(&server, node).await;
                let before = calls(&server, "mget");
                let longer: Vec<_> = claims.iter().map(|claim| claim.with_ttl(twice)).collect();
                let extend = |claim| node.extend(claim, ExtendOptions::default());
                let release = |claim| node.release(claim, ReleaseOptions::default());
                let mut answers = Vec::new();
                if shares {
                    answers.extend(join_all(longer.iter().map(extend)).await.into_iter().map(told));
                    answers.push(left(&server));
                    answers
                        .extend(join_all(claims.iter().map(release)).await.into_iter().map(told));
                } else {
                    for claim in &longer {
                        answers.push(told(extend(claim).await));
                    }
                    answers.push(left(&server));
                    for claim in &claims {
                        answers.push(told(release(claim).await));
                    }
                }
                answers.push(left(&server));
                assert_eq!(calls(&server, "mget") > before, shares, "{client:?}");
                seen.push(answers);
            }
            assert_eq!(seen[0], seen[1], "{client:?}");
            assert!(seen[0][0].starts_with("Granted"), "{seen:?}");
            assert!(seen[0][10].contains("for ever true, held true, last true"), "{seen:?}");
        });
    }
}

/// Locks, extends and releases a few names, each at one moment.
pub(crate) async fn cycle(manager: &LockManager, names: &[&str]) {
    let guards = names.iter().map(|name| manager.lock(*name).into_future());
    let guards = try_join_all(guards).await.unwrap();
    try_join_all(guards.iter().map(|guard| guard.extend())).await.unwrap();
    try_join_all(guards.into_iter().map(|guard| guard.release())).await.unwrap();
}

//! What servers have and allow: found out once per connection, and not asked again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use quorate_core::backend::{
    AcquireOptions, CallReply, ExtendOptions, LockBackend, Mode, Operation, ReleaseOptions, Revoke,
    Vote,
};
use quorate_core::{BackendErrorKind, FencingToken};
use quorate_protocol::Value;
use tokio::time::sleep;

use crate::calls::{Node, acquire, begin, claim, commands, key, on, release, vote};
use crate::fake::Fake;

fn error(text: &str) -> Option<Value> {
    Some(Value::Error(text.into()))
}

fn is_probe(parts: &[String]) -> bool {
    parts.iter().any(|part| part.starts_with("quorate:probe"))
}

/// A server with a compare-and-delete, on which the user may not run some commands.
fn server(has: &'static str, forbidden: &'static [&'static str]) -> (Fake, Node) {
    on(move |parts| match parts[0].as_str() {
        name if forbidden.contains(&name) => {
            error(&format!("NOPERM User joe has no permissions to run the '{name}' command"))
        }
        name if name == has => Some(Value::Int(1)),
        _ => None,
    })
}

/// A server that replies as a script says until it is `false`.
fn while_true(
    script: impl Fn(&[String]) -> Option<Value> + Send + 'static,
) -> (Arc<AtomicBool>, (Fake, Node)) {
    let is_on = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&is_on);
    (is_on, on(move |parts| script(parts).filter(|_| seen.load(Ordering::Relaxed))))
}

#[tokio::test(start_paused = true)]
async fn a_release_uses_the_compare_and_delete_of_the_server() {
    let token = "ab".repeat(20);
    for (has, command) in
        [("DELIFEQ", vec!["DELIFEQ", "k", &token]), ("DELEX", vec!["DELEX", "k", "IFEQ", &token])]
    {
        // On a server that forbids scripts, plain locks work, and extensions say what is missing.
        for forbidden in [&[][..], &["EVAL", "EVALSHA"]] {
            let ((fake, node), claim) = (server(has, forbidden), claim(&["k"]));
            node.acquire(&claim, AcquireOptions::default()).await.unwrap();
            let released = node.release(&claim, ReleaseOptions::default()).await.unwrap();
            assert_eq!(released.vote, Vote::Granted);
            assert_eq!(fake.sent().last().unwrap().parts, command);
            let before = fake.sent().len();
            let extended = node.extend(&claim, ExtendOptions::default()).await;
            let several = self::claim(&["a", "b"]);
            let several = node.acquire(&several, AcquireOptions::default()).await;
            let scripts = forbidden.is_empty();
            assert_eq!((extended.is_ok(), several.is_ok()), (scripts, scripts));
            if !scripts {
                let error = extended.unwrap_err();
                assert_eq!(error.kind(), BackendErrorKind::Permission);
                assert!(error.is_not_sent() && error.to_string().contains("'EVAL'"), "{error}");
                assert_eq!(fake.sent().len(), before, "it is known, so nothing is sent");
            }
        }
    }
}

/// A revoke may have put its mark in place of the token. The command compares with one value, a script with both.
#[tokio::test(start_paused = true)]
async fn a_release_of_what_was_held_that_finds_no_token_runs_the_script() {
    let (found, none) = (Vote::Granted, Vote::Refused);
    for (was_held, has_scripts, voted, sent) in [
        (false, true, none, &["DELIFEQ"][..]),
        (true, true, found, &["DELIFEQ", "EVALSHA"]),
        (true, false, none, &["DELIFEQ"]),
    ] {
        let (fake, node) = on(move |parts| match parts[0].as_str() {
            "DELIFEQ" => Some(Value::Int(0)),
            "EVAL" | "EVALSHA" if !has_scripts => error("NOPERM User joe may not"),
            _ => None,
        });
        let mut options = ReleaseOptions::default();
        options.was_held = was_held;
        let answer = begin(&node, Operation::Release(claim(&["k"]), options)).await;
        assert_eq!(vote(answer).unwrap(), voted, "{was_held}, {has_scripts}");
        assert_eq!(commands(&fake), sent);
    }
}

/// What a server replies, how a look votes, and whether a watch finds the key held. `None`: it is unknown.
#[tokio::test(start_paused = true)]
async fn a_key_of_another_type_is_held_by_another_and_other_errors_say_nothing() {
    let (granted, refused) = (Some(Vote::Granted), Some(Vote::Refused));
    let text = |text: &str| Value::Text(text.into());
    for (reply, looked, watched) in [
        (text(&"ab".repeat(20)), granted, Some(true)),
        (text("of another"), refused, Some(true)),
        (Value::Nil, refused, Some(false)),
        (Value::Error("WRONGTYPE It is a list".into()), refused, Some(true)),
        (Value::Error("LOADING Its data".into()), None, None),
    ] {
        let (_, node) = on(move |parts| (parts[0] == "GET").then(|| reply.clone()));
        let look = begin(&node, Operation::Look(claim(&["k"]))).await;
        assert_eq!(vote(look).ok(), looked);
        let watch = begin(&node, Operation::Watch { key: key("k"), entry: None }).await;
        let found = watch.ok().map(|reply| matches!(reply, CallReply::Watched(true)));
        assert_eq!(found, watched);
    }
}

/// A nil that refuses would be a grant. A user who may not try it gets what the server says of itself.
#[tokio::test(start_paused = true)]
async fn q4_a_nil_grants_only_where_a_refusal_has_named_the_holder() {
    let none = || error("NOPERM No permissions to access a key");
    let text = |text: &str| Some(Value::Text(text.as_bytes().to_vec()));
    for (reply, info, is_proven) in [
        (text("quorate:probe"), "redis_version:7.4.0", true),
        (text("quorate:probe"), "redis_version:7.4.0\r\nother_version:3", true),
        (text("quorate:probe"), "redis_version:6.2.0", false),
        (Some(Value::Nil), "redis_version:7.4.0", false),
        (text("another"), "redis_version:7.4.0", false),
        (Some(Value::Okay), "redis_version:7.4.0", false),
        (none(), "redis_version:7.4.0\r\ngcc_version:12", true),
        (none(), "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1", true),
        (none(), "redis_version:7.4.0\r\nother_version:3", false),
        (none(), "redis_version:7.4.0\r\nserver_name:other", false),
    ] {
        let told = info.to_owned();
        let (fake, node) = on(move |parts| match parts[0].as_str() {
            "SET" if is_probe(parts) => reply.clone(),
            "INFO" => Some(Value::Text(told.clone().into_bytes())),
            _ => None,
        });
        begin(&node, acquire("k")).await.unwrap();
        let last = fake.sent().pop().unwrap().parts.pop().unwrap();
        assert_eq!(last == "GET", is_proven, "{info}");
    }
}

/// A replica that refuses writes says so itself, also to a client that is connected since before a
/// failover. One that accepts them votes for what its primary may forget: it is asked for nothing
/// that is a vote, and releases what it has.
#[tokio::test(start_paused = true)]
async fn q4_a_replica_that_accepts_writes_has_no_vote() {
    for (info, votes) in [
        ("role:slave\r\nslave_read_only:0\r\n", false),
        ("role:slave\r\n", false),
        ("role:slave\r\nslave_read_only:1\r\n", true),
        ("role:master\r\nslave_read_only:0\r\n", true),
        ("", true),
    ] {
        let (fake, node) = on(move |parts| match (parts[0].as_str(), parts[1].as_str()) {
            ("INFO", "replication") => Some(Value::Text(info.as_bytes().to_vec())),
            _ => None,
        });
        let extend = Operation::Extend(claim(&["k"]), ExtendOptions::default());
        let raise = Operation::Raise(claim(&["k"]), FencingToken::new(7).unwrap());
        for operation in [acquire("k"), extend, raise] {
            let refused = begin(&node, operation).await.err();
            let kind = refused.map(|error| (error.kind(), error.is_not_sent()));
            let expected = (!votes).then_some((BackendErrorKind::ReadOnly, true));
            assert_eq!(kind, expected, "{info}");
        }
        begin(&node, release("k")).await.unwrap();
        assert_eq!(fake.sent().len(), if votes { 4 } else { 1 }, "{info}");
    }
}

/// Such a node would keep the key for its ttl, since no release works there.
#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_release_grants_nothing() {
    let list = |text: String| Some(Value::List(vec![Value::Text(text.into_bytes())]));
    let inside = |command: &str| {
        let why = "ERR ACL failure in script: User joe has no permissions to run the command";
        list(format!("{command} {why}"))
    };
    let old = "DEL @user_script: 3: The user executing the script can't run this command";
    for (reply, missing) in [
        (error("NOPERM this user has no permissions to run the 'eval' command"), "'eval'"),
        (error("ERR unknown command 'EVAL', with args beginning with: 'a'"), "'EVAL'"),
        (inside("GET"), "may not run GET"),
        (inside("DEL"), "may not run DEL"),
        (inside("PEXPIRE"), "may not run PEXPIRE"),
        (list(old.to_owned()), "may not run DEL"),
    ] {
        let (is_forbidden, (fake, node)) =
            while_true(
                move |parts| {
                    if parts[0].starts_with("EVAL") { reply.clone() } else { None }
                },
            );
        let error = begin(&node, acquire("k")).await.unwrap_err();
        assert!(error.is_not_sent() && error.to_string().contains(missing), "{error}");
        assert!(error.kind().is_permanent(), "{error:?}");
        assert!(fake.keys().is_empty());
        // It is asked anew, so that a permission that was granted is noticed.
        is_forbidden.store(false, Ordering::Relaxed);
        sleep(Duration::from_millis(60)).await;
        begin(&node, acquire("k")).await.unwrap();
    }
}

/// An administrator takes the permission away under an open connection. It grants nothing then, and a second later it is
/// left for one that proves what the user may do.
#[tokio::test(start_paused = true)]
async fn a_node_that_refuses_a_release_grants_nothing_until_it_is_proven_again() {
    let extend = || Operation::Extend(claim(&["k"]), ExtendOptions::default());
    let second = || sleep(Duration::from_secs(1));
    for refused in [release("k"), extend()] {
        let (is_forbidden, (fake, node)) = while_true(|parts| match parts[0].as_str() {
            name @ ("EVAL" | "EVALSHA") => {
                error(&format!("NOPERM User joe has no permissions to run the '{name}' command"))
            }
            _ => None,
        });
        is_forbidden.store(false, Ordering::Relaxed);
        begin(&node, acquire("k")).await.unwrap();
        is_forbidden.store(true, Ordering::Relaxed);
        let error = begin(&node, refused.clone()).await.unwrap_err();
        assert_eq!((error.kind(), error.is_not_sent()), (BackendErrorKind::Permission, false));
        for connects in [1, 2] {
            let sent = fake.sent().len();
            let error = begin(&node, acquire("l")).await.unwrap_err();
            assert_eq!((error.kind(), error.is_not_sent()), (BackendErrorKind::Permission, true));
            assert_eq!((fake.sent().len(), fake.connects()), (sent, connects));
            second().await;
        }
        is_forbidden.store(false, Ordering::Relaxed);
        second().await;
        for operation in [acquire("l"), refused] {
            assert_eq!(vote(begin(&node, operation).await).unwrap(), Vote::Granted);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_loads_its_data_is_asked_again() {
    let (is_loading, (fake, node)) =
        while_true(|_| error("LOADING Redis is loading the dataset in memory"));
    let error = begin(&node, acquire("k")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_not_sent()), (BackendErrorKind::Loading, true));
    is_loading.store(false, Ordering::Relaxed);
    sleep(Duration::from_millis(60)).await;
    begin(&node, release("k")).await.unwrap();
    assert_eq!(commands(&fake), ["EVALSHA"], "nothing is known to be missing");
}

/// A server that does not know the first line of a script refuses to load it.
#[tokio::test(start_paused = true)]
async fn what_is_there_is_changed_on_a_full_server_that_can_do_that() {
    for knows in [true, false] {
        let (fake, node) = on(move |parts| match parts[0].as_str() {
            "SCRIPT" if parts[2].starts_with("#!") && !knows => {
                error("ERR Error compiling script (new function): user_script:1: unexpected symbol")
            }
            "EVALSHA" if !is_probe(parts) => error("NOSCRIPT No matching script."),
            _ => None,
        });
        let reader = claim(&["k"]).with_mode(Mode::Shared);
        let revoke = Operation::Revoke { key: key("k"), how: Revoke::delete() };
        for operation in [
            Operation::Extend(reader.clone(), ExtendOptions::default()),
            Operation::Release(reader, ReleaseOptions::default()),
            revoke,
        ] {
            // Whatever is replied: what was sent counts.
            let _ = begin(&node, operation).await;
        }
        let texts = fake.sent().into_iter().filter(|sent| sent.parts[0] == "EVAL");
        let is_flagged: Vec<_> =
            texts.map(|sent| sent.parts[1].starts_with("#!lua flags=allow-oom\n")).collect();
        assert_eq!(is_flagged, [knows, false, knows]);
    }
}

/// The script is lost, and may not be loaded again by this user any more.
#[tokio::test(start_paused = true)]
async fn scripts_that_cannot_be_loaded_again_are_sent_as_text() {
    let mut loads = 0;
    let (fake, node) = on(move |parts| match parts[0].as_str() {
        "SCRIPT" => {
            loads += 1;
            // The first 24 belong to the handshake.
            if loads > 24 { error("NOPERM") } else { None }
        }
        "EVALSHA" if !is_probe(parts) => error("NOSCRIPT No matching script."),
        _ => None,
    });
    let refused = Operation::Acquire(claim(&["a", "b"]), AcquireOptions::default());
    assert!(begin(&node, refused.clone()).await.unwrap_err().is_not_sent());
    for call in join_all([begin(&node, acquire("k")), begin(&node, release("k"))]).await {
        assert_eq!(vote(call).unwrap(), Vote::Granted);
    }
    assert_eq!(vote(begin(&node, refused).await).unwrap(), Vote::Granted);
    assert_eq!(commands(&fake), ["EVALSHA", "SET", "EVALSHA", "EVAL", "EVAL"]);
}

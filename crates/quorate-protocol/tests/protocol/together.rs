//! Releases and extensions that share a script: order, answers, and scripts that fail.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use quorate_core::BackendErrorKind;
use quorate_core::backend::{
    AcquireOptions, CallResult, Claim, ExtendOptions, Operation, ReleaseOptions, Ttl, Vote,
};
use quorate_core::resource::{Key, Token};
use quorate_protocol::Value;
use tokio::time::sleep;

use crate::calls::{Node, TICK, begin, held, is_lost, key, on, pair, vote};
use crate::fake::{Fake, claims};

/// A claim of one of many holders.
fn claim_of(holder: u8, names: &str, ttl: u64) -> Claim {
    let token = Token::draw(|bytes| {
        bytes.fill(holder);
        Ok(())
    });
    let keys: Vec<Key> = names.chars().map(|name| key(&name.to_string())).collect();
    let ttl = Ttl::try_from(Duration::from_millis(ttl)).unwrap();
    Claim::new(keys, token.unwrap(), ttl)
}

/// `1 acquire a`, `2 release ab`, `1 extend a 500`.
fn operation(text: &str) -> Operation {
    let words: Vec<&str> = text.split(' ').collect();
    let ttl = words.get(3).map_or(10_000, |ttl| ttl.parse().unwrap());
    let claim = claim_of(words[0].parse().unwrap(), words[2], ttl);
    match words[1] {
        "acquire" => Operation::Acquire(claim, AcquireOptions::default()),
        "extend" => Operation::Extend(claim, ExtendOptions::default()),
        _ => Operation::Release(claim, ReleaseOptions::default()),
    }
}

/// Begins all at one moment.
async fn all(node: &Node, texts: &[&str]) -> Vec<CallResult> {
    join_all(texts.iter().map(|text| begin(node, operation(text)))).await
}

/// The commands, with the keys of each: `SET a`, `script ab`, or `shared a,bc` with a comma between
/// calls.
fn shape(fake: &Fake) -> Vec<String> {
    let shape = |parts: &[String]| match claims(parts) {
        Some(claims) => {
            let keys: Vec<String> = claims.into_iter().map(|(keys, _)| keys.concat()).collect();
            format!("shared {}", keys.join(","))
        }
        None if parts[0].starts_with("EVAL") => {
            format!("script {}", parts[3..3 + parts[2].parse::<usize>().unwrap()].concat())
        }
        None => format!("{} {}", parts[0], parts[1].trim_end_matches(":quorate:waiters")),
    };
    fake.sent().iter().map(|sent| shape(&sent.parts)).collect()
}

/// Rule H6.
#[tokio::test(start_paused = true)]
async fn c3_calls_that_share_a_script_keep_the_order_of_each_key() {
    for (begun, sent) in [
        ("1 release a", "script a"),
        ("1 extend a", "script a"),
        ("1 release a/2 release b", "shared a,b"),
        ("1 extend a 500/2 extend b 900", "shared a,b"),
        ("1 release ab/2 release c", "shared a,b,c"),
        // What has no key in common with it is passed.
        ("1 release a/2 acquire a/1 release b/2 acquire b", "shared a,b/SET a/SET b"),
        ("1 extend a/2 release b/1 extend c/2 release d", "shared a,c/shared b,d"),
        // What has one is not.
        ("1 release a/1 acquire b/1 release b", "script a/SET b/script b"),
        ("1 release a/1 extend b/1 release b", "script a/script b/script b"),
        ("1 release a/1 acquire b/1 release cb/1 release d", "script a/SET b/shared c,b,d"),
        (
            "1 release a/2 release b/9 acquire a/3 release a/4 release c",
            "shared a,b/SET a/shared a,c",
        ),
        ("1 release a/2 release a", "script a/script a"),
        ("1 extend a/1 extend a", "script a/script a"),
        ("1 release a/2 release b/1 release b", "shared a,b/script b"),
        ("1 extend a/2 extend b/1 release b/2 release c", "shared a,b/shared b,c"),
    ] {
        let (fake, node) = pair();
        let begun: Vec<&str> = begun.split('/').collect();
        all(&node, &begun).await;
        assert_eq!(shape(&fake).join("/"), sent, "{begun:?}");
    }
}

fn error(text: &str) -> Value {
    Value::Error(text.into())
}

/// And whether the connection shares scripts after that.
#[tokio::test(start_paused = true)]
async fn a5_a_shared_script_that_fails_is_sent_call_by_call() {
    for (text, goes_on) in [
        ("NOSCRIPT No matching script.", true),
        ("LOADING Redis is loading the dataset in memory", true),
        ("BUSY Redis is busy running a script.", true),
        ("ERR ACL failure in script: No permissions to access a key", true),
        ("ERR ACL failure in script: User x has no permissions to run the 'mget' command", false),
        (
            "@user_script: 2: The user executing the script can't run this command or subcommand",
            false,
        ),
        ("CROSSSLOT Keys in request don't hash to the same slot", false),
        (
            "ERR Error running script (call to f_1): @user_script:12: @user_script: 12: Wrong number of args calling Redis command From Lua script",
            false,
        ),
        ("ERR the proxy does not do this", false),
    ] {
        for what in ["release", "extend"] {
            let (fake, node) = on(move |parts| match claims(parts) {
                Some(_) => Some(error(text)),
                None => (parts.get(3)? == "b").then_some(Value::Int(0)),
            });
            let texts = [format!("1 {what} a"), format!("1 {what} b"), format!("3 {what} c")];
            let texts = texts.each_ref().map(String::as_str);
            let votes = all(&node, &texts).await.into_iter().map(|seen| vote(seen).unwrap());
            assert_eq!(votes.collect::<Vec<_>>(), [Vote::Granted, Vote::Refused, Vote::Granted]);
            let before = fake.sent().len();
            assert_eq!(shape(&fake), ["shared a,b,c", "script a", "script b", "script c"]);
            all(&node, &texts[..2]).await;
            let shares = shape(&fake)[before] == "shared a,b";
            assert_eq!(shares, goes_on, "{what}: {text}");
            assert_eq!(fake.connects(), 1);
        }
    }
}

/// The server remembers keys for a message about their next change: those of extensions, and not
/// those of releases, unless the user may not choose. Rule P2.
#[tokio::test(start_paused = true)]
async fn p2_the_node_tracks_what_is_extended_and_no_more() {
    const NOPERM: &str = "NOPERM this user has no permissions";
    const BUSY: &str = "BUSY Redis is busy running a script";
    let (chosen, all_keys) = ("CLIENT TRACKING ON OPTIN NOLOOP", "CLIENT TRACKING ON NOLOOP");
    let (track, off, run) = ("CLIENT CACHING YES", "CLIENT TRACKING OFF", "EVALSHA");
    // The error that refuses `CLIENT CACHING` after so many of them. The last pair of extensions
    // leaves later, over the next connection where this one could not track any more.
    type Refusal = fn(usize) -> Option<&'static str>;
    let cases: [(Refusal, &[&str]); 4] = [
        (|_| None, &[chosen, track, run, track, run, track, run, track, run]),
        (|_| Some(NOPERM), &[chosen, track, off, all_keys, run, run, run, run]),
        (
            |count| (count == 1).then_some(BUSY),
            &[chosen, track, run, track, run, track, run, track, run],
        ),
        (
            |count| (count > 0).then_some(NOPERM),
            &[chosen, track, run, track, run, run, chosen, track, off, all_keys, run],
        ),
    ];
    for (refusal, expected) in cases {
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let told = Arc::clone(&seen);
        let (_fake, node) = on(move |parts| {
            let mut told = told.lock().unwrap();
            let line = parts.join(" ");
            let is_caching = line == track;
            let count = told.iter().filter(|line| *line == track).count();
            if is_caching || line.starts_with("CLIENT TRACKING") {
                told.push(line);
            } else if claims(parts).is_some() {
                told.push(run.to_owned());
            }
            is_caching.then(|| refusal(count).map_or(Value::Okay, error))
        });
        for (what, pause) in [("release", 0), ("extend", 0), ("extend", 2), ("extend", 0)] {
            let texts = ["1", "2"].map(|holder| format!("{holder} {what} {holder}"));
            let answers = all(&node, &texts.each_ref().map(String::as_str)).await;
            assert!(answers.iter().all(Result::is_ok), "{answers:?}");
            sleep(Duration::from_secs(pause)).await;
        }
        assert_eq!(*seen.lock().unwrap(), expected);
    }
}

/// It has no `PEXPIRE … GT`.
#[tokio::test(start_paused = true)]
async fn extensions_share_no_script_on_redis_6() {
    let info = || Value::Text(b"redis_version:6.2.14\r\nrun_id:abc\r\n".to_vec());
    let (fake, node) = on(move |parts| (parts[0] == "INFO").then(info));
    all(&node, &["1 extend a", "2 extend b", "1 release c", "2 release d"]).await;
    assert_eq!(shape(&fake), ["script a", "script b", "shared c,d"]);
}

/// A replica that accepts writes is asked for no extension. Rule Q4.
#[tokio::test(start_paused = true)]
async fn c3_a_call_that_is_not_sent_has_no_script_that_others_join() {
    let info = |text: &str| Some(Value::Text(text.as_bytes().to_vec()));
    let (fake, node) = on(move |parts| match (&*parts[0], parts.get(1).map(String::as_str)) {
        ("INFO", Some("replication")) => info("role:slave\r\nslave_read_only:0\r\n"),
        ("INFO", _) => info("redis_version:7.2.14\r\nrun_id:abc\r\n"),
        _ => None,
    });
    let answers = all(&node, &["1 extend a", "2 release b", "3 extend c"]).await;
    for at in [0, 2] {
        let error = answers[at].as_ref().unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::ReadOnly, "{error}");
    }
    assert!(answers[1].is_ok(), "{answers:?}");
    assert_eq!(shape(&fake), ["script b"]);
}

/// One answer is nil: what is there only the script of one call can tell.
#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_in_the_script_goes_alone() {
    let (fake, node) = on(|parts| match claims(parts) {
        Some(_) => Some(Value::List(vec![Value::Int(1), Value::Nil, Value::Int(0)])),
        None if parts.get(3)? == "b" => Some(error("WRONGTYPE Operation against a key")),
        None => None,
    });
    let answers = all(&node, &["1 extend a", "1 extend b", "1 extend c"]).await;
    assert_eq!(shape(&fake), ["shared a,b,c", "script b"]);
    let seen: Vec<String> = answers.into_iter().map(|seen| format!("{:?}", vote(seen))).collect();
    assert!(seen[0] == "Ok(Granted)" && seen[1].contains("WrongType") && seen[2] == "Ok(Refused)");
}

/// The next replies may belong to other commands.
#[tokio::test(start_paused = true)]
async fn q4_a_reply_that_is_no_answer_for_each_ends_the_connection() {
    let nonsense = [Value::Int(1), Value::Nil, Value::List(vec![Value::Int(1)]), Value::Okay];
    for reply in nonsense {
        let told = reply.clone();
        let (fake, node) = on(move |parts| claims(parts).map(|_| told.clone()));
        let answers = all(&node, &["1 release a", "2 release b", "9 acquire c"]).await;
        assert!(answers.iter().all(is_lost), "{reply:?}: {answers:?}");
        all(&node, &["9 acquire a"]).await[0].as_ref().unwrap();
        assert_eq!(fake.connects(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_loses_all_calls_of_its_script() {
    let (fake, node) = pair();
    all(&node, &["9 acquire c"]).await[0].as_ref().unwrap();
    fake.hold(true);
    let calls: Vec<_> =
        ["1 release a", "2 release b"].iter().map(|text| begin(&node, operation(text))).collect();
    sleep(TICK).await;
    fake.end_after(0);
    fake.hold(false);
    assert!(join_all(calls).await.iter().all(is_lost));
    all(&node, &["9 acquire c"]).await[0].as_ref().unwrap();
    assert_eq!(shape(&fake), ["SET c", "shared a,b", "SET c"], "nothing is sent again");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_in_a_script_disturbs_no_other() {
    let (fake, node) = held();
    let mut calls: Vec<_> = ["1 release a", "2 release b", "3 release c"]
        .iter()
        .map(|text| begin(&node, operation(text)))
        .collect();
    sleep(TICK).await;
    drop(calls.remove(1));
    fake.settle();
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    assert_eq!(shape(&fake), ["shared a,b,c"]);
}

#[tokio::test(start_paused = true)]
async fn a_script_has_64_keys_and_64_kib_at_most() {
    let shared = |fake: &Fake| -> Vec<usize> {
        fake.sent().iter().filter_map(|sent| Some(sent.claims()?.len())).collect()
    };
    let release = |names: &[String]| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Operation::Release(crate::calls::claim(&names), ReleaseOptions::default())
    };
    let (fake, node) = pair();
    let names = |prefix: &str, count: usize| -> Vec<String> {
        (0..count).map(|number| format!("{prefix}:{number}")).collect()
    };
    let one_each = (0..200).map(|number| begin(&node, release(&names(&number.to_string(), 1))));
    join_all(one_each).await;
    assert_eq!(shared(&fake), [64, 64, 64, 8]);

    let (fake, node) = pair();
    let thirty = ["a", "b", "c", "d", "e"].map(|name| begin(&node, release(&names(name, 30))));
    join_all(thirty).await;
    assert_eq!((shared(&fake), fake.batches()), (vec![60, 60], vec![3]));

    let (fake, node) = pair();
    let long =
        (0..8).map(|number| begin(&node, release(&[format!("{number}{}", "x".repeat(20_000))])));
    join_all(long).await;
    assert_eq!((shared(&fake), fake.batches()), (vec![3, 3, 2], vec![3]));
}

/// Where the server has a compare-and-delete, that is cheaper.
#[tokio::test(start_paused = true)]
async fn a_compare_and_delete_shares_no_script() {
    let (fake, node) = on(|parts| (parts[0] == "DELIFEQ").then_some(Value::Int(1)));
    all(&node, &["1 release a", "2 release b", "1 release cd", "2 release ef"]).await;
    assert_eq!(shape(&fake), ["DELIFEQ a", "DELIFEQ b", "shared c,d,e,f"]);
}

//! The operations as tables: the commands sent, and the meaning of each reply.

use std::time::Duration;

use quorate_core::backend::{
    Capabilities, Choice, Claim, Description, Entry, ExtendOptions, FenceHint, ReleaseOptions,
    Revoke, Ttl,
};
use quorate_core::resource::{Key, Resource, Token};
use quorate_core::{BackendErrorKind, FencingToken, RestartGuard};

use super::*;
use crate::command::Parts;
use crate::features::CompareAndDelete;

const NOSCRIPT: &str = "NOSCRIPT No matching script.";

fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

fn claim(names: &[&str]) -> Claim {
    let token = Token::draw(|bytes| {
        bytes.fill(0xab);
        Ok(())
    });
    let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
    Claim::new(keys, token.unwrap(), Ttl::try_from(Duration::from_secs(10)).unwrap())
}

fn acquire(names: &[&str], hint: u64, guard: Option<RestartGuard>) -> Operation {
    let mut options = AcquireOptions::default();
    (options.fencing, options.guard) = (FenceHint::new(hint).filter(|_| hint > 0), guard);
    Operation::Acquire(claim(names), options)
}

fn shared(names: &[&str]) -> Claim {
    claim(names).with_mode(Mode::Shared)
}

fn read(names: &[&str], guard: Option<RestartGuard>) -> Operation {
    let mut options = AcquireOptions::default();
    options.guard = guard;
    Operation::Acquire(shared(names), options)
}

/// The same that asks whether others wait for `asks`.
fn asking(operation: Operation, asks: &[&str]) -> Operation {
    match operation {
        Operation::Release(claim, mut options) => {
            options.asks = Some(asks.iter().map(|name| key(name)).collect());
            Operation::Release(claim, options)
        }
        Operation::Acquire(claim, mut options) => {
            options.asks = true;
            Operation::Acquire(claim, options)
        }
        other => other,
    }
}

fn release(names: &[&str], number: u64) -> Operation {
    let mut options = ReleaseOptions::default();
    options.raise_to = FencingToken::new(number);
    Operation::Release(claim(names), options)
}

fn refresh(choice: Choice) -> Operation {
    let (key, entry, locks) = (key("k"), Entry::new(*b"me"), [key("k"), key("l")].into());
    Operation::Refresh { key, entry, locks, choice }
}

fn leave(also: Option<Entry>) -> Operation {
    Operation::Leave { key: key("k"), entry: Entry::new(*b"me"), also }
}

fn revoke(how: Revoke) -> Operation {
    Operation::Revoke { key: key("k"), how }
}

fn features(how: Option<CompareAndDelete>) -> Features {
    let mut features = Features::new(Ok(By::Sha));
    features.compare_and_delete = how;
    features.server = Some("abc".into());
    features
}

/// The parts of a command, with a script's name in place of its SHA-1 or its text.
fn parts(command: &Parts) -> String {
    let token = "ab".repeat(20);
    let parts: Vec<String> =
        command.iter().map(|part| String::from_utf8_lossy(part).replace(&token, "TOKEN")).collect();
    match parts[0].as_str() {
        "EVALSHA" | "EVAL" => [&[parts[0].clone()], &parts[2..]].concat().join(" "),
        _ => parts.join(" "),
    }
}

fn sent(step: Step<Parts>) -> (String, Form) {
    match step {
        Step::Send(command, form) => (parts(&command), form),
        Step::Done(answer) => panic!("{answer:?}"),
    }
}

fn done(step: Step<Parts>) -> CallResult {
    match step {
        Step::Done(answer) => answer,
        Step::Send(command, _) => panic!("{command:?}"),
    }
}

#[test]
fn each_operation_has_its_command() {
    let guard = Some(RestartGuard::strict(Duration::from_secs(30)));
    let number = FencingToken::new(9).unwrap();
    let watch = |entry| Operation::Watch { key: key("k"), entry };
    for (operation, expected) in [
        (acquire(&["k"], 0, None), "SET k TOKEN NX PX 10000"),
        (acquire(&["a", "b"], 0, None), "EVALSHA 2 a b TOKEN 10000"),
        (acquire(&["orders:42"], 7, None), "EVALSHA 2 orders:42 quorate:fence:547 TOKEN 10000 7"),
        (
            acquire(&["k"], 0, guard),
            "EVALSHA 3 k quorate:guard:epoch2 quorate:guard:quarantine TOKEN 10000  30000 strict",
        ),
        (
            acquire(&["a"], 7, guard),
            "EVALSHA 4 a quorate:fence:288 quorate:guard:epoch2 quorate:guard:quarantine \
             TOKEN 10000 7 30000 strict",
        ),
        (Operation::Extend(claim(&["k"]), ExtendOptions::default()), "EVALSHA 1 k TOKEN 10000"),
        (Operation::Raise(claim(&["a"]), number), "EVALSHA 2 a quorate:fence:288 TOKEN 9"),
        (release(&["k"], 0), "EVALSHA 1 k TOKEN"),
        (release(&["a"], 9), "EVALSHA 2 a quorate:fence:288 TOKEN 9"),
        (asking(release(&["k"], 0), &["k"]), "EVALSHA 2 k k:quorate:waiters TOKEN 1"),
        (
            asking(release(&["a", "b"], 9), &["c"]),
            "EVALSHA 5 a b quorate:fence:288 quorate:fence:745 c:quorate:waiters TOKEN 9 4",
        ),
        (
            asking(read(&["a", "b"], None), &[]),
            "EVALSHA 4 a b a:quorate:seen b:quorate:seen TOKEN 10000 2",
        ),
        (asking(acquire(&["k"], 0, None), &[]), "SET k TOKEN NX PX 10000"),
        (read(&["a", "b"], None), "EVALSHA 2 a b TOKEN 10000"),
        (
            read(&["k"], guard),
            "EVALSHA 3 k quorate:guard:epoch2 quorate:guard:quarantine TOKEN 10000  30000 strict",
        ),
        (Operation::Extend(shared(&["k"]), ExtendOptions::default()), "EVALSHA 1 k TOKEN 10000"),
        (Operation::Release(shared(&["k"]), ReleaseOptions::default()), "EVALSHA 1 k TOKEN"),
        (refresh(Choice::All), "EVALSHA 5 k:quorate:waiters k:quorate:seen k:quorate:me k l me"),
        (
            refresh(Choice::Any),
            "EVALSHA 5 k:quorate:waiters k:quorate:seen k:quorate:me k l me any",
        ),
        (leave(None), "EVALSHA 3 k:quorate:waiters k:quorate:seen k:quorate:me me"),
        (
            leave(Some(Entry::new(*b"first"))),
            "EVALSHA 4 k:quorate:waiters k:quorate:seen k:quorate:me k:quorate:first me first",
        ),
        (watch(None), "GET k"),
        (watch(Some(Entry::new(*b"e1"))), "GET k:quorate:e1"),
        (Operation::Inspect { key: key("k") }, "EVALSHA 1 k"),
        (revoke(Revoke::replace(claim(&["k"]).token().clone())), "EVALSHA 1 k TOKEN"),
        (revoke(Revoke::delete()), "EVALSHA 1 k "),
        (Operation::Describe, "CONFIG GET *appendfsync*"),
        (Operation::ServerId, "INFO server"),
    ] {
        assert_eq!(sent(first(&operation, &features(None))).0, expected);
        // A server without `SCRIPT LOAD` is sent the text at once.
        let (text, _) = sent(first(&operation, &Features::new(Ok(By::Text))));
        assert_eq!(text, expected.replace("EVALSHA", "EVAL"));
    }
    // The guide names the permissions of a user: a look needs no other one than a lock.
    let mut tracking = features(None);
    tracking.tracks = true;
    for (keys, expected) in [(&["k"][..], "GET k"), (&["a", "b"], "EVALSHA 2 a b TOKEN -1")] {
        assert_eq!(sent(first(&Operation::Look(claim(keys)), &tracking)).0, expected);
    }
    for (how, expected) in [
        (CompareAndDelete::DelIfEq, "DELIFEQ k TOKEN"),
        (CompareAndDelete::DelEx, "DELEX k IFEQ TOKEN"),
    ] {
        let features = features(Some(how));
        assert_eq!(sent(first(&release(&["k"], 0), &features)).0, expected);
        let reader = Operation::Release(shared(&["k"]), ReleaseOptions::default());
        for operation in [release(&["a", "b"], 0), release(&["k"], 9), reader] {
            assert!(sent(first(&operation, &features)).0.starts_with("EVALSHA"));
        }
    }
}

/// C3, W3: a second command could come behind the one that undoes the first.
#[test]
fn what_sets_a_key_is_one_command_and_all_else_may_have_a_second() {
    let guard = Some(RestartGuard::strict(Duration::from_secs(30)));
    let number = FencingToken::new(9).unwrap();
    for (operation, has_second) in [
        (acquire(&["a", "b"], 0, None), false),
        (acquire(&["k"], 7, None), false),
        (acquire(&["k"], 7, guard), false),
        (read(&["k"], None), false),
        (read(&["k"], guard), false),
        (refresh(Choice::All), false),
        (Operation::Extend(claim(&["k"]), ExtendOptions::default()), true),
        (Operation::Raise(claim(&["k"]), number), true),
        (release(&["k"], 0), true),
        (release(&["k"], 9), true),
        (leave(None), true),
        (Operation::Inspect { key: key("k") }, true),
        (revoke(Revoke::delete()), true),
        (Operation::Describe, true),
    ] {
        let mut features = features(None);
        let (mut by_sha, mut form) = sent(first(&operation, &features));
        if form == Form::Config {
            (by_sha, form) = sent(next(&operation, form, fsync(), &mut features));
            assert_eq!(by_sha, "EVALSHA 2 quorate:guard:quarantine quorate:guard:epoch2");
        }
        let step = next(&operation, form, Value::Error(NOSCRIPT.into()), &mut features);
        assert!(features.must_load);
        if has_second {
            let (second, form) = sent(step);
            assert_eq!(second, by_sha.replace("EVALSHA", "EVAL"));
            assert_eq!(form, Form::Script(By::Text));
        } else {
            let error = done(step).unwrap_err();
            assert!(error.is_not_sent() && !error.kind().is_permanent(), "{error:?}");
        }
    }
}

#[test]
fn q4_only_a_refusal_refuses() {
    let error = |text: &str| Value::Error(text.into());
    let (plain, several) = (acquire(&["k"], 0, None), acquire(&["a", "b"], 0, None));
    let text = |text: &str| Value::Text(text.into());
    let list = |words: [&str; 2]| Value::List(words.map(text).to_vec());
    let guarded = acquire(&["k"], 7, Some(RestartGuard::strict(Duration::from_secs(30))));
    for (operation, reply, vote) in [
        (&plain, Value::Okay, Some(Vote::Granted)),
        (&plain, text("OK"), Some(Vote::Granted)),
        (&plain, text("QUEUED"), None),
        (&plain, Value::Int(0), None),
        (&plain, error("OOM command not allowed"), None),
        (&plain, error("LOADING"), None),
        (&several, list(["refused", "another"]), Some(Vote::Refused)),
        (&several, list(["refused", ""]), Some(Vote::Refused)),
        (&several, list(["granted", "0"]), Some(Vote::Granted)),
        (&several, text("another"), None),
        (&several, Value::Int(1), None),
        (&several, Value::Nil, None),
        (&several, Value::Okay, None),
        (&acquire(&["k"], 7, None), list(["refused", "another"]), Some(Vote::Refused)),
        (&acquire(&["k"], 7, None), list(["granted", "42"]), Some(Vote::Granted)),
        (&acquire(&["k"], 7, None), list(["granted", "x"]), None),
        (&acquire(&["k"], 7, None), list(["granted", "9007199254740992"]), None),
        (&acquire(&["k"], 7, None), list(["", "0"]), None),
        (&acquire(&["k"], 7, None), Value::List(vec![text("granted")]), None),
        (&acquire(&["k"], 7, None), text("42"), None),
        (&guarded, Value::List(["granted", "7", "abc"].map(text).to_vec()), Some(Vote::Granted)),
        (&release(&["k"], 0), Value::Int(1), Some(Vote::Granted)),
        (&release(&["k"], 0), Value::Int(0), Some(Vote::Refused)),
        (&release(&["k"], 0), Value::Int(2), None),
        (&release(&["k"], 0), Value::Nil, None),
        (&release(&["k"], 0), text("1"), None),
    ] {
        let mut features = features(None);
        let (_, form) = sent(first(operation, &features));
        let answer = done(next(operation, form, reply, &mut features));
        let voted = answer.ok().map(|reply| match reply {
            CallReply::Voted(reply) => {
                assert!(reply.server.is_some() && !reply.is_nameless, "{operation:?}");
                reply.vote
            }
            other => panic!("{other:?}"),
        });
        assert_eq!(voted, vote);
    }
    let quarantined = Value::List(["quarantined", "3200", "abc"].map(text).to_vec());
    let (_, form) = sent(first(&guarded, &features(None)));
    let error = done(next(&guarded, form, quarantined, &mut features(None))).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Quarantined);
    assert!(error.to_string().starts_with("quarantined for another 3.2s"), "{error}");
}

/// What `SET … GET` replies is the value that was there before.
#[test]
fn l1_a_refusal_names_the_holder_where_the_server_can_do_that() {
    let operation = acquire(&["k"], 0, None);
    let token = "ab".repeat(20);
    let text = |text: &str| Value::Text(text.into());
    let error = |text: &str| Value::Error(text.into());
    let other = format!("{} web-3", "cd".repeat(20));
    for (reply, vote, label, still_named) in [
        (Value::Nil, Some(Vote::Granted), None, true),
        // Our own token is ours (C6).
        (text(&token), Some(Vote::Granted), None, true),
        (text(&other), Some(Vote::Refused), Some("web-3"), true),
        (text("of another library"), Some(Vote::Refused), None, true),
        // The key is there.
        (error("WRONGTYPE Operation against a key"), Some(Vote::Refused), None, true),
        (error("OOM command not allowed"), None, None, true),
        (Value::Okay, None, None, true),
        // The version promises too much: nothing was set, and the next acquire is a plain one.
        (error("ERR syntax error"), None, None, false),
    ] {
        let mut features = features(None);
        features.names_holder = true;
        let (command, form) = sent(first(&operation, &features));
        assert_eq!(command, "SET k TOKEN NX PX 10000 GET");
        let answer = done(next(&operation, form, reply.clone(), &mut features));
        if let Err(error) = &answer {
            assert_eq!(error.is_not_sent(), !still_named, "{reply:?}: {error}");
        }
        let voted = answer.ok().map(|answer| match answer {
            CallReply::Voted(reply) => reply,
            other => panic!("{other:?}"),
        });
        assert_eq!(voted.as_ref().map(|reply| reply.vote), vote, "{reply:?}");
        assert!(voted.iter().all(|reply| reply.server.is_some()), "{reply:?}");
        let holder = voted.and_then(|reply| reply.holder);
        assert_eq!(holder.as_ref().and_then(|holder| holder.label()), label, "{reply:?}");
        let (next, _) = sent(first(&operation, &features));
        assert_eq!(next.ends_with("GET"), still_named, "{reply:?}");
    }
}

/// A server before Redis 7 is asked a second time, with a command that only reads.
#[test]
fn l1_a_refusal_without_a_name_is_followed_by_a_look() {
    let operation = acquire(&["k"], 0, None);
    let other = Value::Text(format!("{} web-3", "cd".repeat(20)).into());
    for (reply, label) in [
        (other, Some("web-3")),
        (Value::Nil, None),
        (Value::Error("NOPERM this user has no permissions".into()), None),
    ] {
        let mut features = features(None);
        let (command, form) = sent(first(&operation, &features));
        assert_eq!(command, "SET k TOKEN NX PX 10000");
        let (look, form) = sent(next(&operation, form, Value::Nil, &mut features));
        assert_eq!(look, "GET k");
        let Ok(CallReply::Voted(voted)) = done(next(&operation, form, reply, &mut features)) else {
            panic!("no vote");
        };
        assert_eq!(voted.vote, Vote::Refused);
        assert_eq!(voted.holder.as_ref().and_then(|holder| holder.label()), label);
        assert!(voted.server.is_some());
    }
}

#[test]
fn a_refused_compare_and_delete_falls_back_to_the_script() {
    let release = release(&["k"], 0);
    let text = |text: &str| Value::Error(text.into());
    let run = "NOPERM User joe has no permissions to run the 'delifeq' command";
    let access = "NOPERM No permissions to access a key";
    for (reply, has_scripts, falls_back, is_kept) in [
        (run, true, true, false),
        ("ERR unknown command 'DELIFEQ'", true, true, false),
        (access, true, true, true),
        ("READONLY", true, false, true),
        (run, false, false, true),
    ] {
        let mut features = features(Some(CompareAndDelete::DelIfEq));
        if !has_scripts {
            features.scripts = Err(BackendError::unsupported("no scripts"));
        }
        let (_, form) = sent(first(&release, &features));
        let step: Step<Parts> = next(&release, form, text(reply), &mut features);
        assert_eq!(features.compare_and_delete.is_some(), is_kept, "{reply}");
        match step {
            Step::Send(..) => assert!(falls_back, "{reply}"),
            Step::Done(answer) => assert!(answer.is_err() && !falls_back, "{reply}"),
        }
    }
}

#[test]
fn a_refresh_tells_the_place() {
    use Choice::{All, Any};
    let reply = |held, before: &str, first: &str, place| {
        Value::List(vec![
            Value::Int(held),
            Value::Text(before.into()),
            Value::Text(first.into()),
            Value::Int(place),
            Value::Int(i64::from(held == 1)),
        ])
    };
    let mut features = features(None);
    let mut read = |choice, reply| {
        let form = Form::Script(By::Sha);
        match done(next(&refresh(choice), form, reply, &mut features)) {
            Ok(CallReply::Refreshed(refreshed)) => Some(refreshed),
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        }
    };
    let first = read(All, reply(0, "", "me", 0)).unwrap();
    assert_eq!((first.predecessor, first.held, first.place), (None, None, 0));
    let third = read(All, reply(2, "b", "a", 2)).unwrap();
    assert_eq!((third.predecessor, third.held), (Some(Entry::new(*b"b")), Some(1)));
    assert!(!third.is_read && read(All, reply(1, "", "me", 0)).unwrap().is_read);
    assert_eq!((third.first, third.place), (Entry::new(*b"a"), 2));
    for nonsense in [reply(3, "", "me", 0), reply(0, "", "", 0), reply(0, "", "me", -1)] {
        assert!(read(All, nonsense.clone()).is_none() && read(Any, nonsense).is_none());
    }
    assert!(read(All, Value::Int(1)).is_none());
    let some = [0, 1, 2].map(|number| read(Any, reply(number, "", "me", 0)).unwrap());
    let some = some.map(|reply| (reply.held.is_some(), reply.free));
    assert_eq!(some, [(true, None), (false, Some(0)), (false, Some(1))]);
}

/// A server's answers to a question what it is, one after the other; `None` for an error reply.
fn described(features: &mut Features, replies: Vec<Value>) -> (Description, Vec<String>) {
    let (mut step, mut asked) = (first(&Operation::Describe, features), Vec::new());
    for reply in replies {
        let (command, form) = match step {
            Step::Send(command, form) => (command, form),
            Step::Done(answer) => panic!("{answer:?}"),
        };
        asked.push(parts(&command).split(' ').next().unwrap().to_owned());
        step = next(&Operation::Describe, form, reply, features);
    }
    match done(step) {
        Ok(CallReply::Described(told)) => (*told, asked),
        other => panic!("{other:?}"),
    }
}

const INFO: &str = "# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\nuptime_in_seconds:7\r\n\
                    used_memory:300\r\nmem_not_counted_for_evict:100\r\nmaxmemory:0\r\n\
                    maxmemory_policy:noeviction\r\naof_enabled:1\r\nrole:master\r\n\
                    master_replid2:00\r\nsecond_repl_offset:-1\r\ncluster_enabled:0\r\n";

/// The reply to `CONFIG GET *appendfsync*`.
fn config(words: &[&str]) -> Value {
    Value::List(words.iter().map(|text| Value::Text((*text).into())).collect())
}

fn fsync() -> Value {
    config(&["no-appendfsync-on-rewrite", "no", "appendfsync", "always"])
}

#[test]
fn a_log_that_is_not_on_the_disk_during_a_rewrite_keeps_no_writes() {
    const ALWAYS: [&str; 2] = ["appendfsync", "always"];
    let on_rewrite = |value| ["no-appendfsync-on-rewrite", value];
    let late = "always, no-appendfsync-on-rewrite yes";
    for (words, shown, keeps) in [
        (ALWAYS.to_vec(), Some("always"), true),
        ([on_rewrite("no"), ALWAYS].concat(), Some("always"), true),
        ([on_rewrite("yes"), ALWAYS].concat(), Some(late), false),
        ([ALWAYS, on_rewrite("yes")].concat(), Some(late), false),
        ([ALWAYS, on_rewrite("no")].concat(), Some("always"), true),
        (on_rewrite("no").to_vec(), None, false),
        (vec![], None, false),
    ] {
        let script = Value::List(vec![Value::Int(-2), Value::Text(INFO.into()), Value::Nil]);
        let (told, _) = described(&mut features(None), vec![config(&words), script]);
        assert_eq!(told.fsync.as_deref(), shown, "{words:?}");
        assert_eq!(told.keeps_writes(), Some(keeps), "{words:?}");
    }
}

#[test]
fn a_description_is_what_the_server_tells() {
    let text = |text: &str| Value::Text(text.into());
    let scripted =
        |left, info: &str| vec![fsync(), Value::List(vec![left, text(info), Value::Nil])];
    let valkey =
        "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\nrole:slave\r\n";
    for (left, info, version, is_replica, quarantine) in [
        (Value::Int(-2), INFO, Some("Redis 7.0.15"), Some(false), None),
        (
            Value::Int(1_500),
            valkey,
            Some("Valkey 8.0.1"),
            Some(true),
            Some(Duration::from_millis(1_500)),
        ),
        (Value::Int(-1), "", None, None, Some(Duration::MAX)),
        (Value::Nil, "", None, None, None),
    ] {
        let (told, asked) = described(&mut features(None), scripted(left, info));
        assert_eq!(asked, ["CONFIG", "EVALSHA"]);
        assert_eq!((told.version.as_deref(), told.is_replica), (version, is_replica));
        assert_eq!((told.quarantine_left, told.runs_scripts), (quarantine, Some(true)));
        assert!(told.errors.is_empty());
    }
    let (told, _) = described(&mut features(None), scripted(Value::Int(-2), INFO));
    assert_eq!((told.server_id.as_deref(), told.max_memory), (Some("abc"), Some(0)));
    assert_eq!((told.eviction.as_deref(), told.is_append_only), (Some("noeviction"), Some(true)));
    assert_eq!((told.used_memory, told.is_clustered), (Some(200), Some(false)));
    assert_eq!((told.uptime, told.keeps_writes()), (Some(Duration::from_secs(7)), Some(true)));
    assert!(!told.lacks.contains(Capabilities::FENCING));
    // A later description knows no more than the reply to its own question.
    let mut features = features(None);
    described(&mut features, scripted(Value::Int(-2), INFO));
    let denied = Value::Error("NOPERM this user has no permissions to run 'config|get'".into());
    let replies = vec![denied, Value::List(vec![Value::Int(-2), text(INFO), Value::Nil])];
    let (told, _) = described(&mut features, replies);
    assert_eq!((told.fsync.as_deref(), told.keeps_writes()), (None, Some(false)));
}

#[test]
fn a_description_compares_the_epoch_of_the_guard_with_the_server() {
    let max_ttl = |millis| Some(Duration::from_millis(millis));
    for (epoch, is_known, guard_max_ttl) in [
        (None, false, None),
        (Some("abc:00:-1:5000"), true, max_ttl(5_000)),
        (Some("other:00:-1:5000"), false, max_ttl(5_000)),
        (Some("abc:11:9:7000"), false, max_ttl(7_000)),
        (Some("nonsense"), false, max_ttl(0)),
    ] {
        let epoch = epoch.map_or(Value::Nil, |epoch| Value::Text(epoch.into()));
        let scripted = Value::List(vec![Value::Int(-2), Value::Text(INFO.into()), epoch]);
        let (told, _) = described(&mut features(None), vec![fsync(), scripted]);
        assert_eq!((told.is_known_to_guard, told.guard_max_ttl), (is_known, guard_max_ttl));
    }
}

#[test]
fn a_server_of_a_cluster_is_described_without_a_script() {
    let info = INFO.replace("cluster_enabled:0", "cluster_enabled:1");
    for error in ["CROSSSLOT Keys in request don't hash to the same slot", "MOVED 7 10.0.0.1:6379"]
    {
        let replies = vec![fsync(), Value::Error(error.into()), Value::Text(info.clone().into())];
        let (told, asked) = described(&mut features(None), replies);
        assert_eq!(asked, ["CONFIG", "EVALSHA", "INFO"]);
        let lacks = Capabilities::FENCING | Capabilities::GUARD | Capabilities::QUEUE;
        assert!(told.is_clustered == Some(true) && told.lacks.contains(lacks), "{told:?}");
        assert!(!told.lacks.contains(Capabilities::SHARED) && told.errors.is_empty());
    }
}

/// Whatever is forbidden, the description says what is known, and why the rest is missing.
#[test]
fn a_description_lacks_what_the_user_may_not_read() {
    let error = |text: &str| Value::Error(text.into());
    let denied = || error("NOPERM this user has no permissions to run the 'info' command");
    let no_access = || error("NOPERM No permissions to access a key");
    let info = || Value::Text(INFO.into());
    let no_info = || Value::List(vec![Value::Int(-2), Value::Nil, Value::Nil]);
    for (mut replies, lacks_id, asked) in [
        (vec![no_info(), info()], false, &["EVALSHA", "INFO"][..]),
        (vec![no_info(), denied()], true, &["EVALSHA", "INFO"]),
        (vec![no_access(), info()], false, &["EVALSHA", "INFO"]),
        (vec![error(NOSCRIPT), no_access(), denied()], true, &["EVALSHA", "EVAL", "INFO"]),
    ] {
        replies.insert(0, denied());
        let (told, seen) = described(&mut features(None), replies);
        assert_eq!(seen, [&["CONFIG"], asked].concat());
        assert!(told.lacks.contains(Capabilities::GUARD));
        assert_eq!(told.lacks.contains(Capabilities::SERVER_ID), lacks_id);
        assert_eq!(
            (told.server_id.is_none(), told.errors.len()),
            (lacks_id, usize::from(lacks_id))
        );
        if let [error] = told.errors.as_slice() {
            assert!(error.to_string().ends_with("to run the 'info' command"), "{error}");
        }
    }
    let mut features = features(None);
    features.scripts = Err(BackendError::unsupported("this node runs no scripts"));
    let (told, asked) = described(&mut features, vec![fsync(), info()]);
    assert_eq!((asked.join(" "), told.runs_scripts), ("CONFIG INFO".to_owned(), Some(false)));
    let lost = Capabilities::FENCING | Capabilities::QUEUE | Capabilities::REVOKE;
    assert!(told.lacks.contains(lost | Capabilities::INSPECT | Capabilities::GUARD));
    assert_eq!(told.errors[0].to_string(), "this node runs no scripts");
}

#[test]
fn q4_a_description_that_makes_no_sense_is_an_error() {
    for (form, reply) in [
        (Form::Script(By::Sha), Value::Int(1)),
        (Form::Script(By::Sha), Value::List(vec![Value::Int(1)])),
        (Form::Plain, Value::Nil),
        (Form::Plain, Value::Error("LOADING".into())),
    ] {
        let answer = done(next(&Operation::Describe, form, reply, &mut features(None)));
        assert!(answer.is_err(), "{answer:?}");
    }
}

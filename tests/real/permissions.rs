//! The permissions that the guide names: with no others a user does all that a lock needs.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::pin::pin;
use std::slice;
use std::time::Duration;

use futures_util::future::{Either, join_all, select, try_join, try_join_all};
use quorate::{BackendError, LockError, LockManager};
use quorate_tests::wait::{LONG_TTL, until, within_limit};
use quorate_tests::{RedisServer, Reply};

use crate::client::{Client, assert_clean, calls, current_thread, on_tokio, unhurried};
use crate::together::cycle;

const TWO: usize = 2;

const PAGE: &str = include_str!("../../crates/quorate/docs/nodes.md");

/// The lines that users copy as one, with this user and password.
fn line(user: &str, password: &str) -> Vec<String> {
    let lines = PAGE.lines().filter_map(|line| line.strip_prefix("ACL SETUSER locker "));
    let line = lines.collect::<Vec<_>>().join(" ");
    assert!(line.starts_with("on >SECRET ~orders:* "), "{line}");
    let line = line.replace("on >SECRET ", &format!("ACL SETUSER {user} on {password} "));
    line.split(' ').map(str::to_owned).collect()
}

/// The rights of that line. The suite of [`crate::conformance`] has no others.
pub(crate) fn rights() -> String {
    let line = line("locker", ">pw");
    let is_right = |word: &&String| word.starts_with('+');
    line.iter().filter(is_right).map(|right| format!("{right} ")).collect()
}

/// A node has refused a user of the line nothing but what a new connection sends beside that, a compare-and-delete that some
/// servers have, and a setting that a check asks for.
pub(crate) fn assert_enough(node: &RedisServer) {
    let may_be = |what: &str| {
        ["ping", "delifeq", "delex", "config|get"].contains(&what)
            || what.starts_with("command")
            || what.starts_with("client") && !["client|tracking", "client|caching"].contains(&what)
    };
    let refused = refusals(node);
    assert!(refused.iter().all(|(what, _)| may_be(what)), "{refused:?}");
}

/// But for those of a check, and of other addresses.
#[test]
fn the_acl_line_of_the_guide_has_the_rights_of_its_rows() {
    let is_other = |feature: &str| feature.ends_with("`check`") || feature.contains("database");
    let rows = features().into_iter().filter(|(feature, _)| !is_other(feature));
    let mut of_rows: BTreeSet<_> = rows.flat_map(|(_, rights)| rights).collect();
    // A name is a help to who looks.
    of_rows.insert("+client|setname".to_owned());
    let of_line: BTreeSet<_> = rights().split_whitespace().map(str::to_owned).collect();
    assert_eq!(of_line, of_rows);
}

/// The user may not use the key of the probe either: the lock is refused before it is set.
#[test]
fn a_lock_that_could_not_be_released_is_refused_without_the_right_to_our_keys() {
    let node = RedisServer::builder().user("default", "reset").start();
    let words: Vec<_> = { line("locker", ">pw").into_iter() }
        .filter(|word| !["~quorate:*", "+del"].contains(&word.as_str()))
        .collect();
    assert_eq!(node.cli(&words).error(), None, "{words:?}");
    on_tokio(async {
        for client in Client::WITH_POOL {
            let manager = client.manager_at(&node.address_as("locker", "pw"));
            let error = manager.lock("orders:1").no_wait().await.unwrap_err().to_string();
            assert!(error.contains("scripts may not run DEL here"), "{client:?}: {error}");
        }
    });
}

/// The table of the guide: each feature, and its rights.
fn features() -> Vec<(&'static str, Vec<String>)> {
    let (_, table) = PAGE.split_once("| feature | commands").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with("| "));
    let row = |line: &'static str| {
        let (feature, rights) = line.trim_start_matches("| ").split_once(" | ").unwrap();
        let spans = rights.split('`').skip(1).step_by(2).collect::<Vec<_>>().join(" ");
        (feature, spans.replace("\\|", "|").split(' ').map(str::to_owned).collect())
    };
    rows.map(row).collect()
}

/// A node that keeps each write has one user, with the rights of a row, and then without each of them.
#[test]
fn each_feature_needs_the_rights_of_its_row_and_no_others() {
    let node = RedisServer::builder().append_only().user("default", "on nopass ~* &* +@all");
    let (node, features) = (node.start(), features());
    let permit = |rights: &[String]| {
        let user = ["ACL", "SETUSER", "row", "reset", "on", ">pw", "~orders:*", "~quorate:*"]
            .map(str::to_owned);
        assert_eq!(node.cli(&[&user, rights].concat()).error(), None, "{rights:?}");
    };
    assert!(features.len() >= 8, "{features:?}");
    for (at, (feature, rights)) in features.iter().enumerate() {
        let mut others = if at == 0 { vec![] } else { features[0].1.clone() };
        if feature.starts_with('…') {
            others.extend(features[at - 1].1.clone());
        }
        for client in Client::ALL {
            let works = |missing: &str| {
                let mut all = others.clone();
                all.extend(rights.iter().filter(|right| *right != missing).cloned());
                permit(&all);
                node.cli(&["ACL", "LOG", "RESET"]);
                let is_there = current_thread().block_on(works(feature, &node, client, missing));
                node.flushall();
                is_there
            };
            assert!(works(""), "{client:?}: {feature}");
            // Without the first of these a process asks nobody whether another one waits, and may overtake it. Sentinels, and
            // what saves work only, have tests of their own.
            let is_other = |right: &&String| ["+exists", "+role", CACHING].contains(&&***right);
            for right in rights.iter().filter(|right| !is_other(right)) {
                assert!(!works(right), "{client:?} without {right}: {feature}");
            }
        }
    }
}

/// Whether a user with the rights that it has now has the feature of a row. `missing`: the right of that row that it lacks.
async fn works(feature: &str, node: &RedisServer, client: Client, missing: &str) -> bool {
    let address = node.address_as("row", "pw");
    let manager = client.manager_at(&address);
    let works = match feature {
        _ if feature.starts_with("locks of one") => {
            let nodes = quorate::redis::builder().group("g").connect([&address]).unwrap();
            let grouped = unhurried(nodes).build().unwrap();
            locks(&manager).await.is_ok() && grouped.lock("orders:6").no_wait().await.is_ok()
        }
        _ if feature.starts_with("the same with less work") => {
            let names = ["orders:1", "orders:2", "orders:3"];
            cycle(&manager, &names).await;
            let [before, shared] = ["eval", "mget"].map(|command| calls(node, command));
            let refused = refusals(node);
            cycle(&manager, &names).await;
            if missing == "+mget" {
                // Each connection asks once for releases, and once for extensions.
                assert!(refused.iter().any(|(what, _)| what == "mget"), "{refused:?}");
                assert_eq!(refusals(node), refused);
            }
            calls(node, "eval") == before && calls(node, "mget") > shared
        }
        _ if feature.starts_with("waiting processes") => {
            waits(node, &manager, &client.manager_at(&address), missing).await.is_some()
        }
        _ if feature.starts_with("… and hear of a release") => {
            let other = client.manager_at(&address);
            waits(node, &manager, &other, missing).await.is_some_and(|entry| entry != b'p')
        }
        _ if feature.starts_with("readers") => tokio::select! {
            done = read(&manager) => done.is_ok(),
            () = until("a refusal", || is_refused(node, missing)) => false,
        },
        _ if feature.starts_with("the restart guard") => {
            let guarded = unhurried(client.connect(slice::from_ref(&address)));
            let guarded = guarded.restart_guard(LONG_TTL + Duration::from_secs(1)).build().unwrap();
            let refused = guarded.lock("orders:1").no_wait().await.unwrap_err().to_string();
            node.cli(&["DEL", "quorate:guard:quarantine"]);
            let granted = guarded.lock("orders:1").no_wait().await;
            let twice = [address.clone(), address.replace("127.0.0.1", "localhost")];
            let twice = client.builder_of(&twice).build().unwrap().lock("orders:2").no_wait().await;
            let is_noticed = matches!(twice, Err(LockError::SameServer { .. }));
            assert!(is_noticed || missing == "+info", "{client:?}: {twice:?}");
            refused.contains("quarantine") && granted.is_ok()
        }
        "`quorate nodes`, `check`" => problems(&manager).await.is_empty(),
        _ if feature.starts_with("an address with a database") => {
            let manager = client.manager_at(&format!("{address}/1"));
            manager.lock("orders:1").no_wait().await.is_ok()
        }
        _ => panic!("the test does not know the feature {feature}"),
    };
    match works {
        true => assert_clean(&manager).await,
        false => drop(manager.close(Duration::ZERO).await),
    }
    works
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// What a lock does that needs no other right than the first row says.
async fn locks(manager: &LockManager) -> Outcome {
    let guard = manager.lock(["orders:1", "orders:2"]).no_wait().await?;
    guard.extend().await?;
    guard.release().await?;
    let (guard, _) = manager.lock("orders:7").no_wait().with_token().await?;
    guard.release().await?;
    manager.lock("orders:1").no_wait().await?.keep(LONG_TTL).await?;
    assert!(manager.inspect("orders:1").await?.is_done());
    assert!(manager.revoke("orders:1").await?.is_effective());
    assert!(manager.delete("orders:1").await?.is_effective());
    let permit = manager.permit("orders:3", TWO).no_wait().await?;
    assert!(manager.inspect("orders:3#1").await?.label().is_none());
    permit.release().await?;
    let period = Duration::from_secs(60 * 60);
    let job = async |_| Ok::<_, BackendError>(());
    assert!(manager.once_per("orders:4", period, job).await?.is_some());
    assert!(manager.once_per("orders:4", period, job).await?.is_none());
    assert_eq!(manager.lead("orders:5", async |_| 7).await?, Some(7));
    Ok(())
}

async fn read(manager: &LockManager) -> Outcome {
    let first = manager.read("orders:1").no_wait().await?;
    let second = manager.read("orders:1").no_wait().await?;
    first.extend().await?;
    assert!(manager.lock("orders:1").no_wait().await.unwrap_err().is_held());
    first.release().await?;
    second.release().await?;
    Ok(())
}

/// The first byte of the entry with which one process waits for another one. `None`: the node refused to keep the queue.
async fn waits(
    node: &RedisServer,
    one: &LockManager,
    other: &LockManager,
    missing: &str,
) -> Option<u8> {
    for manager in [one, other] {
        manager.lock("orders:2").await.unwrap().release().await.unwrap();
    }
    node.cli(&["ACL", "LOG", "RESET"]);
    let held = one.lock("orders:1").await.unwrap();
    let waiting = tokio::spawn(other.lock("orders:1").into_future());
    let entries = || node.cli(&["ZRANGE", "orders:1:quorate:waiters", "0", "-1"]).array();
    // A process without pushes has another entry as soon as it knows.
    let first = || entries().first().map(|entry| entry.text().as_bytes()[0]);
    let is_seen = || first().is_some_and(|byte| byte == b'p' || missing != "+client|tracking");
    until("an entry in the queue, or a refusal", || is_refused(node, missing) || is_seen()).await;
    let first = first();
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    if missing.is_empty() || missing == "+client|tracking" {
        assert_clean(other).await;
        assert_eq!(entries(), []);
        return first;
    }
    until("a refusal", || is_refused(node, missing)).await;
    None
}

/// Whether the node has refused to run what this right is for, since its log was reset.
fn is_refused(node: &RedisServer, missing: &str) -> bool {
    let of = |right: &str| refusals(node).iter().any(|(what, _)| *what == right);
    missing.strip_prefix('+').is_some_and(|right| right != "client|tracking" && of(right))
}

/// What the first screen of the page says to copy: a node with these settings has no problem, and the user of the check sees
/// that.
#[test]
fn the_settings_of_the_guide_are_enough_and_its_checker_sees_it() {
    let (_, settings) = PAGE.split_once("```text\nappendonly ").unwrap();
    let (settings, _) = settings.split_once("```").unwrap();
    let builder =
        format!("appendonly {settings}").lines().fold(RedisServer::builder(), |all, line| {
            let (directive, value) = line.split_once(' ').unwrap();
            all.config(directive, &[value])
        });
    let node = builder.user("default", "on nopass ~* &* +@all").start();
    let line = PAGE.lines().find(|line| line.starts_with("ACL SETUSER checker ")).unwrap();
    let words: Vec<_> = line.split(' ').collect();
    assert_eq!(node.cli(&words).error(), None);
    for client in Client::ALL {
        current_thread().block_on(async {
            let manager = client.manager_at(&node.address_as("checker", "OTHER"));
            assert_eq!(problems(&manager).await, [""; 0], "{client:?}");
        });
    }
}

/// It saves the nodes work, and no more.
const CACHING: &str = "+client|caching";

/// How often the node has refused a user.
fn refusals(node: &RedisServer) -> Vec<(String, Reply)> {
    let log = node.cli(&["ACL", "LOG"]).array().into_iter();
    let refusal = |entry: Vec<Reply>| (entry[7].text(), entry[1].clone());
    log.map(|entry| refusal(entry.array())).collect()
}

/// Each connection asks once. Then the node tracks all keys that are read.
#[test]
fn p2_a_user_without_client_caching_loses_speed_only() {
    let node = RedisServer::start();
    let words: Vec<_> = line("locker", ">pw").into_iter().filter(|word| word != CACHING).collect();
    assert_eq!(node.cli(&words).error(), None);
    for client in Client::ALL {
        node.cli(&["ACL", "LOG", "RESET"]);
        current_thread().block_on(async {
            let manager = client.manager_at(&node.address_as("locker", "pw"));
            let names = ["orders:1", "orders:2", "orders:3"];
            cycle(&manager, &names).await;
            let before = refusals(&node);
            let is_caching = |(what, _): &(String, Reply)| format!("+{what}") == CACHING;
            assert!(before.iter().any(is_caching), "{client:?}: {before:?}");
            cycle(&manager, &names).await;
            assert_eq!(refusals(&node), before, "{client:?}");
            let guard = manager.lock(names[0]).await.unwrap();
            guard.extend().await.unwrap();
            node.cli(&["DEL", names[0]]);
            within_limit("the end of the lease", guard.lost()).await;
            drop(guard);
            assert_clean(&manager).await;
        });
    }
}

/// The user may not use the key any more. What shares its scripts is not disturbed.
#[test]
fn a_key_that_is_forbidden_costs_no_other_call_of_its_script() {
    let node = RedisServer::start();
    let permit = |keys: &str| {
        let mut words = line("locker", ">pw");
        words.extend(["resetkeys", keys, "~quorate:*"].map(str::to_owned));
        assert_eq!(node.cli(&words).error(), None);
    };
    for client in Client::ALL {
        current_thread().block_on(async {
            permit("~orders:*");
            let manager = client.manager_at(&node.address_as("locker", "pw"));
            let names = ["orders:a1", "orders:b", "orders:a2"];
            let guards = names.map(|name| manager.lock(name).into_future());
            let guards = try_join_all(guards).await.unwrap();
            permit("~orders:a*");
            for _ in 0..2 {
                let extended = join_all(guards.iter().map(|guard| guard.extend())).await;
                let is_extended: Vec<_> = extended.iter().map(Result::is_ok).collect();
                assert_eq!(is_extended, [true, false, true], "{client:?}: {extended:?}");
            }
            let [one, forbidden, other] = <[_; 3]>::try_from(guards).unwrap();
            // They leave together. The one that is forbidden is sent again, which nobody awaits.
            let both = pin!(try_join(one.release(), other.release()));
            match select(both, pin!(forbidden.release())).await {
                Either::Left((released, _)) => {
                    assert!(released.is_ok(), "{client:?}: {released:?}")
                }
                Either::Right(_) => {
                    panic!("{client:?}: it waited for the release that is forbidden")
                }
            }
            assert_eq!(node.keys(), ["orders:b"], "{client:?}");
            node.flushall();
        });
    }
}

async fn problems(manager: &LockManager) -> Vec<String> {
    let check = manager.check().await;
    check.problems().map(|(_, problem)| problem.to_string()).collect()
}

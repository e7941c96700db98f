//! A node is replaced by the page *running the nodes*, behind the guard and in a group, with the lines of the page.

use std::path::Path;
use std::process::Command;

use quorate_tests::wait::eventually;
use quorate_tests::{Nodes, RedisServer};

use crate::support::{
    Dir, Done, QUORATE, Started, ask, quorate, run_until, with_nodes, with_quorum,
};

const PAGE: &str = include_str!("../../../quorate/docs/running-the-nodes.md");

fn addresses(nodes: &[&RedisServer]) -> Vec<String> {
    nodes.iter().map(|node| node.address()).collect()
}

/// Runs the line of the page that has the first of these texts, with what stands for each of them here, in the environment
/// of a process of the group.
fn by_the_page(dir: &Dir, pairs: &[(&str, String)]) -> Done {
    let lines: Vec<_> = PAGE.split('`').filter(|code| code.contains(pairs[0].0)).collect();
    let [line] = lines[..] else { panic!("{pairs:?}: {lines:?}") };
    let line = pairs.iter().fold(line.to_owned(), |line, (there, here)| {
        assert!(line.contains(there), "{there}: {line}");
        line.replace(there, here)
    });
    let folder = Path::new(QUORATE).parent().unwrap().display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    let mut command = with_nodes(Command::new("sh"), dir, &[]);
    command.args(["-c", &line]).env("PATH", path).env("QUORATE_GROUP", "payments");
    Started::spawn(command, dir).done()
}

/// A command of a process of the group that has this list.
fn in_group(dir: &Dir, nodes: &[&RedisServer], words: &[&str]) -> Done {
    let mut command = quorate(dir, &addresses(nodes));
    command.env("QUORATE_GROUP", "payments").args(words);
    Started::spawn(command, dir).done()
}

const WORK: [&str; 4] = ["run", "work", "--", "true"];

/// Runs commands with this list until all of its nodes keep it: a command may end before a late one does.
fn keep_list(dir: &Dir, nodes: &[&RedisServer]) {
    let names = |text: Vec<u8>| {
        let text = String::from_utf8(text).unwrap();
        // A line that begins with `-` is of a node that has left.
        let on_it = text.lines().filter(|line| !line.starts_with('-'));
        on_it.filter(|line| line.contains("127.0.0.1:")).count()
    };
    eventually("each node keeps the list", || {
        with_quorum(|| in_group(dir, nodes, &WORK)).assert_silent();
        let list = |node: &&RedisServer| node.get("quorate:group:payments").unwrap_or_default();
        nodes.iter().all(|node| names(list(node)) == nodes.len())
    });
}

/// What `nodes` says to a process of the group, when each node has had the time to answer.
fn report(dir: &Dir, nodes: &[&RedisServer]) -> Done {
    run_until(Done::is_answered, || in_group(dir, nodes, &["nodes"]))
}

#[test]
fn n5_a_dead_node_of_a_group_is_replaced_by_the_page() {
    let (nodes, dir) = (&Nodes::start_with(4, &RedisServer::builder().append_only()), &Dir::new());
    let [a, b, c, d] = nodes.iter().collect::<Vec<_>>()[..] else { unreachable!() };
    keep_list(dir, &[a, b, c]);
    a.kill();
    // Step 2. No other node may fail.
    let done = in_group(dir, &[a, b, c, d], &WORK);
    assert_eq!(done.code(), Some(0), "{done:?}");

    let new = &[b, c, d];
    let done = report(dir, new);
    assert_eq!(done.code(), Some(70), "{done:?}");
    let text = "not a node of the group payments";
    let strangers: Vec<_> = done.out.lines().filter(|line| line.contains(text)).collect();
    let [stranger] = strangers[..] else { panic!("{done:?}") };
    let name = stranger.strip_prefix("no vote  ").and_then(|rest| rest.split(": ").next());
    assert!(d.address().ends_with(name.unwrap()), "{stranger}");
    let list = format!("\"{}\"", addresses(new).join(" "));
    let done = run_until(Done::is_answered, || by_the_page(dir, &[("\"B C D\"", list.clone())]));
    assert_eq!(done.code(), Some(0), "{done:?}");

    // Step 4: all three vote.
    let done = report(dir, new);
    assert_eq!(done.code(), Some(0), "{done:?}");
    keep_list(dir, new);
}

/// The user may not write the list of one node.
#[test]
fn n5_a_list_that_a_node_does_not_keep_is_not_accepted() {
    let (nodes, dir) = (&Nodes::start_with(4, &RedisServer::builder().append_only()), &Dir::new());
    let [a, b, c, d] = nodes.iter().collect::<Vec<_>>()[..] else { unreachable!() };
    keep_list(dir, &[a, b, c]);
    let keys = ["~quorate:probe*", "~quorate:check*", "~quorate:node:*", "%R~quorate:group:*"];
    let user = [&["ACL", "SETUSER", "default", "resetkeys"][..], &keys].concat();
    assert_eq!(c.cli(&user).text(), "OK");
    let accept = || in_group(dir, &[b, c, d], &["nodes", "--accept"]);
    let done = run_until(Done::is_answered, accept);
    assert_eq!(done.code(), Some(70), "{done:?}");
    let text = "it does not keep the list of this client";
    let failed: Vec<_> = done.out.lines().filter(|line| line.contains(text)).collect();
    let [failed] = failed[..] else { panic!("{done:?}") };
    let name = c.address().trim_start_matches("redis://").to_owned();
    assert!(failed.contains(&name), "{failed}");
    assert_eq!(c.cli(&["ACL", "SETUSER", "default", "allkeys"]).text(), "OK");
    let done = run_until(Done::is_answered, accept);
    assert_eq!(done.code(), Some(0), "{done:?}");
}

#[test]
fn a_new_node_behind_the_guard_votes_at_once_after_the_line_of_the_page() {
    let (node, dir) = (&RedisServer::builder().append_only().start(), &Dir::new());
    let own = format!("QUORATE_NODES={}", node.address());
    let pairs = [("QUORATE_NODES=D", own), ("30s", "2s".to_owned())];
    let done = by_the_page(dir, &pairs);
    assert_eq!(done.code(), Some(0), "{done:?}");
    let group = node.get("quorate:group:payments");
    assert_eq!(group, None, "the group is switched off: the node would begin one of its own");
    let grants = |node: &RedisServer| {
        let done = ask(dir, &addresses(&[node]), &["--guard-max-ttl", "2s", "nodes"]);
        assert_eq!(done.out.contains("quarantine"), done.code() != Some(0), "{done:?}");
        done.code() == Some(0)
    };
    assert!(grants(node));
    assert!(!grants(&RedisServer::builder().append_only().start()), "without that line");
}

//! Passwords and tokens are shown nowhere, and a password in an option is warned of.

use std::fs;

use quorate_tests::{Authority, Certificate, Nodes, RedisServer};

use crate::support::{Dir, RENEWED_SOON, connects_again, hold, run};

const PASSWORD: &str = "correct-horse";
const WARNING: &str = "a password in --nodes";

#[test]
fn a_password_and_a_token_are_printed_nowhere() {
    let rules = format!("on >{PASSWORD} ~* +@all");
    let nodes = &Nodes::start_with(3, &RedisServer::builder().user("ann", &rules));
    let dir = &Dir::new();
    let right: Vec<_> = nodes.iter().map(|node| node.address_as("ann", PASSWORD)).collect();
    let wrong: Vec<_> = nodes.iter().map(|node| node.address_as("eve", PASSWORD)).collect();
    let broken = vec![format!("redis://ann:{PASSWORD}@127.0.0.1:99999")];
    dir.write("nodes", &right.join("\n"));

    let mut started = hold(dir, &right, "-v --fenced lock");
    let value = nodes.iter().find_map(|node| node.get("lock")).unwrap();
    let value = String::from_utf8(value).unwrap();
    let token = value.split(' ').next().unwrap().to_owned();
    let mut printed = Vec::new();
    if let Ok(arguments) =
        fs::read_to_string(format!("/proc/{}/cmdline", started.pid().as_raw_nonzero()))
    {
        printed.push(arguments);
    }
    let mut note = |addresses: &[String], words: &[&str], code| {
        let done = run(dir, addresses, words);
        assert_eq!(done.code(), Some(code), "{words:?}: {done:?}");
        printed.push(done.out + &done.err);
    };
    for (words, code) in [
        (&["inspect", "lock"][..], 0),
        (&["inspect", "--json", "lock"], 0),
        (&["nodes"], 70),
        (&["nodes", "--json"], 70),
    ] {
        note(&right, words, code);
    }
    note(&[], &["--nodes-file", "nodes", "-v", "inspect", "lock"], 0);
    note(&right, &["run", "-v", "--no-wait", "lock", "--", "true"], 75);
    note(&wrong, &["run", "-v", "lock", "--", "true"], 78);
    note(&wrong, &["nodes"], 69);
    note(&broken, &["run", "-v", "lock", "--", "true"], 78);
    note(&right, &["free", "--yes", "lock"], 0);
    dir.write("go", "");
    let done = started.done();
    assert!(done.err.contains("acquired"), "{done:?}");
    printed.push(done.out + &done.err);
    for text in &printed {
        assert!(!text.contains(PASSWORD) && !text.contains(&token), "{text}");
    }
}

const PAGE: &str = include_str!("../../../quorate/docs/nodes.md");

/// By the three steps of the page *nodes*: both passwords count for a time, the file is changed,
/// and the old one is removed. A run from before goes on.
#[test]
fn addresses_are_read_again_when_a_login_was_refused() {
    let builder = RedisServer::builder().user("locker", "on >old ~* +@all");
    let (nodes, dir) = (&Nodes::start_with(3, &builder), &Dir::new());
    let write = |password: &str| {
        let lines = nodes.iter().map(|node| node.address_as("locker", password) + "\n");
        dir.write("nodes", &lines.collect::<String>());
    };
    // The command of a step, with this password.
    let by_the_page = |there: &str, here: &str| {
        let commands: Vec<_> = PAGE.split('`').filter(|code| code.ends_with(there)).collect();
        let [command] = commands[..] else { panic!("{there}: {commands:?}") };
        let command = command.replace(&there[1..], here);
        for node in nodes.iter() {
            let words: Vec<_> = command.split(' ').collect();
            assert_eq!(node.cli(&words).text(), "OK", "{command}");
        }
    };
    write("old");
    let words = format!("--nodes-file nodes {RENEWED_SOON} --wait 1h a");
    let mut started = hold(dir, &[], &words);
    for [old, new] in [["old", "new"], ["new", "newer"]] {
        by_the_page(">NEW", new);
        write(new);
        by_the_page("<OLD", old);
        connects_again(nodes);
    }
    dir.write("go", "");
    let done = started.done();
    assert_eq!(done.code(), Some(0), "{done:?}");
    assert!(!done.err.contains("WRONGPASS"), "{done:?}");
}

/// What fails names the group and its sentinels, and neither of the two logins, nor anything of the key.
#[test]
fn the_logins_of_a_group_and_a_key_are_printed_nowhere() {
    let (authority, dir) = (&Authority::create(), &Dir::new());
    let Certificate { cert, key } = authority.certify("client");
    let [ca, cert, key] = [authority.ca(), cert, key].map(|file| file.to_str().unwrap().to_owned());
    let lines = fs::read_to_string(&key).unwrap();
    let options = ["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
    let sentinel = RedisServer::builder().tls_of(authority).start();
    let login = "sentinel_username=bob&sentinel_password=battery-staple";
    for (scheme, port, options) in
        [("redis", sentinel.port(), &[][..]), ("rediss", sentinel.tls_port(), &options)]
    {
        for place in [format!("localhost:{port}/orders"), format!("localhost:{port}/orders/x")] {
            let address = format!("{scheme}+sentinel://ann:{PASSWORD}@{place}?{login}");
            for words in [&["nodes"][..], &["run", "-v", "--wait", "10ms", "a", "--", "true"]] {
                let done = run(dir, std::slice::from_ref(&address), &[options, words].concat());
                let printed = format!("{}{}", done.out, done.err);
                assert!(done.code() >= Some(69) && printed.contains("orders"), "{done:?}");
                for secret in [PASSWORD, "battery-staple", lines.lines().nth(1).unwrap()] {
                    assert!(!printed.contains(secret), "{printed}");
                }
            }
        }
    }
}

#[test]
fn a_password_in_an_option_is_warned_of_and_nothing_else_is() {
    let dir = &Dir::new();
    let node = RedisServer::builder().user("ann", &format!("on >{PASSWORD} ~* +@all")).start();
    let socket = "redis+unix:///run/pass:word@x.sock";
    for (address, options, is_warned) in [
        (&*node.address_as("ann", PASSWORD), &[][..], true),
        (&node.address_as("ann", PASSWORD), &["-q"], false),
        (&node.address_as("", PASSWORD), &[], true),
        ("redis+unix:///run/r.sock?user=ann&pass=x", &[], true),
        ("redis+unix:///run/password.sock", &[], false),
        ("redis+sentinel://ann:word@127.0.0.1:1/orders", &[], true),
        ("redis+sentinel://127.0.0.1:1/orders?sentinel_password=word", &[], true),
        ("redis+sentinel://127.0.0.1:1/orders", &[], false),
        (socket, &[], false),
        (&node.address(), &[], false),
        ("redis://password.example.invalid", &[], false),
        ("rediss://[::1]:6379/1", &[], false),
    ] {
        let words = [&["--nodes", address][..], options, &["nodes"]].concat();
        let done = run(dir, &[], &words);
        assert_eq!(done.err.contains(WARNING), is_warned, "{address}: {done:?}");
        assert!(!done.err.contains(PASSWORD));
        // In the environment it is in its place.
        let done = run(dir, &[address.to_owned()], &["nodes"]);
        assert!(!done.err.contains(WARNING), "{address}: {done:?}");
    }
    // Of several addresses, whichever has it.
    let (plain, secret) = (&*node.address(), &*node.address_as("ann", PASSWORD));
    for (addresses, warnings) in [
        ([plain, "redis://localhost:1"], 0),
        ([plain, secret], 1),
        ([secret, plain], 1),
        ([secret, "redis://ann:correct-horse@localhost:1"], 1),
    ] {
        let done = run(dir, &[], &["--nodes", addresses[0], "--nodes", addresses[1], "nodes"]);
        assert_eq!(done.err.matches(WARNING).count(), warnings, "{addresses:?}: {done:?}");
    }
}

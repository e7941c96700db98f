//! Nodes that are reached over TLS, and the primaries of Sentinel groups.

use std::fs;
use std::process::Command;

use quorate_tests::peer::Peer;
use quorate_tests::{Authority, Certificate, Nodes, RedisServer, TEST_CA};

use crate::support::{
    Dir, Done, RENEWED_SOON, Started, ask, connects_again, hold, quorate, run, run_until,
};

/// The three files, as options or as variables.
fn files(authority: &Authority, name: &str) -> [String; 3] {
    let Certificate { cert, key } = authority.certify(name);
    [authority.ca(), cert, key].map(|file| file.to_str().unwrap().to_owned())
}

#[test]
fn nodes_are_reached_over_tls() {
    let dir = &Dir::new();
    let open = Nodes::start_with(3, &RedisServer::builder().tls());
    let addresses: Vec<_> = open.iter().map(RedisServer::tls_address).collect();
    // On a busy machine the first connections may be too slow for a round, which is warned of.
    let words = ["--tls-ca", TEST_CA, "run", "--wait", "1h", "a", "--", "true"];
    assert_eq!(run(dir, &addresses, &words).code(), Some(0));
    let seen = ask(dir, &addresses, &["inspect", "a", "--tls-ca", TEST_CA]);
    assert!(seen.out.contains("free on 3 of 3 nodes"), "{seen:?}");
    let unknown = ask(dir, &addresses, &["run", "--wait", "1h", "a", "--", "true"]);
    assert!(unknown.code() == Some(78) && unknown.err.contains("certificate"), "{unknown:?}");
    let plain: Vec<_> = open.iter().map(|node| node.address().replace("redis", "rediss")).collect();
    let without = ask(dir, &plain, &["run", "--wait", "1h", "a", "--", "true"]);
    assert!(without.code() == Some(78) && without.err.contains("speaks no TLS"), "{without:?}");
}

/// In a build with fred, whose features bring both, nothing shows it.
#[test]
fn a_build_of_the_command_alone_speaks_both_versions_of_tls() {
    let words = "tree --offline --locked -p quorate-cli -e normal,features -i rustls";
    let mut cargo = Command::new(env!("CARGO"));
    let output = cargo.args(words.split(' ')).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let tree = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(tree.contains("rustls feature \"tls12\""), "{tree}");
}

/// The certificate of the client is replaced during a run, and the nodes refuse the one from
/// before.
#[test]
fn certificates_are_read_again_when_one_was_refused() {
    let (before, now, dir) = (&Authority::create(), &Authority::create(), &Dir::new());
    let nodes = Nodes::start_with(3, &RedisServer::builder().tls_of(before));
    let addresses: Vec<_> = nodes.iter().map(RedisServer::tls_address).collect();
    let copy = |authority: &Authority| {
        let [_, cert, key] = files(authority, "client");
        for (from, to) in [(cert, "own.crt"), (key, "own.key")] {
            fs::copy(from, dir.file(to)).unwrap();
        }
    };
    copy(before);
    let ca = before.ca();
    let options = format!("--tls-ca {} --tls-cert own.crt --tls-key own.key", ca.display());
    let mut started = hold(dir, &addresses, &format!("{options} {RENEWED_SOON} --wait 1h a"));
    copy(now);
    for node in nodes.iter() {
        let now = now.ca();
        let words = ["CONFIG", "SET", "tls-ca-cert-file", now.to_str().unwrap()];
        assert_eq!(node.cli(&words).text(), "OK");
    }
    connects_again(&nodes);
    dir.write("go", "");
    let done = started.done();
    assert_eq!(done.code(), Some(0), "{done:?}");
}

#[test]
fn a_certificate_of_the_client_is_shown_to_nodes_that_want_one() {
    let (authority, dir) = (&Authority::create(), &Dir::new());
    let closed = Nodes::start_with(3, &RedisServer::builder().tls_of(authority));
    let addresses: Vec<_> = closed.iter().map(RedisServer::tls_address).collect();
    let [ca, cert, key] = &files(authority, "client");
    let options = ["--tls-ca", ca, "--tls-cert", cert, "--tls-key", key];
    let words = ["run", "--wait", "1h", "a", "--", "true"];
    assert_eq!(run(dir, &addresses, &[&options[..], &words].concat()).code(), Some(0));
    let with = |values: [&str; 3], wait| {
        let mut command = quorate(dir, &addresses);
        for (name, value) in
            ["QUORATE_TLS_CA", "QUORATE_TLS_CERT", "QUORATE_TLS_KEY"].iter().zip(values)
        {
            command.env(name, value);
        }
        command.args(["run", "--wait", wait, "a", "--", "true"]);
        Started::spawn(command, dir).done()
    };
    assert_eq!(with([ca, cert, key], "30s").code(), Some(0));
    dir.write("empty.pem", "");
    dir.write("broken.pem", "-----BEGIN CERTIFICATE-----\n");
    let other = authority.certify("other").key;
    for (values, code, why) in [
        (["", cert, ""], 64, "--tls-cert and --tls-key need each other"),
        (["", "", key], 64, "--tls-cert and --tls-key need each other"),
        (["/no/ca.pem", cert, key], 64, "/no/ca.pem: No such file"),
        ([ca, "/no/cert.pem", key], 64, "/no/cert.pem: No such file"),
        ([ca, cert, "/no/key.pem"], 64, "/no/key.pem: No such file"),
        (["empty.pem", cert, key], 64, "empty.pem: no CERTIFICATE in PEM"),
        ([ca, cert, cert], 64, "client.crt: no PRIVATE KEY in PEM"),
        (["broken.pem", cert, key], 64, "the certificates for TLS, or the key, are not PEM"),
        ([ca, cert, other.to_str().unwrap()], 78, "KeyMismatch"),
        ([ca, "", ""], 78, "CertificateRequired"),
    ] {
        let done = run_until(Done::is_answered, || with(values, "30s"));
        assert!(done.code() == Some(code) && done.err.contains(why), "{why}: {done:?}");
    }
}

/// Else an address without TLS would send its password for all to read. A variable may stand for other nodes as well.
#[test]
fn options_for_tls_need_an_address_with_tls() {
    let (nodes, dir) = (&Nodes::start(1), &Dir::new());
    let plain = &nodes.addresses();
    let group = &vec![format!("redis+sentinel://{}/orders", Peer::nowhere())];
    let authority = Authority::create();
    let [ca, cert, key] = &files(&authority, "client");
    for (addresses, options) in [
        (plain, &["--tls-ca", ca][..]),
        (plain, &["--tls-cert", cert, "--tls-key", key]),
        (group, &["--tls-ca", ca]),
    ] {
        for words in [[options, &["inspect", "a"]].concat(), [&["inspect", "a"], options].concat()]
        {
            let done = run(dir, addresses, &words);
            assert_eq!(done.code(), Some(64), "{words:?}: {done:?}");
            assert!(done.err.contains("need an address with TLS: rediss://"), "{done:?}");
        }
    }
    let mut command = quorate(dir, plain);
    command.args(["run", "a", "--", "true"]).env("QUORATE_TLS_CA", ca);
    Started::spawn(command, dir).done().assert_silent();
    // One of them has it, whichever.
    let (plain, tls) = (plain[0].clone(), format!("REDISS://{}", Peer::nowhere()));
    for mixed in [[plain.clone(), tls.clone()], [tls, plain]] {
        let done = run(dir, &mixed, &["--tls-ca", ca, "inspect", "a"]);
        assert_eq!(done.code(), Some(69), "{done:?}");
    }
}

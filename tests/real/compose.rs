//! `examples/compose.yaml`: valid YAML, and arguments with which a node runs as the file promises.

use std::collections::BTreeSet;
use std::time::Duration;

use quorate_tests::{Nodes, RedisServer};
use yaml_rust2::{Yaml, YamlLoader};

use crate::client::{close, with_each_client};

const TEXT: &str = include_str!("../../examples/compose.yaml");

fn file() -> Yaml {
    let mut documents = YamlLoader::load_from_str(TEXT).unwrap();
    assert_eq!(documents.len(), 1);
    documents.remove(0)
}

fn services(file: &Yaml) -> Vec<(&str, &Yaml)> {
    let services = file["services"].as_hash().unwrap();
    services.iter().map(|(name, service)| (name.as_str().unwrap(), service)).collect()
}

/// A list of strings; a number or a truth value in it is a missing pair of quotes.
fn strings(list: &Yaml) -> Vec<&str> {
    let text = |item| Yaml::as_str(item).unwrap_or_else(|| panic!("{item:?} is no string"));
    list.as_vec().unwrap().iter().map(text).collect()
}

/// `valkey-server --name value …` as pairs.
fn directives(file: &Yaml) -> Vec<(&str, &str)> {
    let (_, first) = services(file)[0];
    let words = strings(&first["command"]);
    let [program, arguments @ ..] = &words[..] else { panic!("no command") };
    assert!(["redis-server", "valkey-server"].contains(program), "{program}");
    let (pairs, rest) = arguments.as_chunks::<2>();
    assert!(rest.is_empty(), "{rest:?} is no pair of a name and a value");
    pairs
        .iter()
        .map(|[name, value]| (name.strip_prefix("--").unwrap_or_else(|| panic!("{name}")), *value))
        .collect()
}

#[test]
fn five_nodes_have_the_same_settings_and_ports_and_disks_of_their_own() {
    let file = file();
    let services = services(&file);
    assert_eq!(services.len(), 5);
    let one = |service: &Yaml, name: &str| match strings(&service[name])[..] {
        [only] => only.to_owned(),
        ref others => panic!("{others:?}"),
    };
    let (mut ports, mut disks) = (BTreeSet::new(), BTreeSet::new());
    for (name, service) in &services {
        assert_eq!(service["command"], services[0].1["command"], "{name}");
        assert_eq!(service["image"], services[0].1["image"], "{name}");
        assert_eq!(service["mem_limit"].as_str(), Some("512m"), "{name}");
        assert_eq!(service["restart"].as_str(), Some("unless-stopped"), "{name}");
        let port = one(service, "ports");
        let port = port.strip_prefix("127.0.0.1:").and_then(|port| port.strip_suffix(":6379"));
        ports.insert(port.unwrap().to_owned());
        let disk = one(service, "volumes");
        disks.insert(disk.strip_suffix(":/data").unwrap().to_owned());
    }
    let declared = file["volumes"].as_hash().unwrap().keys();
    assert_eq!(disks, declared.map(|name| name.as_str().unwrap().to_owned()).collect());
    assert_eq!(disks.len(), 5);

    let command = TEXT.lines().find_map(|line| line.split_once("cargo run --example redis -- "));
    let addresses = command.unwrap().1.split(' ');
    let named = addresses.map(|address| address.strip_prefix("redis://127.0.0.1:").unwrap());
    assert_eq!(named.map(str::to_owned).collect::<BTreeSet<_>>(), ports);
    assert_eq!(ports.len(), 5);
}

#[test]
fn a_node_with_these_arguments_keeps_its_locks_and_evicts_nothing() {
    let file = file();
    let directives = directives(&file);
    let builder = directives
        .iter()
        .fold(RedisServer::builder(), |builder, (name, value)| builder.config(name, &[value]));
    let nodes = &Nodes::start_with(5, &builder);
    for node in nodes {
        let setting = |name: &str| node.cli(&["CONFIG", "GET", name]).array()[1].text();
        for (name, value) in [
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("save", ""),
            ("maxmemory", "268435456"),
            ("maxmemory-policy", "noeviction"),
        ] {
            assert_eq!(setting(name), value, "{name}");
        }
        assert_eq!(directives.len(), 5, "each is looked at above");
    }
    with_each_client(|client| async move {
        let manager = client.builder(nodes).build().unwrap();
        let guard = manager.lock("orders:42").await.unwrap();
        guard.release().await.unwrap();
        close(&manager, nodes).await;
    });

    // What the settings are for: a node that is killed has the lock when it is back.
    nodes[0].cli(&["SET", "orders:42", "a token", "NX", "PX", "600000"]);
    nodes[0].kill();
    nodes[0].restart();
    assert_eq!(nodes[0].get("orders:42").as_deref(), Some(&b"a token"[..]));
    assert!(nodes[0].pttl("orders:42") > Duration::from_secs(60).as_millis() as i64);
}

//! `examples/compose.yaml`: valid YAML, and arguments with which a node runs as the file promises.

use std::collections::BTreeSet;

use quorate_tests::RedisServer;
use yaml_rust2::{Yaml, YamlLoader};

const TEXT: &str = include_str!("../../examples/compose.yaml");

/// The name and the settings of each node.
fn services(file: &Yaml) -> Vec<(&str, &Yaml)> {
    let services = file["services"].as_hash().unwrap();
    services.iter().map(|(name, service)| (name.as_str().unwrap(), service)).collect()
}

/// A list of strings; a number or a truth value in it is a missing pair of quotes.
fn strings(list: &Yaml) -> Vec<&str> {
    let text = |item| Yaml::as_str(item).unwrap_or_else(|| panic!("{item:?} is no string"));
    list.as_vec().unwrap().iter().map(text).collect()
}

#[test]
fn five_nodes_have_the_same_settings_and_ports_and_disks_of_their_own() {
    let file = YamlLoader::load_from_str(TEXT).unwrap().remove(0);
    let services = services(&file);
    let (mut ports, mut disks) = (BTreeSet::new(), BTreeSet::new());
    for (name, service) in &services {
        for (setting, value) in [
            ("command", &services[0].1["command"]),
            ("image", &services[0].1["image"]),
            ("mem_limit", &Yaml::String("512m".to_owned())),
            ("restart", &Yaml::String("unless-stopped".to_owned())),
        ] {
            assert_eq!(&service[setting], value, "{name}");
        }
        let [port] = strings(&service["ports"])[..] else { panic!("{name}") };
        let port = port.strip_prefix("127.0.0.1:").and_then(|port| port.strip_suffix(":6379"));
        ports.insert(port.unwrap());
        let [disk] = strings(&service["volumes"])[..] else { panic!("{name}") };
        disks.insert(disk.strip_suffix(":/data").unwrap());
    }
    assert_eq!([services.len(), ports.len(), disks.len()], [5; 3]);
    let declared = file["volumes"].as_hash().unwrap().keys();
    assert_eq!(disks, declared.map(|name| name.as_str().unwrap()).collect());
    let command = TEXT
        .lines()
        .find_map(|line| line.split_once("cargo run --example redis --features redis -- "));
    let addresses = command.unwrap().1.split(' ');
    let named = addresses.map(|address| address.strip_prefix("redis://127.0.0.1:").unwrap());
    assert_eq!(named.collect::<BTreeSet<_>>(), ports);
}

#[test]
fn a_node_with_these_arguments_keeps_its_locks_and_evicts_nothing() {
    let file = YamlLoader::load_from_str(TEXT).unwrap().remove(0);
    let words = strings(&services(&file)[0].1["command"]);
    assert!(["redis-server", "valkey-server"].contains(&words[0]), "{words:?}");
    let (pairs, rest) = words[1..].as_chunks::<2>();
    assert!(rest.is_empty(), "{rest:?} is no pair of a name and a value");
    let builder = pairs.iter().fold(RedisServer::builder(), |builder, [name, value]| {
        builder.config(name.strip_prefix("--").unwrap(), &[value])
    });
    let settings = [
        ["--appendonly", "yes"],
        ["--appendfsync", "always"],
        ["--save", ""],
        ["--maxmemory", "256mb"],
        ["--maxmemory-policy", "noeviction"],
    ];
    assert_eq!(pairs, settings);
    let node = builder.start();
    // What the settings are for: a node that is killed has the lock when it is back.
    node.cli(&["SET", "orders:42", "a token", "NX", "PX", "600000"]);
    node.restart();
    assert_eq!(node.get("orders:42").as_deref(), Some(&b"a token"[..]));
    assert!(node.pttl("orders:42") > 60_000);
}

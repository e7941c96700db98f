//! Addresses: what each client takes and refuses.

use quorate::fred::ConnectError;
use quorate::fred::fred::types::config::Config;

/// The table of the documentation of `quorate`. No error shows the password.
#[test]
fn the_clients_take_the_same_addresses_but_for_the_differences_that_are_told() {
    for (address, redis, fred) in [
        ("redis://ann:pass@a.example:7000/255", true, true),
        ("VALKEY://:pass@[::1]", true, true),
        ("redis://a.example/256", true, false),
        ("redis://a.example/?protocol=resp3", true, false),
        ("redis://0.0.0.0", false, true),
        ("redis://[::]", false, true),
        ("unix:///run/redis.sock", true, true),
        ("unix:///run/redis.sock?user=ann&pass=pass&db=3", true, false),
        ("unix://ann:pass@/run/redis.sock", false, true),
        // redis-rs would ignore the login, and both the host.
        ("unix://ann:pass@localhost/run/redis.sock", false, false),
        ("unix://run/redis.sock", false, false),
        ("redis://a.example?db=3", false, false),
        ("redis://:s3cret@127.0.0.1:notaport", false, false),
        ("", false, false),
        ("not an address", false, false),
    ] {
        let told = [
            (redis, quorate::redis::connect([address]).map(drop)),
            (fred, quorate::fred::connect([address]).map(drop)),
        ];
        for (is_taken, told) in told {
            assert_eq!(told.is_ok(), is_taken, "{address}: {told:?}");
            assert!(!format!("{told:?}").contains("s3cret"), "{told:?}");
        }
    }
}

#[test]
fn a_configuration_of_fred_that_is_none_of_one_node_is_refused() {
    let build = |url: &str| {
        let config = Config::from_url(url).unwrap();
        quorate::fred::builder().build(config).unwrap_err()
    };
    let group = build("redis-cluster://:hunter2@localhost:1");
    assert!(matches!(group, ConnectError::NotOneNode { .. }), "{group}");
    assert!(!format!("{group} {group:?}").contains("hunter2"));
    let lacking = build("redis://ann@localhost:1");
    assert!(matches!(lacking, ConnectError::InvalidAddress { .. }), "{lacking}");
    assert!(lacking.to_string().ends_with("a user needs a password; any will do for nopass"));
}

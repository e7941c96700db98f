//! Users and passwords of any characters in an address.

use std::future::IntoFuture;

use quorate_tests::RedisServer;
use quorate_tests::wait::within_limit;

use crate::client::{Client, assert_clean, on_tokio, unhurried};

/// fred sends the login as an inline command, which has quotes and ends with the line.
#[test]
fn fred_takes_passwords_beyond_ascii() {
    let resp3 = RedisServer::builder().user("default", "on nopass ~* +@all");
    let resp2 = resp3.clone().config("rename-command", &["HELLO", ""]).start();
    let resp3 = resp3.start();
    on_tokio(async {
        for (password, encoded) in [
            ("p\u{e4}ssw\u{f6}rd\u{1f511}", "p%C3%A4ssw%C3%B6rd%F0%9F%94%91"),
            ("p\u{e4}ssw\u{f6}rd\u{1f511}", "p\u{e4}ssw\u{f6}rd\u{1f511}"),
            ("a\u{a0}b\u{2003}c\u{85}d", "a%C2%A0b%E2%80%83c%C2%85d"),
            ("a b", "a%20b"),
            ("\"a\\x62\"", "%22a%5Cx62%22"),
            ("it's", "it's"),
            ("a\r\nFLUSHALL", "a%0D%0AFLUSHALL"),
        ] {
            let nodes = [&resp3, &resp2].into_iter();
            for (node, user) in nodes.flat_map(|node| [(node, "default"), (node, "j\u{f6}rg")]) {
                let rules = ["~*", "+@all", "on", "resetpass", &format!(">{password}")];
                let words = [&["ACL", "SETUSER", user][..], &rules].concat();
                assert_eq!(node.cli(&words).text(), "OK");
                let login = if user == "default" { "" } else { user };
                let address = format!("redis://{login}:{encoded}@127.0.0.1:{}/3", node.port());
                for client in Client::ALL {
                    let nodes = client.connect(std::slice::from_ref(&address));
                    let manager = unhurried(nodes).build().unwrap();
                    let request = manager.lock("r").no_wait().into_future();
                    let guard = within_limit("a lock", request).await;
                    let guard =
                        guard.unwrap_or_else(|error| panic!("{client:?}, {address}: {error}"));
                    guard.release().await.unwrap();
                    assert_clean(&manager).await;
                }
            }
        }
    });
}

//! What a node does on a real server, where fred makes a difference.
#![allow(clippy::unwrap_used, clippy::future_not_send, reason = "tests")]

#[cfg(test)]
mod node;
#[cfg(all(test, feature = "tls-rustls"))]
mod tls;

use std::time::Duration;

use quorate_core::runtime::os_random;
use quorate_core::{Claim, Key, Resource, Token, Ttl};
use quorate_fred::FredNode;
use quorate_tests::wait::LIMIT;

fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

fn claim(name: &str) -> Claim {
    let ttl = Ttl::try_from(Duration::from_secs(3600)).unwrap();
    Claim::new([key(name)], Token::draw(os_random).unwrap(), ttl)
}

/// Only a broken node takes that long to connect.
fn node_at(address: &str) -> FredNode {
    quorate_fred::builder().connect_timeout(LIMIT).connect([address]).unwrap().remove(0)
}

//! Claims for unit tests.

use std::time::Duration;

use quorate_core::backend::{Claim, Ttl};
use quorate_core::resource::{Key, Resource, Token};

pub(crate) fn key(name: &str) -> Key {
    Key::new(b"", &Resource::new(name).unwrap())
}

/// A claim whose token is made of the names.
pub(crate) fn claim<const N: usize>(names: [&str; N], ttl: Duration) -> Claim {
    claim_of(b'0', names, ttl)
}

/// A claim of a holder with a token of its own.
pub(crate) fn claim_of<const N: usize>(holder: u8, names: [&str; N], ttl: Duration) -> Claim {
    let token = Token::draw(|bytes| {
        bytes.fill(holder);
        Ok(())
    });
    Claim::new(names.map(key), token.unwrap(), Ttl::try_from(ttl).unwrap())
}

//! A node, claims and calls for unit tests.

use std::sync::Arc;
use std::time::Duration;

use quorate_core::LockBackend as _;
use quorate_core::Runtime as _;
use quorate_core::backend::{Asked, Claim, Operation, Ttl, ask};
use quorate_core::resource::{Key, Resource, Token};

use crate::{MemoryNode, Sim};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const TTL: Duration = Duration::from_secs(60);

pub(crate) fn world() -> (Sim, MemoryNode) {
    let sim = Sim::new(1);
    (sim.clone(), MemoryNode::new("node", sim))
}

/// Begins a call.
pub(crate) fn begin(node: &MemoryNode, operation: Operation) -> Asked {
    let runtime = node.runtime();
    ask(operation, runtime.now(), |call| Arc::new(node.clone()).begin(call, &runtime))
}

pub(crate) fn watching() -> Operation {
    Operation::Watch { key: key("k"), entry: None }
}

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

//! What a node is asked to lock.

use std::sync::Arc;

use crate::algorithm::lease::Ttl;
use crate::resource::{Key, Token};

/// The keys of an attempt, its token, and the ttl.
///
/// Cheap to clone. `Debug` shows no token.
#[derive(Clone, Debug)]
pub struct Claim {
    keys: Arc<[Key]>,
    token: Token,
    ttl: Ttl,
}

impl Claim {
    /// A claim on all of `keys`. A claim on none would be granted by every node at any time.
    #[must_use]
    pub fn new(keys: impl Into<Arc<[Key]>>, token: Token, ttl: Ttl) -> Self {
        Self { keys: keys.into(), token, ttl }
    }

    /// The same keys and token with another ttl.
    #[must_use]
    pub fn with_ttl(&self, ttl: Ttl) -> Self {
        Self { keys: Arc::clone(&self.keys), token: self.token.clone(), ttl }
    }

    /// The keys, all of which are meant. No key stands there twice.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The value that a node stores at each key.
    #[must_use]
    pub const fn token(&self) -> &Token {
        &self.token
    }

    /// How long the node keeps the keys.
    #[must_use]
    pub const fn ttl(&self) -> Ttl {
        self.ttl
    }
}

//! What a node is asked to lock.

use std::sync::Arc;

use crate::algorithm::lease::Ttl;
use crate::resource::{Key, Token};

/// The way in which keys are held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a writer, or readers")]
pub enum Mode {
    /// By one holder. The value of each key is its token.
    #[default]
    Exclusive,
    /// By any number of readers. Each key is an ordered set: a member is the token of a reader, and
    /// its score is when the reader expires by the clock of the node.
    Shared,
}

/// The keys of an attempt, its token, the ttl, and the mode.
///
/// Cheap to clone. `Debug` shows no token.
#[derive(Clone, Debug)]
pub struct Claim {
    keys: Arc<[Key]>,
    token: Token,
    ttl: Ttl,
    mode: Mode,
}

impl Claim {
    /// An exclusive claim on all of `keys`. A claim on none would be granted by every node at any
    /// time.
    #[must_use]
    pub fn new(keys: impl Into<Arc<[Key]>>, token: Token, ttl: Ttl) -> Self {
        Self { keys: keys.into(), token, ttl, mode: Mode::Exclusive }
    }

    /// The same keys, token and mode with another ttl.
    #[must_use]
    pub fn with_ttl(&self, ttl: Ttl) -> Self {
        Self { ttl, ..self.clone() }
    }

    /// The same claim in another mode.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// The keys, all of which are meant. No key stands there twice.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The same keys, shared.
    pub(crate) const fn shared_keys(&self) -> &Arc<[Key]> {
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

    /// Whether readers share the keys. Without
    /// [`Capabilities::SHARED`](super::Capabilities::SHARED), an acquire of such a claim fails as
    /// unsupported.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }
}

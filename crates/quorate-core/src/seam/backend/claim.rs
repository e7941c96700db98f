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
    common: Arc<Common>,
    ttl: Ttl,
}

/// What all calls of an attempt share.
#[derive(Clone, Debug)]
struct Common {
    keys: Arc<[Key]>,
    token: Token,
    mode: Mode,
}

impl Claim {
    /// An exclusive claim on all of `keys`. A claim on none would be granted by every node at any
    /// time.
    #[must_use]
    pub fn new(keys: impl Into<Arc<[Key]>>, token: Token, ttl: Ttl) -> Self {
        let common = Common { keys: keys.into(), token, mode: Mode::Exclusive };
        Self { common: Arc::new(common), ttl }
    }

    /// The same keys, token and mode with another ttl.
    #[must_use]
    pub fn with_ttl(&self, ttl: Ttl) -> Self {
        Self { common: Arc::clone(&self.common), ttl }
    }

    /// The same claim in another mode.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        Arc::make_mut(&mut self.common).mode = mode;
        self
    }

    /// The keys, all of which are meant. No key stands there twice.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.common.keys
    }

    /// The same keys, shared.
    pub(crate) fn shared_keys(&self) -> &Arc<[Key]> {
        &self.common.keys
    }

    /// The value that a node stores at each key.
    #[must_use]
    pub fn token(&self) -> &Token {
        &self.common.token
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
    pub fn mode(&self) -> Mode {
        self.common.mode
    }
}

//! The runtime of a client's manager: its clock, a wall clock of its own, and a look at attempts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quorate_core::runtime::{BoxFuture, EntropyError};
use quorate_core::{Runtime, Token};
use quorate_memory::{Sim, SimClient};

use crate::history::AttemptId;
/// An attempt at a lock with a fencing token, as it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a part of the tests")]
pub struct Begun {
    /// Which.
    pub attempt: AttemptId,
    /// When.
    pub at: Duration,
    /// What the wall clock said.
    pub hint: u64,
}

/// A client, and what its manager asks of it. Clones are the same process.
#[derive(Clone, Debug)]
pub struct Process {
    client: SimClient,
    sim: Sim,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug)]
struct Seen {
    /// How far the wall clock is ahead of the right time, in microseconds.
    ahead: i64,
    drawn: Option<AttemptId>,
    begun: Option<Begun>,
}

impl Process {
    /// A process of `client` with a wall clock that is right.
    #[must_use]
    pub fn new(sim: &Sim, client: &SimClient) -> Self {
        let seen = Arc::new(Mutex::new(Seen { ahead: 0, drawn: None, begun: None }));
        Self { client: client.clone(), sim: sim.clone(), seen }
    }

    /// The client.
    #[must_use]
    pub const fn client(&self) -> &SimClient {
        &self.client
    }

    /// Sets the wall clock so far ahead of the right time, in microseconds.
    pub fn set_wall_clock(&self, ahead: i64) {
        self.seen().ahead = ahead;
    }

    /// The last attempt that asked for a fencing token.
    #[must_use]
    pub fn begun(&self) -> Option<Begun> {
        self.seen().begun
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runtime for Process {
    fn now(&self) -> Instant {
        self.client.now()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        self.client.sleep_until(deadline)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.client.spawn(task);
    }

    /// Whatever is as long as a token is one: an attempt begins.
    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        self.client.fill_random(bytes)?;
        if bytes.len() == Token::ENTROPY {
            let token = Token::draw(|random| {
                random.copy_from_slice(bytes);
                Ok(())
            })?;
            self.seen().drawn = Some(AttemptId::of(token.as_bytes()));
        }
        Ok(())
    }

    /// Asked for by an attempt with a fencing token, as it begins.
    fn unix_micros(&self) -> u64 {
        let mut seen = self.seen();
        let hint = self.sim.unix_micros().saturating_add_signed(seen.ahead);
        let at = self.sim.elapsed();
        seen.begun = seen.drawn.map(|attempt| Begun { attempt, at, hint });
        hint
    }
}

//! The runtime of a client's manager: its clock, a wall clock of its own, and a look at attempts.
//!
//! Several tasks share one manager. What a task begins is known by the poll in which it begins.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use quorate_core::Runtime;
use quorate_core::resource::Token;
use quorate_core::runtime::{BoxFuture, EntropyError};
use quorate_memory::{Sim, SimClient};

use crate::history::{AttemptId, Begun};
use crate::world::lock;

/// A client, and what its manager asks of it. Clones are the same process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    client: SimClient,
    sim: Sim,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    ahead: i64,  // How far the wall clock is ahead of the right time, in microseconds.
    task: usize, // The task that is polled; 0 for all that have no number.
    all: HashSet<AttemptId>,
    /// What each task has drawn, and its last attempt at a lock with a fencing token.
    tasks: HashMap<usize, (Vec<AttemptId>, Option<Begun>)>,
}

impl Process {
    pub(crate) fn new(sim: &Sim, client: SimClient) -> Self {
        Self { client, sim: sim.clone(), seen: Arc::default() }
    }

    pub(crate) const fn client(&self) -> &SimClient {
        &self.client
    }

    pub(crate) fn set_wall_clock(&self, ahead: i64) {
        lock(&self.seen).ahead = ahead;
    }

    pub(crate) async fn run_task<T>(self, number: usize, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|context| {
            let before = std::mem::replace(&mut lock(&self.seen).task, number);
            let polled = future.as_mut().poll(context);
            lock(&self.seen).task = before;
            polled
        })
        .await
    }

    /// The last attempt of the task that is polled which asked for a fencing token.
    pub(crate) fn begun(&self) -> Option<Begun> {
        lock(&self.seen).task().1
    }

    /// The attempts that the task which is polled has begun since this was last asked.
    pub(crate) fn take_drawn(&self) -> Vec<AttemptId> {
        std::mem::take(&mut lock(&self.seen).task().0)
    }

    pub(crate) fn all_drawn(&self) -> HashSet<AttemptId> {
        lock(&self.seen).all.clone()
    }
}

impl Seen {
    fn task(&mut self) -> &mut (Vec<AttemptId>, Option<Begun>) {
        self.tasks.entry(self.task).or_default()
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
            let attempt = AttemptId::of(token.as_bytes());
            let mut seen = lock(&self.seen);
            seen.all.insert(attempt);
            seen.task().0.push(attempt);
        }
        Ok(())
    }

    /// Asked for by an attempt with a fencing token, as it begins.
    fn unix_micros(&self) -> u64 {
        let mut seen = lock(&self.seen);
        let hint = self.sim.unix_micros().saturating_add_signed(seen.ahead);
        let at = self.sim.elapsed();
        let (drawn, begun) = seen.task();
        *begun = drawn.last().map(|attempt| Begun { attempt: *attempt, at, hint });
        hint
    }
}

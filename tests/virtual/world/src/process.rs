//! The runtime of a client's manager: its clock, a wall clock of its own, and a look at attempts.
//!
//! Several tasks share one manager. What a task begins is known by the poll in which it begins.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quorate_core::Runtime;
use quorate_core::resource::Token;
use quorate_core::runtime::{BoxFuture, EntropyError};
use quorate_memory::{Sim, SimClient};

use crate::history::AttemptId;

/// An attempt at a lock with a fencing token, as it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    /// Which.
    pub(crate) attempt: AttemptId,
    /// When.
    pub(crate) at: Duration,
    /// What the wall clock said.
    pub(crate) hint: u64,
}

/// A client, and what its manager asks of it. Clones are the same process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    client: SimClient,
    sim: Sim,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug)]
struct Seen {
    /// How far the wall clock is ahead of the right time, in microseconds.
    ahead: i64,
    /// The task that is polled; 0 for all that have no number.
    task: usize,
    all: HashSet<AttemptId>,
    tasks: HashMap<usize, Task>,
}

/// What one task began.
#[derive(Debug, Default)]
struct Task {
    drawn: Vec<AttemptId>,
    begun: Option<Begun>,
}

impl Process {
    /// A process of `client` with a wall clock that is right.
    pub(crate) fn new(sim: &Sim, client: &SimClient) -> Self {
        let seen = Arc::new(Mutex::new(Seen {
            ahead: 0,
            task: 0,
            all: HashSet::new(),
            tasks: HashMap::new(),
        }));
        Self { client: client.clone(), sim: sim.clone(), seen }
    }

    /// The client.
    pub(crate) const fn client(&self) -> &SimClient {
        &self.client
    }

    /// Sets the wall clock so far ahead of the right time, in microseconds.
    pub(crate) fn set_wall_clock(&self, ahead: i64) {
        self.seen().ahead = ahead;
    }

    /// Runs `future` as the task of this number.
    pub(crate) async fn run_task<T>(self, number: usize, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        poll_fn(|context| {
            let before = std::mem::replace(&mut self.seen().task, number);
            let polled = future.as_mut().poll(context);
            self.seen().task = before;
            polled
        })
        .await
    }

    /// The last attempt of the task that is polled which asked for a fencing token.
    pub(crate) fn begun(&self) -> Option<Begun> {
        self.seen().task().begun
    }

    /// The attempts that the task which is polled has begun since this was last asked.
    pub(crate) fn take_drawn(&self) -> Vec<AttemptId> {
        std::mem::take(&mut self.seen().task().drawn)
    }

    /// All attempts that the process has begun.
    pub(crate) fn all_drawn(&self) -> HashSet<AttemptId> {
        self.seen().all.clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn task(&mut self) -> &mut Task {
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
            let mut seen = self.seen();
            seen.all.insert(attempt);
            seen.task().drawn.push(attempt);
        }
        Ok(())
    }

    /// Asked for by an attempt with a fencing token, as it begins.
    fn unix_micros(&self) -> u64 {
        let mut seen = self.seen();
        let hint = self.sim.unix_micros().saturating_add_signed(seen.ahead);
        let at = self.sim.elapsed();
        let task = seen.task();
        task.begun = task.drawn.last().map(|attempt| Begun { attempt: *attempt, at, hint });
        hint
    }
}

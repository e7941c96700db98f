//! A node in memory: the semantics of the protocol, and the network between it and the caller.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use quorate_core::{BackendError, BackendErrorKind, Claim, Identify, LockBackend, Runtime, Vote};

use crate::fault::Fault;
use crate::reply::{Reply, Sender, reply};
use crate::store::{Store, Value};

/// A node that lives in this process: the same answers as a Redis node, and faults on demand.
///
/// Clones are handles of the same node. Time is that of the [`Runtime`] it is made with: under a
/// [`Sim`](crate::Sim) nothing ever takes real time.
///
/// A request leaves with the first poll of a call and is carried out even if the caller drops the
/// future, as it is with a real node.
#[derive(Clone)]
pub struct MemoryNode {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    runtime: Arc<dyn Runtime>,
    state: Mutex<State>,
}

struct State {
    store: Store,
    fault: Option<Fault>,
    waiting: VecDeque<Request>,
    starts: u32,
}

struct Request {
    operation: Operation,
    claim: Claim,
    answer: Sender<Result<Vote, BackendError>>,
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Acquire,
    Extend,
    Release,
}

impl MemoryNode {
    /// A healthy, empty node.
    pub fn new(name: impl Into<String>, runtime: impl Runtime) -> Self {
        let state =
            State { store: Store::default(), fault: None, waiting: VecDeque::new(), starts: 1 };
        Self {
            shared: Arc::new(Shared {
                name: name.into(),
                runtime: Arc::new(runtime),
                state: Mutex::new(state),
            }),
        }
    }

    /// `count` healthy, empty nodes: `memory-1` and so on.
    pub fn cluster(count: usize, runtime: impl Runtime + Clone) -> Vec<Self> {
        (1..=count).map(|place| Self::new(format!("memory-{place}"), runtime.clone())).collect()
    }

    /// Makes something be wrong with the node, in place of what was wrong before.
    pub fn inject(&self, fault: Fault) {
        self.shared.turn(Some(fault));
    }

    /// Ends what is wrong. A node that hung answers what has piled up; one that was dead is empty.
    pub fn heal(&self) {
        self.shared.turn(None);
    }

    /// Ends the process and starts it again at once: the node is healthy, and empty.
    pub fn restart(&self) {
        self.inject(Fault::Dead);
        self.heal();
    }

    /// Makes keys expire, as if their ttl were over.
    pub fn expire(&self, key: impl AsRef<[u8]>) {
        self.shared.lock().store.remove(key.as_ref());
    }

    /// Puts a value at a key that is not of this protocol, as another program would.
    pub fn put(&self, key: impl AsRef<[u8]>, value: Value) {
        self.shared.lock().store.put(key.as_ref(), value, None);
    }

    /// What is at a key.
    #[must_use]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Value> {
        self.shared.lock().store.get(key.as_ref(), self.shared.runtime.now()).cloned()
    }

    /// How long a key still lives; `None` if it is not there or has no end.
    #[must_use]
    pub fn time_left(&self, key: impl AsRef<[u8]>) -> Option<Duration> {
        self.shared.lock().store.time_left(key.as_ref(), self.shared.runtime.now())
    }

    /// The keys that are there, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.shared.lock().store.keys(self.shared.runtime.now())
    }

    /// What the node is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    async fn call(&self, operation: Operation, claim: &Claim) -> Result<Vote, BackendError> {
        self.shared.send(operation, claim).await.unwrap_or_else(|| Err(gone("the node is gone")))
    }
}

impl Shared {
    fn turn(self: &Arc<Self>, fault: Option<Fault>) {
        let mut state = self.lock();
        let waiting = match fault {
            Some(Fault::Hung) => VecDeque::new(),
            _ => std::mem::take(&mut state.waiting),
        };
        let dies = matches!(fault, Some(Fault::Dead));
        if dies {
            state.store.clear();
            state.starts += 1;
        }
        state.fault = fault;
        drop(state);
        for request in waiting {
            if dies {
                request.answer.send(Err(gone("the connection was lost")));
            } else {
                self.arrive(request);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a request on its way.
    fn send(
        self: &Arc<Self>,
        operation: Operation,
        claim: &Claim,
    ) -> Reply<Result<Vote, BackendError>> {
        let (answer, reply) = reply();
        let request = Request { operation, claim: claim.clone(), answer };
        let delay = match self.lock().fault {
            Some(Fault::Slow(delay)) => delay,
            _ => Duration::ZERO,
        };
        let shared = Arc::clone(self);
        self.after(delay, move || shared.arrive(request));
        reply
    }

    /// A request has come: carries it out, and puts the reply on its way.
    fn arrive(self: &Arc<Self>, request: Request) {
        let mut state = self.lock();
        let mut delay = Duration::ZERO;
        let failure = match &state.fault {
            Some(Fault::Hung) => return state.waiting.push_back(request),
            Some(Fault::Dead) => Some(gone("connection refused")),
            Some(Fault::Failing(error)) => Some(error.clone()),
            Some(Fault::Late(late)) => {
                delay = *late;
                None
            }
            Some(Fault::Slow(_)) | None => None,
        };
        let Request { operation, claim, answer } = request;
        let now = self.runtime.now();
        let outcome = match (failure, operation) {
            (Some(error), _) => Err(error),
            (None, Operation::Acquire) => state.store.acquire(&claim, now),
            (None, Operation::Extend) => state.store.extend(&claim, now),
            (None, Operation::Release) => Ok(state.store.release(&claim, now)),
        };
        drop(state);
        self.after(delay, move || answer.send(outcome));
    }

    fn after(&self, delay: Duration, act: impl FnOnce() + Send + 'static) {
        if delay.is_zero() {
            return act();
        }
        let sleep = self.runtime.sleep_until(self.runtime.now() + delay);
        self.runtime.spawn(Box::pin(async move {
            sleep.await;
            act();
        }));
    }
}

#[async_trait]
impl LockBackend for MemoryNode {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.call(Operation::Acquire, claim).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.call(Operation::Extend, claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        self.call(Operation::Release, claim).await
    }

    fn name(&self) -> Option<&str> {
        Some(&self.shared.name)
    }

    fn identity(&self) -> Option<&dyn Identify> {
        Some(self)
    }
}

#[async_trait]
impl Identify for MemoryNode {
    async fn server_id(&self) -> Result<String, BackendError> {
        let state = self.shared.lock();
        match &state.fault {
            Some(Fault::Dead) => Err(gone("connection refused")),
            Some(Fault::Failing(error)) => Err(error.clone()),
            // Known from the handshake: a client learns it once a connection.
            _ => Ok(format!("{:p}#{}", Arc::as_ptr(&self.shared), state.starts)),
        }
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryNode").field(&self.shared.name).finish()
    }
}

fn gone(why: &'static str) -> BackendError {
    BackendError::new(BackendErrorKind::Connection, why)
}

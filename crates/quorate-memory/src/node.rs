//! A node in memory: the semantics of the protocol, and the network between it and the caller.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use quorate_core::{BackendError, BackendErrorKind, Claim, Identify, LockBackend, Runtime, Vote};

use crate::client::SimClient;
use crate::clock::Clock;
use crate::fault::Fault;
use crate::reply::{Reply, Sender, reply};
use crate::rule::{Journey, Operation, Rule};
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
    /// Whose calls come through this handle, where it matters.
    client: Option<usize>,
}

struct Shared {
    name: String,
    runtime: Arc<dyn Runtime>,
    state: Mutex<State>,
}

struct State {
    store: Store,
    /// What was on the disk when it was last looked at.
    snapshot: Store,
    clock: Clock,
    rules: Vec<Rule>,
    fault: Option<Fault>,
    waiting: VecDeque<Request>,
    starts: u32,
}

struct Request {
    operation: Operation,
    claim: Claim,
    journey: Journey,
    /// None for the second arrival of a request that was sent once.
    answer: Option<Sender<Result<Vote, BackendError>>>,
}

impl Request {
    fn fail(self, why: &'static str) {
        if let Some(answer) = self.answer {
            answer.send(Err(gone(why)));
        }
    }
}

impl MemoryNode {
    /// A healthy, empty node.
    pub fn new(name: impl Into<String>, runtime: impl Runtime) -> Self {
        let state = State {
            store: Store::default(),
            snapshot: Store::default(),
            clock: Clock::new(runtime.now(), 0),
            rules: Vec::new(),
            fault: None,
            waiting: VecDeque::new(),
            starts: 1,
        };
        let runtime = Arc::new(runtime);
        let shared = Shared { name: name.into(), runtime, state: Mutex::new(state) };
        Self { shared: Arc::new(shared), client: None }
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

    /// Keeps a copy of what is stored, as a background save does.
    pub fn save(&self) {
        let mut state = self.shared.lock();
        state.snapshot = state.store.clone();
    }

    /// As [`restart`](Self::restart), with what was stored when [`save`](Self::save) was called.
    pub fn restart_from_save(&self) {
        self.inject(Fault::Dead);
        let mut state = self.shared.lock();
        state.store = state.snapshot.clone();
        drop(state);
        self.heal();
    }

    /// The same node, as `client` sees it: rules for that client apply.
    #[must_use]
    pub fn seen_by(&self, client: &SimClient) -> Self {
        Self { shared: Arc::clone(&self.shared), client: Some(client.id()) }
    }

    /// Adds a rule to those that messages to and from this node are under.
    pub fn add_rule(&self, rule: Rule) {
        self.shared.lock().rules.push(rule);
    }

    /// Removes all rules.
    pub fn clear_rules(&self) {
        self.shared.lock().rules.clear();
    }

    /// Makes the node's clock gain `parts_per_million` on the runtime's, from now on.
    pub fn drift(&self, parts_per_million: i32) {
        let now = self.shared.runtime.now();
        self.shared.lock().clock.change_pace(now, parts_per_million);
    }

    /// Sets the node's clock forward: keys expire that much earlier.
    pub fn jump(&self, ahead: Duration) {
        self.shared.lock().clock.jump(ahead);
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
        {
            let state = self.shared.lock();
            state.store.get(key.as_ref(), self.shared.local(&state)).cloned()
        }
    }

    /// How long a key still lives; `None` if it is not there or has no end.
    #[must_use]
    pub fn time_left(&self, key: impl AsRef<[u8]>) -> Option<Duration> {
        {
            let state = self.shared.lock();
            state.store.time_left(key.as_ref(), self.shared.local(&state))
        }
    }

    /// The keys that are there, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        {
            let state = self.shared.lock();
            state.store.keys(self.shared.local(&state))
        }
    }

    /// What the node is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    async fn call(&self, operation: Operation, claim: &Claim) -> Result<Vote, BackendError> {
        self.shared
            .send(operation, claim, self.client)
            .await
            .unwrap_or_else(|| Err(gone("the node is gone")))
    }
}

impl Shared {
    fn turn(self: &Arc<Self>, fault: Option<Fault>) {
        let mut state = self.lock();
        let waiting = match fault {
            Some(Fault::Hung) => VecDeque::new(),
            _ => std::mem::take(&mut state.waiting),
        };
        let stops = matches!(fault, Some(Fault::Dead | Fault::Down));
        if stops {
            state.starts += 1;
        }
        if matches!(fault, Some(Fault::Dead)) {
            state.store.clear();
        }
        state.fault = fault;
        drop(state);
        for request in waiting {
            if stops {
                request.fail("the connection was lost");
            } else {
                self.arrive(request);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the node's own clock reads.
    fn local(&self, state: &State) -> Instant {
        state.clock.read(self.runtime.now())
    }

    /// Puts a request on its way.
    fn send(
        self: &Arc<Self>,
        operation: Operation,
        claim: &Claim,
        client: Option<usize>,
    ) -> Reply<Result<Vote, BackendError>> {
        let (answer, reply) = reply();
        let state = self.lock();
        let mut draw = |bound: u64| self.draw(bound);
        let mut journey = Journey::new(&state.rules, operation, client, &mut draw);
        match state.fault {
            Some(Fault::Slow(delay)) => journey.request += delay,
            Some(Fault::Late(delay)) => journey.reply += delay,
            _ => {}
        }
        drop(state);
        if let Some(later) = journey.again {
            self.set_out(journey.request + later, operation, claim, journey, None);
        }
        if journey.loses_request {
            // The answer is never given, and the caller not told that it never will be.
            answer.forget();
        } else {
            self.set_out(journey.request, operation, claim, journey, Some(answer));
        }
        reply
    }

    fn set_out(
        self: &Arc<Self>,
        delay: Duration,
        operation: Operation,
        claim: &Claim,
        journey: Journey,
        answer: Option<Sender<Result<Vote, BackendError>>>,
    ) {
        let request = Request { operation, claim: claim.clone(), journey, answer };
        let shared = Arc::clone(self);
        self.after(delay, move || shared.arrive(request));
    }

    /// A request has come: carries it out, and puts the reply on its way.
    fn arrive(self: &Arc<Self>, request: Request) {
        let mut state = self.lock();
        let failure = match &state.fault {
            Some(Fault::Hung) => return state.waiting.push_back(request),
            Some(Fault::Dead | Fault::Down) => Some(gone("connection refused")),
            Some(Fault::Failing(error)) => Some(error.clone()),
            Some(Fault::Slow(_) | Fault::Late(_)) | None => None,
        };
        let Request { operation, claim, journey, answer } = request;
        let now = self.local(&state);
        let outcome = match (failure, operation) {
            (Some(error), _) => Err(error),
            (None, Operation::Acquire) => state.store.acquire(&claim, now),
            (None, Operation::Extend) => state.store.extend(&claim, now),
            (None, Operation::Release) => Ok(state.store.release(&claim, now)),
        };
        drop(state);
        let Some(answer) = answer else { return };
        if journey.loses_reply {
            answer.forget();
        } else if journey.is_cut {
            self.after(journey.reply, move || answer.send(Err(gone("the connection was lost"))));
        } else {
            self.after(journey.reply, move || answer.send(outcome));
        }
    }

    /// A random number below `bound`.
    fn draw(&self, bound: u64) -> u64 {
        let mut bits = [0; 8];
        // Without randomness no rule has luck.
        let _ = self.runtime.fill_random(&mut bits);
        let wide = u128::from(u64::from_le_bytes(bits)) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
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
            Some(Fault::Dead | Fault::Down) => Err(gone("connection refused")),
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

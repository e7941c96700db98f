//! The process of a node, and the network between it and its callers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quorate_core::{BackendError, BackendErrorKind, Runtime};

use super::connection::{Connection, Lane};
use super::watches::{Watch, Watches};
use crate::clock::Clock;
use crate::fault::Fault;
use crate::observer::{Observed, Observer};
use crate::reply::{Reply, Sender, reply};
use crate::rng::below;
use crate::rule::{Journey, Operation, Rule};
use crate::store::{Server, Store};

pub(super) struct Process {
    pub(super) name: String,
    pub(super) runtime: Arc<dyn Runtime>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) store: Store,
    /// What was last saved to the disk.
    pub(super) snapshot: Store,
    pub(super) clock: Clock,
    pub(super) rules: Vec<Rule>,
    pub(super) watches: Watches,
    pub(super) observer: Option<Observer>,
    fault: Option<Fault>,
    /// What a stopped process has not read yet.
    unread: VecDeque<Request>,
    server_id: String,
    /// When the process started, by its own clock.
    started: Instant,
    executed: u64,
}

/// The operation, the client that sends it, and its connection. Without order, each request has its
/// own.
pub(super) struct Sent {
    pub(super) operation: Operation,
    pub(super) client: Option<usize>,
    pub(super) is_ordered: bool,
    pub(super) connection: Arc<Connection>,
}

/// A request, as the process meets it: carried out, or failed with an error.
type Request = Box<dyn FnOnce(&Arc<Process>, Option<BackendError>) + Send>;

impl State {
    /// What the server says about itself.
    pub(super) fn server(&self, now: Instant) -> Server {
        let age = now.saturating_duration_since(self.started);
        let mut id = self.server_id.clone();
        // The other of two servers, in step with no pattern of requests.
        if matches!(self.fault, Some(Fault::Flapping)) && self.executed.count_ones() % 2 == 1 {
            id.push('b');
        }
        Server {
            id,
            uptime: Duration::from_secs(age.as_secs() + u64::from(age.subsec_nanos() > 0)),
            evicts: matches!(self.fault, Some(Fault::Evicting)),
            hides: matches!(self.fault, Some(Fault::NoInfo)),
        }
    }

    pub(super) fn observe(&self, observed: Observed<'_>) {
        if let Some(observer) = &self.observer {
            observer(observed);
        }
    }
}

impl Process {
    pub(super) fn new(name: String, runtime: Arc<dyn Runtime>) -> Self {
        let now = runtime.now();
        let state = State {
            store: Store::new(now),
            snapshot: Store::new(now),
            clock: Clock::new(now, 0),
            rules: Vec::new(),
            watches: Watches::default(),
            observer: None,
            fault: None,
            unread: VecDeque::new(),
            server_id: new_id(&*runtime),
            started: now,
            executed: 0,
        };
        Self { name, runtime, state: Mutex::new(state) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the node's own clock reads.
    pub(super) fn now(&self, state: &State) -> Instant {
        state.clock.read(self.runtime.now())
    }

    /// When the key expires, by the clock of the runtime; `None` if it does not.
    pub(super) fn end_of(&self, key: &[u8]) -> Option<Instant> {
        let state = self.lock();
        Some(state.clock.when(state.store.end_of(key)?))
    }

    /// Changes what is wrong with the process.
    pub(super) fn set_fault(self: &Arc<Self>, fault: Option<Fault>) {
        let mut state = self.lock();
        let is_stopped = |fault: &Option<Fault>| matches!(fault, Some(Fault::Dead | Fault::Down));
        let (was_stopped, stops) = (is_stopped(&state.fault), is_stopped(&fault));
        let unread = match fault {
            Some(Fault::Hung) => VecDeque::new(),
            _ => std::mem::take(&mut state.unread),
        };
        if matches!(fault, Some(Fault::Dead)) {
            state.store.clear();
            state.observe(Observed::LostData);
        }
        if was_stopped && !stops {
            state.server_id = new_id(&*self.runtime);
            state.started = self.now(&state);
        }
        state.fault = fault;
        if stops {
            let watches = state.watches.take_all();
            self.push(state, watches);
        } else {
            self.push_changes(state);
        }
        for request in unread {
            if stops {
                request(self, Some(lost("the connection was lost")));
            } else {
                self.receive(request);
            }
        }
    }

    /// Sends a request. It leaves now, whatever becomes of the reply.
    pub(super) fn send<T: Send + 'static>(
        self: &Arc<Self>,
        sent: Sent,
        act: impl Fn(&mut State, Instant) -> Result<T, BackendError> + Send + Sync + 'static,
    ) -> Reply<Result<T, BackendError>> {
        let Sent { operation, client, is_ordered, connection } = sent;
        let (answer, reply) = reply();
        let state = self.lock();
        state.observe(Observed::Sent { operation, client });
        let journey = self.journey(&state, operation, client);
        drop(state);
        if journey.loses_request {
            return reply;
        }
        let (requests, delay) = (Arc::clone(&connection.requests), journey.request);
        let request = move |process: &Arc<Self>, failure: Option<BackendError>| {
            // A request that a process refused does not come again.
            let again = journey.again.filter(|_| failure.is_none() && !is_ordered);
            let mut outcome = failure.map_or_else(|| process.execute(&act), Err);
            if let Some(later) = again {
                let again = move |process: &Arc<Self>, failure: Option<BackendError>| {
                    drop(failure.is_none().then(|| process.execute(&act)));
                };
                let there = Arc::clone(process);
                process.after(later, move || there.receive(Box::new(again)));
            }
            if journey.is_cut {
                outcome = Err(lost("the connection was lost"));
            }
            process.reply(&journey, &connection, answer, outcome);
        };
        let process = Arc::clone(self);
        self.carry(&requests, delay, move || process.receive(Box::new(request)));
        reply
    }

    /// Delivers a message after `delay`, behind all that were sent before on this lane.
    fn carry(&self, lane: &Arc<Lane>, delay: Duration, message: impl FnOnce() + Send + 'static) {
        let delay = lane.send(self.runtime.now(), delay, message);
        let lane = Arc::clone(lane);
        self.after(delay, move || lane.deliver());
    }

    /// A request has arrived.
    fn receive(self: &Arc<Self>, request: Request) {
        let mut state = self.lock();
        let failure = match &state.fault {
            Some(Fault::Hung) => return state.unread.push_back(request),
            Some(Fault::Dead | Fault::Down) => Some(lost("connection refused").not_sent()),
            Some(Fault::Failing(error)) => Some(error.clone()),
            _ => None,
        };
        drop(state);
        request(self, failure);
    }

    fn execute<T>(
        &self,
        act: &(dyn Fn(&mut State, Instant) -> Result<T, BackendError> + Send + Sync),
    ) -> Result<T, BackendError> {
        let mut state = self.lock();
        state.executed += 1;
        let now = self.now(&state);
        let outcome = act(&mut state, now);
        for claim in state.store.take_grants() {
            state.observe(Observed::Set(&claim));
        }
        self.push_changes(state);
        outcome
    }

    fn reply<T: Send + 'static>(
        &self,
        journey: &Journey,
        connection: &Connection,
        answer: Sender<T>,
        value: T,
    ) {
        if !journey.loses_reply {
            self.carry(&connection.replies, journey.reply, move || answer.send(value));
        }
    }

    /// Pushes to the watches of the keys that were written. A hung process does that when it goes on.
    pub(super) fn push_changes(&self, mut state: MutexGuard<'_, State>) {
        if matches!(state.fault, Some(Fault::Hung)) {
            return;
        }
        let changes = state.store.take_changes();
        let watches = state.watches.take(&changes);
        self.push(state, watches);
    }

    /// Pushes to these watches. Each push is a message of its own, under the rules of this moment.
    pub(super) fn push(&self, state: MutexGuard<'_, State>, watches: Vec<Watch>) {
        let journey = |watch: Watch| (self.journey(&state, Operation::Watch, watch.client), watch);
        let pushes: Vec<(Journey, Watch)> = watches.into_iter().map(journey).collect();
        drop(state);
        for (journey, watch) in pushes {
            self.reply(&journey, &Connection::default(), watch.push, ());
        }
    }

    /// What the rules and the fault of this moment do to a message and its reply.
    fn journey(&self, state: &State, operation: Operation, client: Option<usize>) -> Journey {
        let mut draw = |bound: u64| self.draw(bound);
        let mut journey = Journey::new(&state.rules, operation, client, &mut draw);
        match state.fault {
            Some(Fault::Slow(delay)) => journey.request += delay,
            Some(Fault::Late(delay)) => journey.reply += delay,
            _ => {}
        }
        journey
    }

    /// A random number below `bound`.
    fn draw(&self, bound: u64) -> u64 {
        let mut bits = [0; 8];
        // Without randomness, every draw is zero.
        let _ = self.runtime.fill_random(&mut bits);
        below(u64::from_le_bytes(bits), bound)
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

pub(super) fn lost(why: &'static str) -> BackendError {
    BackendError::new(BackendErrorKind::Connection, why)
}

/// A new `run_id`.
fn new_id(runtime: &dyn Runtime) -> String {
    let mut bytes = [0; 20];
    // Without randomness, all nodes have the same id.
    let _ = runtime.fill_random(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

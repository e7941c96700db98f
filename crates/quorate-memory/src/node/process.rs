//! The process of a node, and the network between it and its callers.

use std::collections::VecDeque;
use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::{AbortHandle, AbortRegistration, Abortable, select};
use quorate_core::backend::{self, Call, CallReply, CallResult, Capabilities, Mode, Push, ask};
use quorate_core::{BackendError, BackendErrorKind, Runtime};

use super::lane::Lane;
use super::message::{Answer, Connection, Origin, Request};
use super::watches::{Watch, Watches};
use crate::client::SimClient;
use crate::clock::Clock;
use crate::fault::Fault;
use crate::keys;
use crate::observer::{Observed, Observer};
use crate::rng::below;
use crate::rule::{Journey, Operation, Rule};
use crate::store::Store;

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
    pub(super) fault: Option<Fault>,
    /// What a stopped process has not read yet.
    unread: VecDeque<Request>,
    pub(super) server_id: Arc<str>,
    /// Changes with each promotion, as `master_replid2` and `second_repl_offset` do.
    pub(super) promotion: Arc<str>,
    /// When the process started, by its own clock.
    pub(super) started: Instant,
    /// How many requests the process has executed.
    pub(super) executed: u64,
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
            promotion: NEVER_PROMOTED.into(),
            started: now,
            executed: 0,
        };
        Self { name, runtime, state: Mutex::new(state) }
    }

    /// Locks the state, whose store then has the time of the node's own clock.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.store.now = state.clock.read(self.runtime.now());
        state
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
            state.promotion = NEVER_PROMOTED.into();
            state.started = state.store.now;
        }
        state.fault = fault;
        if stops {
            let mut watches = state.watches.take(|_| true);
            // The end of a connection tells a lease nothing.
            watches.retain(|watch| watch.operation == Operation::Watch);
            self.push(state, watches);
        } else {
            self.push_changes(state, None);
        }
        for request in unread {
            if stops {
                self.handle(request, Some(lost("the connection was lost")));
            } else {
                self.receive(request);
            }
        }
    }

    /// Answers a call whose connection cannot be made, after this time.
    pub(super) fn fail_to_connect(&self, call: Call, limit: Duration) {
        let error = BackendError::new(BackendErrorKind::TimedOut, "no connection in time");
        self.after(limit, move || call.answer(Err(error.not_sent())));
    }

    /// Sends a request, after a wait for the connection. It leaves then, whatever becomes of the
    /// reply.
    pub(super) fn send(
        self: &Arc<Self>,
        call: Call,
        operation: Operation,
        origin: Origin,
        connection: &Connection,
        wait: Duration,
    ) {
        let state = self.lock();
        state.observe(Observed::Sent { operation, client: origin.id() });
        let journey = self.journey(&state, operation, origin.id());
        drop(state);
        if journey.loses_request {
            return self.keep(call);
        }
        let (replies, process) = (Arc::clone(&connection.replies), Arc::clone(self));
        let request = Request { call, journey, origin, replies, sent: self.runtime.now() };
        let (delay, receive) = (wait + journey.request, move |one| process.receive(one));
        self.carry(&connection.requests, delay, None, request, Request::place, receive);
    }

    /// Delivers a message after `delay`, at its `place` among those in flight on this lane.
    ///
    /// A receiver that is paused handles it later, a killed one never.
    fn carry<M: Send + 'static>(
        &self,
        lane: &Arc<Lane<M>>,
        delay: Duration,
        receiver: Option<SimClient>,
        message: M,
        place: impl FnOnce(&M, &VecDeque<M>) -> usize,
        accept: impl Fn(M) + Send + 'static,
    ) {
        let (delay, arrival) = lane.send(self.runtime.now(), delay, message, place);
        self.after(delay, move || handle_by(receiver, move || arrival.deliver(accept)));
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
        self.handle(request, failure);
    }

    /// Carries a request out, unless there is a failure, and sends the reply.
    fn handle(self: &Arc<Self>, request: Request, failure: Option<BackendError>) {
        let Request { call, journey, origin, replies, .. } = request;
        // A request that a process refused does not come again. No request of a connection does.
        let again = journey
            .again
            .filter(|_| failure.is_none() && !origin.has.contains(Capabilities::ORDERED));
        let mut result = match failure {
            Some(error) => Err(error),
            None => self.execute(&call, &origin),
        };
        if let Some(later) = again {
            // Nobody awaits the second reply.
            let (sent, origin, process) = (self.runtime.now(), origin.clone(), Arc::clone(self));
            drop(ask(call.operation().clone(), sent, |call| {
                let (journey, replies) = (Journey::default(), Arc::default());
                let request = Request { call, journey, origin, replies, sent };
                self.after(later, move || process.receive(request));
                Ok(())
            }));
        }
        if journey.is_cut {
            result = Err(lost("the connection was lost"));
        }
        if journey.loses_reply {
            return self.keep(call);
        }
        let answer = |(call, result): Answer| call.answer(result);
        let last = |_: &Answer, others: &VecDeque<Answer>| others.len();
        self.carry(&replies, journey.reply, origin.client, (call, result), last, answer);
    }

    fn execute(self: &Arc<Self>, call: &Call, origin: &Origin) -> CallResult {
        let mut state = self.lock();
        state.executed += 1;
        let names_server = origin.has.contains(Capabilities::SERVER_ID);
        let result = state.perform(call.operation(), names_server);
        for claim in state.store.take_grants() {
            state.observe(Observed::Set(&claim));
        }
        let (operation, keys) = match call.operation() {
            backend::Operation::Watch { key, entry } if result.is_ok() => {
                (Operation::Watch, vec![keys::watched(key, entry.as_ref())])
            }
            backend::Operation::Look(claim) | backend::Operation::Extend(claim, _)
                if claim.mode() == Mode::Exclusive && origin.has.contains(Capabilities::PUSH) =>
            {
                let keys = claim.keys().iter().map(|key| key.as_bytes().to_vec());
                (Operation::Look, keys.collect())
            }
            _ => (Operation::Watch, Vec::new()),
        };
        let mut watches = Vec::new();
        for key in keys {
            if let Some((id, pushed)) = state.watches.add(&key, operation, origin.id(), call) {
                let end = matches!(result, Ok(CallReply::Watched(true))).then_some(key);
                watches.push(Arc::clone(self).watch(id, end, pushed, call.push()));
            }
        }
        // As with `NOLOOP`. But a revoker notifies the leases of its own connection itself.
        let is_revoke = matches!(call.operation(), backend::Operation::Revoke { .. });
        self.push_changes(state, (!is_revoke).then(|| origin.id()));
        for watch in watches {
            // A client that is paused or killed notices no push.
            match &origin.client {
                Some(client) => client.spawn(Box::pin(watch)),
                None => self.runtime.spawn(Box::pin(watch)),
            }
        }
        result
    }

    /// Drops `push`, which delivers it, when it has come, when the key has expired, or when no
    /// future awaits it.
    async fn watch(
        self: Arc<Self>,
        id: u64,
        key: Option<Vec<u8>>,
        pushed: AbortRegistration,
        push: Push,
    ) {
        let expiry = async {
            // A key that was absent may still be stored, expired.
            if let Some(key) = key {
                self.push_expiry(&key).await;
            }
            pending::<()>().await;
        };
        let pushed = pin!(Abortable::new(expiry, pushed));
        select(pushed, pin!(push.given_up())).await;
        self.lock().watches.remove(id);
    }

    /// Waits until `key` has expired, and pushes that.
    async fn push_expiry(&self, key: &[u8]) {
        let end_of = |state: &State| Some(state.clock.when(state.store.end_of(key)?));
        let end = || end_of(&self.lock());
        while let Some(end) = end() {
            self.runtime.sleep_until(end).await;
            let mut state = self.lock();
            if state.store.get(key).is_none() {
                state.store.note_change(key);
                return self.push_changes(state, None);
            }
        }
    }

    /// Keeps a call whose request or reply was lost: it stays unanswered until it is given up. If
    /// it were dropped, its sender would notice that at once.
    fn keep(&self, call: Call) {
        self.runtime.spawn(Box::pin(async move { call.given_up().await }));
    }

    /// Pushes to the watches of the keys that were written, and to their leases but for those of
    /// the writer. A hung process does that when it goes on.
    pub(super) fn push_changes(
        &self,
        mut state: MutexGuard<'_, State>,
        writer: Option<Option<usize>>,
    ) {
        if matches!(state.fault, Some(Fault::Hung)) {
            return;
        }
        let changes = state.store.take_changes();
        let watches = state.watches.take(|watch| {
            let is_told = watch.operation == Operation::Watch || writer != Some(watch.client);
            is_told && changes.contains(&watch.key)
        });
        self.push(state, watches);
    }

    /// Pushes to these. Each push is a message of its own, under the rules of this moment.
    pub(super) fn push(&self, state: MutexGuard<'_, State>, watches: Vec<Watch>) {
        let journey =
            |watch: Watch| (self.journey(&state, watch.operation, watch.client), watch.push);
        let pushes: Vec<(Journey, AbortHandle)> = watches.into_iter().map(journey).collect();
        drop(state);
        for (journey, push) in pushes.into_iter().filter(|(journey, _)| !journey.loses_reply) {
            self.after(journey.reply, move || push.abort());
        }
    }

    /// What the rules and the fault of this moment do to a message and its reply.
    fn journey(&self, state: &State, operation: Operation, client: Option<usize>) -> Journey {
        let draw = &mut |bound| self.draw(bound);
        let mut journey = Journey::new(&state.rules, operation, client, draw);
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

/// Lets the receiver handle a message: at once, or as its task if it is stopped.
fn handle_by(receiver: Option<SimClient>, handle: impl FnOnce() + Send + 'static) {
    match receiver {
        Some(client) if client.is_stopped() => client.spawn(Box::pin(async { handle() })),
        _ => handle(),
    }
}

fn lost(why: &'static str) -> BackendError {
    BackendError::new(BackendErrorKind::Connection, why)
}

/// The two fields of a server that was never promoted.
const NEVER_PROMOTED: &str = "0000000000000000000000000000000000000000:-1";

/// A new `run_id`, or replication id.
pub(super) fn new_id(runtime: &dyn Runtime) -> Arc<str> {
    let mut bytes = [0; 20];
    // Without randomness, all nodes have the same id.
    let _ = runtime.fill_random(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

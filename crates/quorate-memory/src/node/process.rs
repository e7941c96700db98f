//! The process behind a node, and the network between it and its callers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quorate_core::{BackendError, BackendErrorKind, Runtime};

use super::watching::Entries;
use crate::clock::Clock;
use crate::fault::Fault;
use crate::observer::{Observed, Observer};
use crate::reply::{Reply, Sender, reply};
use crate::rule::{Journey, Operation, Rule};
use crate::store::{Flaw, Store};

pub(crate) struct Shared {
    pub(super) name: String,
    pub(super) runtime: Arc<dyn Runtime>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) store: Store,
    /// What was on the disk when it was last looked at.
    pub(super) snapshot: Store,
    pub(super) clock: Clock,
    pub(super) rules: Vec<Rule>,
    pub(super) fault: Option<Fault>,
    waiting: VecDeque<Box<dyn Arrive>>,
    pub(super) watched: Entries,
    pub(super) starts: u32,
    pub(super) observer: Option<Observer>,
    /// When it last started, on its own clock.
    started: Instant,
    /// How many requests have come.
    requests: u64,
}

/// How a request gets to the node.
#[derive(Clone, Copy)]
pub(super) struct Way<'a> {
    pub(super) client: Option<usize>,
    pub(super) connection: Option<&'a Connection>,
}

/// What keeps requests in order.
#[derive(Debug, Default)]
pub(super) struct Connection {
    /// When the last request arrives that is on its way.
    last: Mutex<Option<Instant>>,
}

impl Connection {
    /// How long a request is on its way that would be for `delay`.
    fn delay(&self, now: Instant, delay: Duration) -> Duration {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut arrival = now + delay;
        if let Some(last) = *last
            && arrival <= last
        {
            arrival = last + Duration::from_nanos(1);
        }
        if arrival > now {
            *last = Some(arrival);
        }
        arrival - now
    }
}

/// What a request does to the store, at a moment of the node's own clock.
type Act<T> = Arc<dyn Fn(&mut Store, Instant, &Run<'_>) -> Result<T, BackendError> + Send + Sync>;

/// What the process tells about itself.
pub(crate) struct Run<'a> {
    node: &'a Shared,
    starts: u32,
    fault: Option<&'a Fault>,
    requests: u64,
    age: Duration,
}

impl Run<'_> {
    /// What it is called: no other run of this or another node is called like that.
    pub(crate) fn id(&self) -> String {
        let id = format!("{:p}#{}", self.node, self.starts);
        match self.fault {
            // In turn, but in step with no pattern of requests.
            Some(Fault::Flapping) if self.requests.count_ones() % 2 == 1 => id + "'",
            _ => id,
        }
    }

    /// Whole seconds, up to one too many: the start and the present are each cut off.
    pub(crate) fn uptime(&self) -> Duration {
        Duration::from_secs(self.age.as_secs() + u64::from(self.age.subsec_nanos() > 0))
    }

    pub(crate) const fn evicts(&self) -> bool {
        matches!(self.fault, Some(Fault::Evicting))
    }

    pub(crate) const fn hides(&self) -> bool {
        matches!(self.fault, Some(Fault::NoInfo))
    }
}

struct Request<T> {
    act: Act<T>,
    journey: Journey,
    /// None for the second arrival of a request that was sent once.
    answer: Option<Sender<Result<T, BackendError>>>,
}

/// A request, whatever it is answered with.
pub(super) trait Arrive: Send {
    /// Acts on the store, unless the node fails, and puts the reply on its way.
    fn carry_out(
        self: Box<Self>,
        failure: Option<BackendError>,
        state: MutexGuard<'_, State>,
        node: &Shared,
    );

    /// Tells the caller that the request is lost.
    fn fail(self: Box<Self>, why: &'static str);
}

impl<T: Send + 'static> Arrive for Request<T> {
    fn carry_out(
        self: Box<Self>,
        failure: Option<BackendError>,
        mut state: MutexGuard<'_, State>,
        node: &Shared,
    ) {
        let Self { act, journey, answer } = *self;
        let now = node.local(&state);
        if state.observer.is_some() {
            state.store.note_taken();
        }
        let outcome = match failure {
            Some(failure) => Err(failure),
            None => {
                let state = &mut *state;
                state.requests += 1;
                let run = Run {
                    node,
                    starts: state.starts,
                    fault: state.fault.as_ref(),
                    requests: state.requests,
                    age: now.saturating_duration_since(state.started),
                };
                act(&mut state.store, now, &run)
            }
        };
        state.tell_of_grants();
        node.tell(state);
        if let Some(answer) = answer {
            node.answer(journey, answer, outcome);
        }
    }

    fn fail(self: Box<Self>, why: &'static str) {
        if let Some(answer) = self.answer {
            answer.send(Err(gone(why)));
        }
    }
}

impl State {
    pub(super) fn tell(&self, observed: Observed<'_>) {
        if let Some(observer) = &self.observer {
            observer.tell(observed);
        }
    }

    pub(super) fn tell_of_loss(&self) {
        self.tell(Observed::LostData);
    }

    fn tell_of_grants(&mut self) {
        for claim in self.store.take_taken() {
            self.tell(Observed::Set(&claim));
        }
    }
}

impl Shared {
    pub(super) fn new(name: String, runtime: Arc<dyn Runtime>) -> Self {
        let state = State {
            store: Store::default(),
            snapshot: Store::default(),
            clock: Clock::new(runtime.now(), 0),
            rules: Vec::new(),
            fault: None,
            waiting: VecDeque::new(),
            watched: Entries::default(),
            starts: 1,
            observer: None,
            started: runtime.now(),
            requests: 0,
        };
        Self { name, runtime, state: Mutex::new(state) }
    }

    /// What the process tells about itself at this moment.
    pub(super) fn run<'a>(&'a self, state: &'a State) -> Run<'a> {
        Run {
            node: self,
            starts: state.starts,
            fault: state.fault.as_ref(),
            requests: state.requests,
            age: self.local(state).saturating_duration_since(state.started),
        }
    }

    /// What the store says at this moment of the node's own clock.
    pub(super) fn look<T>(&self, at: impl FnOnce(&Store, Instant) -> T) -> T {
        let state = self.lock();
        at(&state.store, self.local(&state))
    }

    /// Something becomes wrong with the process, or right again.
    pub(super) fn turn(self: &Arc<Self>, fault: Option<Fault>) {
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
            state.tell_of_loss();
        }
        let was_down = matches!(state.fault, Some(Fault::Dead | Fault::Down));
        if was_down && !stops {
            state.started = self.local(&state);
        }
        state.fault = fault;
        if stops {
            self.end_watches(state);
        } else {
            self.tell(state);
        }
        for request in waiting {
            if stops {
                request.fail("the connection was lost");
            } else {
                self.arrive(request);
            }
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the node's own clock reads.
    pub(super) fn local(&self, state: &State) -> Instant {
        state.clock.read(self.runtime.now())
    }

    /// Puts a request on its way.
    pub(super) fn send<T: Send + 'static>(
        self: &Arc<Self>,
        operation: Operation,
        way: Way<'_>,
        act: impl Fn(&mut Store, Instant, &Run<'_>) -> Result<T, BackendError> + Send + Sync + 'static,
    ) -> Reply<Result<T, BackendError>> {
        let (answer, reply) = reply();
        let act: Act<T> = Arc::new(act);
        let state = self.lock();
        state.tell(Observed::Sent { operation, client: way.client });
        let mut journey = self.journey(&state, operation, way.client);
        drop(state);
        if let Some(connection) = way.connection
            && !journey.loses_request
            && !self.lock().store.has(Flaw::Reorders)
        {
            journey.request = connection.delay(self.runtime.now(), journey.request);
        }
        if let Some(later) = journey.again
            && way.connection.is_none()
        {
            let request = Request { act: Arc::clone(&act), journey, answer: None };
            self.set_out(journey.request + later, request);
        }
        if journey.loses_request {
            // The answer is never given, and the caller not told that it never will be.
            answer.forget();
        } else {
            self.set_out(journey.request, Request { act, journey, answer: Some(answer) });
        }
        reply
    }

    /// What becomes of a message now, and of what is said to it.
    pub(super) fn journey(
        &self,
        state: &State,
        operation: Operation,
        client: Option<usize>,
    ) -> Journey {
        let mut draw = |bound: u64| self.draw(bound);
        let mut journey = Journey::new(&state.rules, operation, client, &mut draw);
        match state.fault {
            Some(Fault::Slow(delay)) => journey.request += delay,
            Some(Fault::Late(delay)) => journey.reply += delay,
            _ => {}
        }
        journey
    }

    /// Puts a reply on its way.
    pub(super) fn answer<T: Send + 'static>(
        &self,
        journey: Journey,
        answer: Sender<Result<T, BackendError>>,
        outcome: Result<T, BackendError>,
    ) {
        if journey.loses_reply {
            answer.forget();
        } else if journey.is_cut {
            self.after(journey.reply, move || answer.send(Err(gone("the connection was lost"))));
        } else {
            self.after(journey.reply, move || answer.send(outcome));
        }
    }

    fn set_out<T: Send + 'static>(self: &Arc<Self>, delay: Duration, request: Request<T>) {
        let shared = Arc::clone(self);
        self.after(delay, move || shared.arrive(Box::new(request)));
    }

    /// A request has come.
    pub(super) fn arrive(&self, request: Box<dyn Arrive>) {
        let mut state = self.lock();
        let failure = match &state.fault {
            Some(Fault::Hung) => return state.waiting.push_back(request),
            Some(Fault::Dead | Fault::Down) => Some(gone("connection refused")),
            Some(Fault::Failing(error)) => Some(error.clone()),
            Some(
                Fault::Slow(_) | Fault::Late(_) | Fault::Evicting | Fault::NoInfo | Fault::Flapping,
            )
            | None => None,
        };
        request.carry_out(failure, state, self);
    }

    /// A random number below `bound`.
    fn draw(&self, bound: u64) -> u64 {
        let mut bits = [0; 8];
        // Without randomness no rule has luck.
        let _ = self.runtime.fill_random(&mut bits);
        let wide = u128::from(u64::from_le_bytes(bits)) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    pub(super) fn after(&self, delay: Duration, act: impl FnOnce() + Send + 'static) {
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

pub(super) fn gone(why: &'static str) -> BackendError {
    BackendError::new(BackendErrorKind::Connection, why)
}

//! The waiters and holders at every moment of a world, and what the rules of waiting say of them.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quorate_memory::Operation;

use super::counts::{Rule, Waits};
use super::plan::Plan;
use crate::history::AttemptId;
use crate::oracle::Violation;

mod rules;

/// One wait, by the order of arrival.
pub(crate) type WaitId = u64;

/// A process and its manager: a process that starts again has another client, one that closes its
/// manager has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    /// Where it stands among the processes of the world.
    pub(crate) place: usize,
    /// Its client.
    pub(crate) client: usize,
    /// Which of its managers.
    pub(crate) manager: usize,
}

/// The waits and holders of a world. Clones are the same board.
#[derive(Clone, Debug)]
pub(crate) struct Board(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    seed: u64,
    plan: Plan,
    next: WaitId,
    waits: BTreeMap<WaitId, Wait>,
    keys: Vec<KeyState>,
    costs: BTreeMap<usize, Cost>,
    /// From when to when something else explains that no process was granted a lock.
    excuses: Vec<(Duration, Duration)>,
    /// Until when a push may be lost, or a gate skipped by some. A wait that began before may be the only
    /// one at its gate, or watch in vain: then it gets the lock when it happens to see it free.
    unequal_until: Duration,
    /// Attempts of requests that failed: what a node grants them now was left behind.
    failed: HashSet<AttemptId>,
    /// What fails at once.
    wrong: Vec<Violation>,
    /// The processes leave, and shares count no more.
    is_over: bool,
    waits_found: Waits,
}

#[derive(Debug)]
struct Wait {
    who: Who,
    keys: Vec<usize>,
    since: Duration,
    deadline: Duration,
    /// How many locks had been granted when it began.
    holds: u64,
}

#[derive(Debug, Default)]
struct KeyState {
    holder: Option<(WaitId, Who)>,
    /// When the last holder began to release it, or its keys expired.
    free_since: Duration,
    waiting_since: Option<Duration>,
    /// Until when a node keeps a key that no process releases. If that is the gate, W1 lets
    /// waiters wait.
    stale_until: Duration,
    /// The process that held it last, if another one was waiting when it was released.
    contested: Option<usize>,
    holds: BTreeMap<usize, u64>,
}

/// What waiting cost one process.
#[derive(Debug, Default)]
struct Cost {
    /// How many waits it has now, and since when it has any.
    waiting: usize,
    since: Duration,
    waited: Duration,
    /// How often a lock that it waits for was granted to any process, or a wait of its own ended
    /// without.
    changes: u64,
    commands: u64,
}

/// For how long a gate is skipped that did not answer.
const SKIPPED: Duration = Duration::from_secs(1);

/// At the beginning all compete at once. The gate may have granted a loser, and then misleads the others for
/// a refresh: shares and hand-overs count from here on.
const BEGINNING: Duration = Duration::from_millis(1_000);

/// The refresh, and a look after it.
const REFRESH: Duration = Duration::from_millis(820);

impl Board {
    /// No process waits.
    pub(crate) fn new(seed: u64, plan: &Plan) -> Self {
        let mut waits_found = Waits { worlds: 1, ..Waits::default() };
        waits_found.ordered = u64::from(plan.is_ordered());
        Self(Arc::new(Mutex::new(State {
            seed,
            plan: plan.clone(),
            next: 0,
            waits: BTreeMap::new(),
            keys: (0..plan.keys).map(|_| KeyState::default()).collect(),
            costs: BTreeMap::new(),
            excuses: Vec::new(),
            unequal_until: Duration::ZERO,
            failed: HashSet::new(),
            wrong: Vec::new(),
            is_over: false,
            waits_found,
        })))
    }

    /// A task begins to wait for keys.
    pub(crate) fn begins(
        &self,
        now: Duration,
        who: Who,
        keys: &[usize],
        deadline: Duration,
    ) -> WaitId {
        let mut state = self.lock();
        state.next += 1;
        let id = state.next;
        for key in keys {
            state.keys[*key].waiting_since.get_or_insert(now);
        }
        let cost = state.costs.entry(who.client).or_default();
        if cost.waiting == 0 {
            cost.since = now;
        }
        cost.waiting += 1;
        let holds = state.waits_found.holds;
        let wait = Wait { who, keys: keys.to_vec(), since: now, deadline, holds };
        state.waits.insert(id, wait);
        id
    }

    /// A wait ended with the lock. Returns how many locks have been granted.
    pub(crate) fn granted(&self, now: Duration, id: WaitId) -> u64 {
        let mut state = self.lock();
        let Some(wait) = state.waits.remove(&id) else { return 0 };
        state.check_order(now, id, &wait);
        state.check_wait(now, &wait);
        for key in &wait.keys {
            state.check_idle(now, *key);
            let is_over = state.is_over;
            let state_of = &mut state.keys[*key];
            state_of.holder = Some((id, wait.who));
            let counts = !is_over && now >= BEGINNING;
            if let Some(before) = state_of.contested.take()
                && counts
            {
                state.waits_found.contested += 1;
                state.waits_found.to_another += u64::from(before != wait.who.place);
            }
            if counts {
                *state.keys[*key].holds.entry(wait.who.place).or_default() += 1;
            }
            state.changes(*key);
        }
        state.costs.entry(wait.who.client).or_default().changes += 1;
        state.ends(now, &wait);
        state.waits_found.holds += 1;
        state.waits_found.holds
    }

    /// A wait ended without the lock: with an error, or since it was cancelled.
    pub(crate) fn gave_up(&self, now: Duration, id: WaitId) {
        let mut state = self.lock();
        let Some(wait) = state.waits.remove(&id) else { return };
        state.check_wait(now, &wait);
        for key in &wait.keys {
            state.check_idle(now, *key);
        }
        state.costs.entry(wait.who.client).or_default().changes += 1;
        state.ends(now, &wait);
    }

    /// The holder begins to release. Only the first time counts.
    pub(crate) fn released(&self, now: Duration, id: WaitId) {
        let mut state = self.lock();
        for key in 0..state.keys.len() {
            let Some((_, who)) = state.keys[key].holder.take_if(|(holder, _)| *holder == id) else {
                continue;
            };
            // Waits of more than four round trips. A request that is in flight may lose the race.
            let since = now.saturating_sub(state.plan.round_trip() * 4);
            let another = |wait: &Wait| {
                wait.who.place != who.place && wait.since < since && wait.keys.contains(&key)
            };
            let is_contested = state.waits.values().any(another);
            let state_of = &mut state.keys[key];
            state_of.free_since = now;
            state_of.contested = is_contested.then_some(who.place);
        }
    }

    /// A process was killed. Returns the keys that it held.
    pub(crate) fn killed(&self, now: Duration, client: usize) -> Vec<usize> {
        let mut state = self.lock();
        let dead: Vec<WaitId> = state
            .waits
            .iter()
            .filter_map(|(id, wait)| (wait.who.client == client).then_some(*id))
            .collect();
        for wait in dead.into_iter().filter_map(|id| state.waits.remove(&id)).collect::<Vec<_>>() {
            state.ends(now, &wait);
        }
        state.excuses.push((now, now + REFRESH));
        let is_theirs =
            |key: &usize| matches!(state.keys[*key].holder, Some((_, who)) if who.client == client);
        let held: Vec<usize> = (0..state.keys.len()).filter(is_theirs).collect();
        for key in &held {
            state.keys[*key].holder = None;
            state.keys[*key].free_since = now;
        }
        held
    }

    /// Keys that no process releases are in the way of a lock until then.
    pub(crate) fn is_blocked(&self, now: Duration, key: usize, until: Duration) {
        let mut state = self.lock();
        let free_since = &mut state.keys[key].free_since;
        *free_since = until.max(*free_since);
        state.excuses.push((now, until));
    }

    /// A node keeps a key that no process releases until then.
    pub(crate) fn is_stale(&self, key: usize, until: Duration) {
        let stale_until = &mut self.lock().keys[key].stale_until;
        *stale_until = until.max(*stale_until);
    }

    /// Nodes fail for so long.
    pub(crate) fn is_disturbed(&self, now: Duration, lasting: Duration) {
        let mut state = self.lock();
        state.excuses.push((now, now + lasting));
        state.unequal_until = state.unequal_until.max(now + lasting + SKIPPED);
    }

    /// Whether any process holds a key.
    pub(crate) fn is_held(&self, key: usize) -> bool {
        self.lock().keys[key].holder.is_some()
    }

    /// The processes that wait for a key, in the order of their arrival.
    pub(crate) fn line(&self, key: usize) -> Vec<usize> {
        let state = self.lock();
        let mut places = Vec::new();
        for wait in state.waits.values().filter(|wait| wait.keys.contains(&key)) {
            if !places.contains(&wait.who.place) {
                places.push(wait.who.place);
            }
        }
        places
    }

    /// A client sent a command: those of a wait count.
    pub(crate) fn sent(&self, client: Option<usize>, operation: Operation) {
        if let (Some(client), Operation::Queue | Operation::Watch) = (client, operation) {
            self.lock().costs.entry(client).or_default().commands += 1;
        }
    }

    /// A request failed, and these were its attempts.
    pub(crate) fn failed(&self, attempts: Vec<AttemptId>) {
        self.lock().failed.extend(attempts);
    }

    /// A node granted free keys to an attempt.
    pub(crate) fn set(&self, now: Duration, attempt: AttemptId) {
        let mut state = self.lock();
        if state.failed.remove(&attempt) {
            state.broke(now, Rule::C8, "a node granted it after the error");
        }
    }

    /// From now on processes leave: shares are judged as they are.
    pub(crate) fn is_over(&self, now: Duration) {
        let mut state = self.lock();
        if !std::mem::replace(&mut state.is_over, true) {
            state.check_shares(now);
        }
    }

    /// Something else was found.
    pub(crate) fn broke(&self, now: Duration, rule: Rule, what: String) {
        self.lock().broke(now, rule, what);
    }

    /// What must not be, once.
    pub(crate) fn take_wrong(&self) -> Vec<Violation> {
        std::mem::take(&mut self.lock().wrong)
    }

    /// What waiting cost, when no process waits any more.
    pub(crate) fn found(&self, now: Duration) -> Waits {
        let mut state = self.lock();
        state.check_costs(now);
        state.waits_found.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn broke(&mut self, at: Duration, rule: Rule, what: impl fmt::Display) {
        self.wrong.push(Violation::at(at, format!("{rule}: {what}")));
    }

    /// For how much of a wait something else explains that no process was granted the lock.
    fn excused(&self, since: Duration, now: Duration) -> Duration {
        let mut excuses = self.excuses.clone();
        excuses.sort_unstable();
        let (mut sum, mut end) = (Duration::ZERO, since);
        for (from, until) in excuses {
            let (from, until) = (from.max(end), until.min(now));
            sum += until.saturating_sub(from);
            end = end.max(until);
        }
        sum
    }

    fn changes(&mut self, key: usize) {
        for wait in self.waits.values().filter(|wait| wait.keys.contains(&key)) {
            self.costs.entry(wait.who.client).or_default().changes += 1;
        }
    }

    /// A wait is over, whatever came of it.
    fn ends(&mut self, now: Duration, wait: &Wait) {
        for key in &wait.keys {
            if !self.waits.values().any(|other| other.keys.contains(key)) {
                self.keys[*key].waiting_since = None;
            }
        }
        let cost = self.costs.entry(wait.who.client).or_default();
        cost.waiting = cost.waiting.saturating_sub(1);
        if cost.waiting == 0 {
            cost.waited += now.saturating_sub(cost.since);
        }
    }
}

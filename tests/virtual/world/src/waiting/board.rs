//! The waiters and holders at every moment of a world, and what the rules of waiting say of them.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorate_memory::Operation;

use super::plan::Habits;
use crate::history::AttemptId;
use crate::oracle::Violation;
use crate::world::lock;

mod checks;

/// The rules of waiting, the order inside a process, and C8, as a report names them.
pub(crate) mod rule {
    pub(crate) const W1_IDLE: &str = "W1: a free lock was idle while a process waited";
    pub(crate) const W2_SHARE: &str = "W2: a process had less than half of its share";
    pub(crate) const W2_HAND_OVER: &str = "W2: under 90 of 100 releases went to another process";
    /// It waited for longer than all others together can explain.
    pub(crate) const W3_STARVED: &str = "W3: a waiter was starved";
    pub(crate) const W3_LEFT: &str = "W3: the keys of a killed waiter were there after 10 s";
    pub(crate) const W4_COST: &str = "W4: a waiting process sent too many commands";
    pub(crate) const ORDER: &str = "order: a waiter was overtaken inside its process";
    pub(crate) const C8: &str = "C8: a failed request had keys on a node that answers";
}

/// One wait, by the order of arrival.
pub(crate) type WaitId = u64;

/// A process and its manager: a process that starts again has another client, one that closes its
/// manager has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) place: usize,
    pub(crate) client: usize,
    pub(crate) manager: usize,
}

/// The waits and holders of a world.
#[derive(Debug)]
pub(crate) struct Board {
    plan: Habits,
    next: WaitId,
    waits: BTreeMap<WaitId, Wait>,
    keys: Vec<KeyState>,
    costs: BTreeMap<usize, Cost>,
    /// From when to when something else explains that no process was granted a lock.
    excuses: Vec<(Duration, Duration)>,
    broken: Arc<Mutex<Vec<(Duration, Duration)>>>, // The same, for nodes that fail.
    failed: HashSet<AttemptId>, // Attempts of requests that failed: what a node grants them now was left behind.
    pub(super) wrong: Vec<Violation>,
    is_over: bool, // The processes leave, and shares count no more.
    holds: u64,
    contested: u64, // How many releases another process was waiting for.
    to_another: u64,
}

#[derive(Debug)]
struct Wait {
    who: Who,
    keys: Vec<usize>,
    since: Duration,
    deadline: Duration,
    holds: u64,
}

#[derive(Clone, Debug, Default)]
struct KeyState {
    holder: Option<(WaitId, Who)>,
    free_since: Duration, // When the last holder began to release it, or its keys expired.
    waiting_since: Option<Duration>,
    /// Until when a node keeps a key that no process releases. If that is the gate, W1 lets
    /// waiters wait.
    stale_until: Duration,
    contested: Option<usize>, // The process that held it last, if another one was waiting when it was released.
    holds: BTreeMap<usize, u64>,
}

#[derive(Debug, Default)]
struct Cost {
    waiting: usize, // How many waits it has now, and since when it has any.
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
const BEGINNING: Duration = Duration::from_secs(1);

/// The refresh, and a look after it.
const REFRESH: Duration = Duration::from_millis(820);

impl Board {
    pub(crate) fn new(plan: &Habits, broken: Arc<Mutex<Vec<(Duration, Duration)>>>) -> Self {
        Self {
            plan: plan.clone(),
            next: 0,
            waits: BTreeMap::new(),
            keys: vec![KeyState::default(); plan.resources],
            costs: BTreeMap::new(),
            excuses: Vec::new(),
            broken,
            failed: HashSet::new(),
            wrong: Vec::new(),
            is_over: false,
            holds: 0,
            contested: 0,
            to_another: 0,
        }
    }

    pub(crate) fn begins(
        &mut self,
        since: Duration,
        who: Who,
        keys: &[usize],
        deadline: Duration,
    ) -> WaitId {
        for key in keys {
            self.keys[*key].waiting_since.get_or_insert(since);
        }
        let cost = self.costs.entry(who.client).or_default();
        if cost.waiting == 0 {
            cost.since = since;
        }
        cost.waiting += 1;
        let (keys, holds) = (keys.to_vec(), self.holds);
        self.next += 1;
        self.waits.insert(self.next, Wait { who, keys, since, deadline, holds });
        self.next
    }

    /// A wait ended with the lock.
    pub(crate) fn granted(&mut self, now: Duration, id: WaitId) {
        let Some(wait) = self.waits.remove(&id) else { return };
        self.check_order(now, id, &wait);
        self.check_wait(now, &wait);
        let counts = !self.is_over && now >= BEGINNING;
        for key in &wait.keys {
            self.check_idle(now, *key);
            let state = &mut self.keys[*key];
            state.holder = Some((id, wait.who));
            if let Some(before) = state.contested.take().filter(|_| counts) {
                self.contested += 1;
                self.to_another += u64::from(before != wait.who.place);
            }
            if counts {
                *state.holds.entry(wait.who.place).or_default() += 1;
            }
            for other in self.waits.values().filter(|other| other.keys.contains(key)) {
                self.costs.entry(other.who.client).or_default().changes += 1;
            }
        }
        self.costs.entry(wait.who.client).or_default().changes += 1;
        self.ends(now, &wait);
        self.holds += 1;
    }

    /// A wait ended without the lock: with an error, or since it was cancelled.
    pub(crate) fn gave_up(&mut self, now: Duration, id: WaitId) {
        let Some(wait) = self.waits.remove(&id) else { return };
        self.check_wait(now, &wait);
        wait.keys.iter().for_each(|key| self.check_idle(now, *key));
        self.costs.entry(wait.who.client).or_default().changes += 1;
        self.ends(now, &wait);
    }

    /// The holder begins to release. Only the first time counts.
    pub(crate) fn released(&mut self, now: Duration, id: WaitId) {
        // Waits of more than four round trips. A request that is in flight may lose the race.
        let since = now.saturating_sub(self.plan.round_trip() * 4);
        for (key, state) in self.keys.iter_mut().enumerate() {
            if let Some((_, who)) = state.holder.take_if(|(holder, _)| *holder == id) {
                let another = |wait: &Wait| {
                    wait.who.place != who.place && wait.since < since && wait.keys.contains(&key)
                };
                let is_contested = self.waits.values().any(another);
                state.free_since = now;
                state.contested = is_contested.then_some(who.place);
            }
        }
    }

    pub(crate) fn killed(&mut self, now: Duration, client: usize) {
        let waits = std::mem::take(&mut self.waits);
        let dead: BTreeMap<_, _>;
        (dead, self.waits) = waits.into_iter().partition(|(_, wait)| wait.who.client == client);
        dead.values().for_each(|wait| self.ends(now, wait));
        self.excuses.push((now, now + REFRESH));
        for key in &mut self.keys {
            if key.holder.take_if(|(_, who)| who.client == client).is_some() {
                key.free_since = now;
            }
        }
    }

    /// Keys that no process releases are in the way of a lock until then.
    pub(crate) fn is_blocked(&mut self, now: Duration, key: usize, until: Duration) {
        self.keys[key].free_since = until.max(self.keys[key].free_since);
        self.excuses.push((now, until));
    }

    pub(crate) fn is_stale(&mut self, key: usize, until: Duration) {
        self.keys[key].stale_until = until.max(self.keys[key].stale_until);
    }

    pub(crate) fn is_held(&self, key: usize) -> bool {
        self.keys[key].holder.is_some()
    }

    pub(crate) fn line(&self, key: usize) -> Vec<usize> {
        let mut places = Vec::new();
        for wait in self.waits.values().filter(|wait| wait.keys.contains(&key)) {
            if !places.contains(&wait.who.place) {
                places.push(wait.who.place);
            }
        }
        places
    }

    /// A client sent a command: those of a wait count.
    pub(crate) fn sent(&mut self, client: Option<usize>, operation: Operation) {
        if let (Some(client), Operation::Queue | Operation::Watch) = (client, operation) {
            self.costs.entry(client).or_default().commands += 1;
        }
    }

    pub(crate) fn failed(&mut self, attempts: Vec<AttemptId>) {
        self.failed.extend(attempts);
    }

    /// A node granted free keys to an attempt.
    pub(crate) fn set(&mut self, now: Duration, attempt: AttemptId) {
        if self.failed.remove(&attempt) {
            self.broke(now, rule::C8, "a node granted it after the error");
        }
    }

    /// From now on processes leave: shares are judged as they are.
    pub(crate) fn is_over(&mut self, now: Duration) {
        self.is_over = true;
        self.check_shares(now);
    }

    pub(crate) fn broke(&mut self, at: Duration, rule: &str, what: impl fmt::Display) {
        self.wrong.push(Violation::other(at, format!("{rule}: {what}")));
    }

    /// For how much of a wait something else explains that no process was granted the lock.
    fn excused(&self, since: Duration, now: Duration) -> Duration {
        let mut excuses = self.excuses.clone();
        excuses.extend(self.disturbed());
        excuses.sort_unstable();
        let (mut sum, mut end) = (Duration::ZERO, since);
        for (from, until) in excuses {
            let (from, until) = (from.max(end), until.min(now));
            sum += until.saturating_sub(from);
            end = end.max(until);
        }
        sum
    }

    /// From when to when nodes that fail, and the calls that they have not answered, are in the way.
    fn disturbed(&self) -> Vec<(Duration, Duration)> {
        let settles = self.plan.node_timeout() * 2;
        lock(&self.broken).iter().map(|(from, until)| (*from, *until + settles)).collect()
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

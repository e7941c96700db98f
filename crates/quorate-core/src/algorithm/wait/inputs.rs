//! The inputs of the wait machine: what follows from a reply, a push, the time, or a wish of the
//! shell.

use std::time::{Duration, Instant};

use super::super::lease::saturating_add;
use super::super::quorum::NodeId;
use super::place::{NOISY, Place};
use super::{Phase, Refreshed, WaitAction, WaitMachine, WatchedKey};

/// How many attempts may be refused in a row although the gate replied "free".
const MISLED: u8 = 2;

/// The first rest of a misled waiter is a refresh interval divided by this. Each further one is
/// twice as long, up to the whole interval.
const FIRST_REST: u32 = 16;

impl WaitMachine {
    /// Replaces the nodes that may be the gate: those not skipped, ranked anew, the best one first.
    pub fn set_gates(&mut self, gates: &[NodeId]) {
        self.gates.clear();
        self.gates.extend_from_slice(gates);
    }

    /// Gives the wait to the next task of this process.
    ///
    /// The attempt of the task before was cancelled and will not be reported, so the next task
    /// makes one.
    pub fn take_over(&mut self) {
        if let Phase::Trying { is_seen_free } = self.phase
            && self.actions.back() != Some(&WaitAction::Attempt)
        {
            self.attempt(is_seen_free);
        }
    }

    /// The next task waits for other keys: a watch on a lock key of the task before is void.
    pub fn forget_lock_watch(&mut self) {
        if let Some(place) = &mut self.place {
            place.forget_lock_watch();
        }
    }

    /// Handles an attempt that won the lock.
    pub fn handle_won(&mut self) {
        let overtaken = self.overtaken.take();
        self.end(overtaken);
    }

    /// Handles an attempt that was not won.
    ///
    /// The shell calls this when the undo was sent and a random time of one to two durations of the
    /// round, at most a node timeout, has passed. `refresh` is a
    /// [`refresh_interval`](Self::refresh_interval).
    pub fn handle_refused(&mut self, refresh: Duration, now: Instant) {
        let Phase::Trying { is_seen_free } = self.phase else { return };
        self.refused = (self.refused + u8::from(is_seen_free)).min(MISLED);
        self.overtaken = None;
        if self.best_gate().is_some() {
            self.ask(now);
        } else {
            self.phase = Phase::Waiting;
            (self.refresh_at, self.look_at) = (saturating_add(now, refresh), None);
        }
    }

    /// Handles the reply to a refresh. `refresh` is a [`refresh_interval`](Self::refresh_interval).
    pub fn handle_refreshed(&mut self, reply: Refreshed, refresh: Duration, now: Instant) {
        let Phase::Asking { gate, .. } = self.phase else { return };
        if let Some(old) = self.place.take_if(|place| place.gate != gate) {
            self.actions.push_back(WaitAction::Leave { gate: old.gate, also: None });
        }
        let place = self.place.get_or_insert_with(|| Place::new(gate, now));
        let is_free = reply.held.is_none();
        place.update(reply, now);
        self.phase = Phase::Waiting;
        (self.refresh_at, self.look_at) =
            (saturating_add(now, refresh), place.second_look_at(self.is_of_readers));
        if !is_free {
            (self.refused, self.rests) = (0, 0);
        } else if self.refused == MISLED {
            self.refused = MISLED - 1;
            (place.watched, place.first_while_free, self.look_at) = (None, None, None);
            self.refresh_at = saturating_add(now, refresh / (FIRST_REST >> self.rests));
            self.rests = (self.rests + 1).min(FIRST_REST.ilog2());
            return;
        } else if place.predecessor.is_none() || self.look_at.is_some_and(|at| at <= now) {
            let first = place.first_while_free.take().map(|(first, _)| first);
            self.overtaken = first.filter(|_| place.predecessor.is_some());
            return self.attempt(true);
        }
        if self.is_polling {
            self.refresh_at = saturating_add(now, place.polling_interval(refresh, now));
        } else if place.watched.as_ref() == Some(&place.key()) || place.is_absent {
            // The push will come, or there is no key whose write it could report.
        } else if place.fruitless == NOISY {
            // This refresh counts as a look.
            self.look_at = Some(saturating_add(now, place.spacing()));
        } else {
            self.look(now);
        }
    }

    /// Handles the reply to a watch: whether the key is there.
    ///
    /// A node that cannot watch counts as a key that is there: no push comes, and the refresh finds
    /// out.
    pub fn handle_watched(&mut self, is_there: bool, now: Instant) {
        let (Phase::Looking { .. }, Some(place)) = (self.phase, &mut self.place) else { return };
        self.phase = Phase::Waiting;
        if is_there {
            if place.watched.is_none() {
                // The push came before the reply.
                self.wake(now);
            }
            return;
        }
        place.watched = None;
        if place.predecessor.is_none() {
            place.fruitless = 0;
            self.attempt(true);
        } else if !place.is_absent {
            place.is_absent = true;
            self.ask(now);
        }
    }

    /// Handles a push: a watched key was written, or may have been.
    pub fn handle_push(&mut self, key: &WatchedKey, now: Instant) {
        let place = self.place.as_mut();
        let pushed = place.and_then(|place| place.watched.take_if(|watched| watched == key));
        if pushed.is_some() && self.phase == Phase::Waiting {
            self.wake(now);
        }
    }

    /// Handles an error reply of the gate to a refresh or to a watch, or its silence after a
    /// refresh.
    pub fn handle_failure(&mut self, now: Instant) {
        let gate = match (self.phase, &self.place) {
            (Phase::Asking { gate, .. }, _) => gate,
            (Phase::Looking { .. }, Some(place)) => place.gate,
            _ => return,
        };
        self.actions.push_back(WaitAction::Skip(gate));
        self.actions.push_back(WaitAction::Leave { gate, also: None });
        self.place.take_if(|place| place.gate == gate);
        self.gates.retain(|other| *other != gate);
        match &self.place {
            Some(place) => self.ask_at(place.gate, now),
            None => self.ask(now),
        }
    }

    /// Handles the passing of time.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.next_timeout().is_none_or(|at| now < at) {
            return;
        }
        match (self.phase, &mut self.place) {
            (Phase::Asking { .. }, _) => self.handle_failure(now),
            // The gate may be well, and its pushes lost: the refresh finds out, and sends no second
            // watch.
            (Phase::Looking { .. }, _) => self.ask(now),
            (Phase::Waiting, Some(place)) if now < self.refresh_at => {
                self.look_at = None;
                if place.first_while_free.is_some() { self.ask(now) } else { self.look(now) }
            }
            (Phase::Waiting, place) => {
                if let Some(place) = place {
                    place.is_absent = false;
                    // A waiter that went out of turn has removed this entry, and hears of the wait
                    // only from now on: the first push is of a release before that, the second of
                    // one that leaves the lock free.
                    let most = if place.predecessor.is_none() { 1 } else { NOISY };
                    place.fruitless = place.fruitless.min(most);
                }
                self.ask(now);
            }
            (Phase::Trying { .. } | Phase::Over, _) => {}
        }
    }

    /// Ends the wait. The shell undoes an attempt in flight.
    pub fn cancel(&mut self) {
        self.end(None);
    }

    /// Handles a push in phase Waiting.
    fn wake(&mut self, now: Instant) {
        let Some(place) = &mut self.place else { return };
        place.fruitless = (place.fruitless + 1).min(NOISY);
        let rest = place.rest_until;
        if place.fruitless == NOISY && now < rest {
            // A refresh that is due earlier comes at the end of the rest, in place of the look.
            self.look_at = self.look_at.into_iter().chain([rest]).min();
            self.refresh_at = self.refresh_at.max(rest);
        } else if place.predecessor.is_some() {
            self.ask(now);
        } else if place.fruitless == 1 {
            // Most pushes on the lock are releases. An attempt without a look saves a round trip.
            self.attempt(false);
        } else {
            self.look(now);
        }
    }
}

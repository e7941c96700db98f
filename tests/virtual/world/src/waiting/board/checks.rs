//! The rules of waiting, checked as waits end.

use std::time::Duration;

use super::super::plan::MS;
use super::{Board, Cost, REFRESH, SKIPPED, Wait, WaitId, rule};
use crate::plan::Class;

impl Board {
    /// W1: before whatever ends the time without a holder is noted.
    pub(super) fn check_idle(&mut self, now: Duration, key: usize) {
        let state = &self.keys[key];
        let Some(waiting) = state.waiting_since.filter(|_| state.holder.is_none()) else { return };
        let idle = now.saturating_sub(waiting.max(state.free_since).max(state.stale_until));
        if !self.plan.is_ordered() {
            return;
        }
        let timeouts = if self.plan.class == Class::Gate { 2 } else { 0 };
        let disturbed = self.plan.node_timeout() * timeouts;
        if idle > REFRESH + MS * 20 + self.plan.round_trip() * 4 + disturbed {
            self.broke(now, rule::W1_IDLE, format!("{idle:?} without a holder until {now:?}"));
        }
    }

    /// W3: four times as long as all others would need, and what happened meanwhile.
    pub(super) fn check_wait(&mut self, now: Duration, wait: &Wait) {
        let plan = &self.plan;
        // It began before a push was lost, or a gate skipped by some. It may be the only one at its gate, or watch in vain:
        // then it gets the lock when it happens to see it free.
        let is_unequal = self.disturbed().iter().any(|(_, until)| wait.since <= *until + SKIPPED);
        if !plan.is_ordered() || !plan.shows_its_holders() || is_unequal {
            return;
        }
        let waited = now.saturating_sub(wait.since);
        let others = u32::try_from(plan.clients * plan.tasks).unwrap_or(u32::MAX);
        let turn = plan.hold + plan.round_trip() * 6 + MS * 20;
        // One that was overtaken out of turn comes back with its next refresh.
        let bound = turn * others * 4 + REFRESH + self.excused(wait.since, now);
        if waited > bound {
            let (place, holds) = (wait.who.place, self.holds - wait.holds);
            let what = format!(
                "process {place} waited {waited:?} of {bound:?} until {now:?}, for {holds} locks of others"
            );
            self.broke(now, rule::W3_STARVED, what);
        }
    }

    /// Whether a task that came earlier in the same process still waits, though this one has been in its
    /// queue. A request for several keys is at first in the queue of its first key alone.
    pub(super) fn check_order(&mut self, now: Duration, id: WaitId, wait: &Wait) {
        let is_earlier = |(other, earlier): &(&WaitId, &Wait)| {
            let meets = earlier.keys.first().is_some_and(|key| wait.keys.contains(key));
            **other < id && earlier.who == wait.who && meets && earlier.deadline > now
        };
        if let Some((other, _)) = self.waits.iter().find(is_earlier) {
            let what = format!("wait {id} of process {} overtook {other}", wait.who.place);
            self.broke(now, rule::ORDER, what);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub(super) fn check_shares(&mut self, now: Duration) {
        let processes = self.plan.clients as u64;
        let holds = &self.keys[0].holds;
        let all: u64 = holds.values().sum();
        if !self.plan.is_even() || processes < 2 || all < processes * 20 {
            return;
        }
        let count = |place| (holds.get(&place).copied().unwrap_or_default(), place);
        let (least, place) = (0..self.plan.clients).map(count).min().unwrap_or_default();
        let share = least as f64 * processes as f64 / all as f64;
        if share < 0.5 {
            let what = format!("process {place} had {least} of {all} locks: {holds:?}");
            self.broke(now, rule::W2_SHARE, what);
        }
        let (contested, to_another) = (self.contested, self.to_another);
        // Of two, each one that was overtaken out of turn is alone for a refresh.
        if processes > 2 && contested >= 50 && to_another * 10 < contested * 9 {
            self.broke(now, rule::W2_HAND_OVER, format!("{to_another} of {contested}"));
        }
    }

    /// W4: at most two commands a second, and eight per change of holder and for the begin. No process waits any more.
    pub(crate) fn check_costs(&mut self, now: Duration) {
        // What was killed may leave a lock that the gate does not know.
        let is_left = self.keys.iter().any(|key| !key.stale_until.is_zero());
        let is_misled = self.plan.class == Class::Gate || is_left;
        // A waiter that is misled tries three times in its first fifth of a second.
        let (a_second, at_once) = if is_misled { (25, 10) } else { (2, 8) };
        for (client, cost) in std::mem::take(&mut self.costs) {
            let Cost { waited, changes, commands, .. } = cost;
            let millis = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            let bound = a_second * millis / 1_000 + 8 * changes + at_once;
            if self.plan.is_ordered() && commands > bound {
                let what = format!(
                    "client {client} sent {commands} of {bound} in {waited:?} with {changes} changes"
                );
                self.broke(now, rule::W4_COST, what);
            }
        }
    }
}

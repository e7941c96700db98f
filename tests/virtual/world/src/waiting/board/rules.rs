//! What the rules of waiting say of one wait, one time without a holder, one process.

use std::time::Duration;

use super::{REFRESH, State, Wait, WaitId};
use crate::plan::Class;
use crate::waiting::counts::Rule;

impl State {
    /// W1: before whatever ends the time without a holder is noted.
    pub(super) fn check_idle(&mut self, now: Duration, key: usize) {
        let state = &self.keys[key];
        let Some(waiting) = state.waiting_since.filter(|_| state.holder.is_none()) else { return };
        let since = waiting.max(state.free_since).max(state.stale_until);
        let idle = now.saturating_sub(since);
        if !self.plan.is_ordered() {
            return;
        }
        self.waits_found.longest_idle = self.waits_found.longest_idle.max(idle);
        let round = self.plan.round_trip() * 4;
        let disturbed = match self.plan.class {
            Class::Gate => self.plan.node_timeout() * 2,
            _ => Duration::ZERO,
        };
        let short = Duration::from_millis(20) + round;
        if idle > REFRESH + short + disturbed {
            let what = format!("{idle:?} without a holder until {now:?}");
            self.broke(now, Rule::W1Idle, what);
        }
    }

    /// W3: four times as long as all others would need, and what happened meanwhile.
    pub(super) fn check_wait(&mut self, now: Duration, wait: &Wait) {
        if !self.plan.is_ordered() || !self.plan.shows_its_holders() {
            return;
        }
        if self.unequal_until > Duration::ZERO && wait.since <= self.unequal_until {
            return;
        }
        let waited = now.saturating_sub(wait.since);
        let longest = (waited, self.seed);
        self.waits_found.longest_wait = self.waits_found.longest_wait.max(longest);
        let plan = &self.plan;
        let others = u32::try_from(plan.processes * plan.tasks).unwrap_or(u32::MAX);
        let turn = plan.hold + plan.round_trip() * 6 + Duration::from_millis(20);
        // One that was overtaken out of turn comes back with its next refresh.
        let bound = turn * others * 4 + REFRESH + self.excused(wait.since, now);
        if waited > bound {
            let what = format!(
                "process {} waited {waited:?} of {bound:?} until {now:?}, for {} locks of others",
                wait.who.place,
                self.waits_found.holds - wait.holds,
            );
            self.broke(now, Rule::W3Starved, what);
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
            self.broke(now, Rule::Order, what);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "for people")]
    pub(super) fn check_shares(&mut self, now: Duration) {
        let processes = self.plan.processes as u64;
        if !self.plan.is_even() || processes < 2 {
            return;
        }
        let holds = &self.keys[0].holds;
        let all: u64 = holds.values().sum();
        if all < processes * 20 {
            return;
        }
        let count = |place| holds.get(&place).copied().unwrap_or_default();
        let (least, place) =
            (0..self.plan.processes).map(|place| (count(place), place)).min().unwrap_or_default();
        let share = least as f64 * processes as f64 / all as f64;
        self.waits_found.least_share = Some(share);
        if share < 0.5 {
            let what = format!("process {place} had {least} of {all} locks: {holds:?}");
            self.broke(now, Rule::W2Share, what);
        }
        let (contested, to_another) = (self.waits_found.contested, self.waits_found.to_another);
        // Of two, each one that was overtaken out of turn is alone for a refresh.
        if processes > 2 && contested >= 50 && to_another * 10 < contested * 9 {
            let what = format!("{to_another} of {contested}");
            self.broke(now, Rule::W2HandOver, what);
        }
    }

    /// W4: at most two commands a second, and eight per change of holder.
    pub(super) fn check_costs(&mut self, now: Duration) {
        // What was killed may leave a lock that the gate does not know.
        let is_left = self.keys.iter().any(|key| !key.stale_until.is_zero());
        let a_second = if self.plan.class == Class::Gate || is_left { 25 } else { 2 };
        for (client, cost) in &std::mem::take(&mut self.costs) {
            let seconds = u64::try_from(cost.waited.as_millis()).unwrap_or(u64::MAX);
            let bound = a_second * seconds / 1_000 + 8 * cost.changes + 8;
            if self.plan.is_ordered() && cost.commands > bound {
                let what = format!(
                    "client {client} sent {} of {bound} in {:?} with {} changes",
                    cost.commands, cost.waited, cost.changes,
                );
                self.broke(now, Rule::W4Cost, what);
            }
        }
    }
}

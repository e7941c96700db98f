//! Every step that can follow a state.

use std::rc::Rc;

use quorate_pure::core_source::algorithm::attempt::Outcome;

use crate::place::{Entry, FOREIGN, Kind, Place, Request, Side, Stray, Truth, Wrong};
use crate::scope::{Beginning, Hints, NODES, Replies, Scope, Time};
use crate::step::{Fate, Input, Next, Step};
use crate::world::{Caller, Client, Undone, World};

impl World {
    /// Every state that can follow.
    pub(crate) fn steps(&self, scope: &Scope) -> Vec<Next> {
        let mut next = Vec::with_capacity(32);
        let hashes = self.place_hashes();
        for at in 0..NODES {
            // What happens at one of two equal nodes happens at the other.
            if !hashes[..at].contains(&hashes[at]) {
                self.at_place(scope, at, &mut next);
            }
        }
        for at in 0..scope.attempts {
            self.by_caller(scope, at, &mut next);
        }
        self.tick(scope, &mut next);
        next
    }

    fn by_caller(&self, scope: &Scope, at: usize, next: &mut Vec<Next>) {
        let Some(client) = &self.clients[at] else {
            // The attempts differ in nothing but their hints: they begin in order.
            let may_begin = |before: &Client| match before.undone {
                Undone::NotDue => !scope.is_again,
                Undone::Awaited => !scope.is_again || scope.is_ordered,
                Undone::Decided => true,
            };
            if self.clients[..at].iter().all(|it| it.as_deref().is_some_and(may_begin)) {
                next.push(self.drive_new(scope, at));
            }
            return;
        };
        if client.is_quiescent() {
            return;
        }
        if client.is_due(self.start) && scope.has_clock() {
            next.push(self.drive(scope, at, Step::Timeout(at), Input::Timeout));
        }
        let caller = client.caller;
        if matches!(caller, Caller::Holds | Caller::Lapsed) {
            next.push(self.drive(scope, at, Step::Release(at), Input::Release));
            if client.extensions > 0 {
                let extend = Input::Extend(scope.extension_ttl);
                next.push(self.drive(scope, at, Step::Extend(at), extend));
            }
        }
        if caller == Caller::Holds {
            if scope.beginning == Beginning::Adopt {
                next.push(self.drive(scope, at, Step::Detach(at), Input::Detach));
            }
            if client.extensions > 0 && client.asked.is_some() {
                let extend = Input::Extend(scope.extension_ttl + 1);
                next.push(self.drive(scope, at, Step::ExtendLonger(at), extend));
            }
        }
        if scope.is_closed && !client.is_closed {
            next.push(self.drive(scope, at, Step::Close(at), Input::Close));
        }
        if scope.is_cancelled && !matches!(caller, Caller::Gone | Caller::Parted) {
            next.push(self.drive(scope, at, Step::Cancel(at), Input::Cancel));
        }
    }

    fn at_place(&self, scope: &Scope, at: usize, next: &mut Vec<Next>) {
        let place = &*self.places[at];
        let mut change = |step, act: &dyn Fn(&mut Self)| {
            let mut world = self.clone();
            act(&mut world);
            world.forget_strays(scope);
            next.push(Next { step, world, wrong: None });
        };
        if place.owner == Some(FOREIGN) {
            change(Step::ForeignFrees(at), &|world| world.place(at).owner = None);
        }
        // Numbers are bounded so that the states are.
        let may_take = scope.fencing.is_none() || place.number < 2;
        if scope.has_foreign && place.owner.is_none() && may_take {
            change(Step::ForeignTakes(at), &|world| {
                let place = world.place(at);
                place.owner = Some(FOREIGN);
                place.number += u8::from(scope.fencing.is_some());
            });
        }
        let is_ours = place.owner.is_some_and(|owner| owner != FOREIGN);
        if scope.keys_vanish && is_ours {
            change(Step::Vanish(at), &|world| world.place(at).free());
        }
        if self.revokes > 0 && !place.is_marked && is_ours {
            change(Step::Revoke(at), &|world| {
                world.revokes -= 1;
                world.place(at).is_marked = true;
            });
        }
        if self.losses > 0 {
            let lost_at = if scope.has_given_hints() { 0 } else { self.peak + 1 };
            change(Step::LoseData(at), &|world| {
                world.losses -= 1;
                let place = world.place(at);
                (place.owner, place.left, place.number, place.lost_at) = (None, 0, 0, lost_at);
            });
        }
        for from in 0..scope.attempts {
            if self.clients[from].is_some() {
                self.between(scope, from, at, next);
            }
        }
    }

    /// What can happen between one attempt and one node.
    fn between(&self, scope: &Scope, from: usize, node: usize, next: &mut Vec<Next>) {
        let side = &self.places[node].sides[from];
        let strays = if scope.reads_old_first() { 1 } else { usize::MAX };
        for place in 0..side.strays.len().min(strays) {
            if scope.has_clock() || self.has_effect(from, node, side.strays[place].request) {
                next.push(self.execute_stray(scope, from, node, place));
            }
        }
        // Both attempts of a request use one connection.
        let mut before = self.places[node].sides[..from].iter().flat_map(|side| &side.channel);
        let is_behind = scope.reads_old_first() && !side.strays.is_empty()
            || scope.is_again && scope.is_ordered && before.any(|entry| entry.reply.is_none());
        for (place, entry) in side.channel.iter().enumerate() {
            let is_first = side.channel[..place].iter().all(|other| other.reply.is_some());
            if entry.reply.is_none() && (is_first && !is_behind || !scope.is_ordered) {
                self.arrive(scope, from, node, place, next);
            }
            let is_shuffled = scope.replies == Replies::Shuffled || !scope.is_ordered;
            if let Some(outcome) = entry.reply.filter(|_| place == 0 || is_shuffled) {
                self.reply(scope, (from, node, place), outcome, next);
            }
        }
        let Some(client) = &self.clients[from] else { return };
        if scope.has_pushes && client.machine.valid_until().is_some() {
            next.push(self.drive(scope, from, Step::Push(from, node), Input::Push(node)));
        }
        if client.is_quiescent() {
            return;
        }
        let its = client.node(node);
        let may_be_back = side.truth.failure.is_some() || its.is_busy();
        if client.machine.is_releasing() && its.owes_release() && may_be_back {
            next.push(self.drive(scope, from, Step::Back(from, node), Input::Back(node)));
        }
        if self.drops > 0 && !side.channel.is_empty() {
            self.lose_connections(scope, from, node, next);
        }
    }

    /// Whether a request changes something. One that does not is equivalent to a lost one.
    fn has_effect(&self, from: usize, node: usize, request: Request) -> bool {
        let place = &self.places[node];
        match request.kind {
            Kind::Acquire | Kind::Repair => place.owner.is_none(),
            Kind::Raise => place.owner == Some(from) && place.number <= request.number,
            Kind::Release => place.owner == Some(from),
            Kind::Extend | Kind::OldExtend | Kind::Look => false,
        }
    }

    fn execute_stray(&self, scope: &Scope, from: usize, node: usize, place: usize) -> Next {
        let mut world = self.clone();
        let side = &mut world.place(node).sides[from];
        let stray = side.strays.remove(place);
        let Truth { has_voted, number, .. } = side.truth;
        let (_, wrong) = world.execute(scope, from, node, stray);
        // The attempt cannot know of it.
        let truth = &mut world.place(node).sides[from].truth;
        (truth.has_voted, truth.number) = (has_voted, number);
        world.forget_strays(scope);
        let (request, fate) = (stray.request, Fate::Unheard);
        let step = Step::Execute { from, node, request, is_stray: true, fate };
        Next { step, world, wrong }
    }

    /// Executes a request at a node.
    fn execute(
        &mut self,
        scope: &Scope,
        from: usize,
        node: usize,
        stray: Stray,
    ) -> (Outcome<()>, Wrong) {
        let given = self.clients[from].as_ref().map_or(0, |client| client.hint);
        let place = self.place(node);
        let is_read_late = scope.fencing.is_some_and(|it| it.hints == Hints::Arrival);
        let hint = if is_read_late { given.max(place.lost_at) } else { given };
        let (reply, wrong) = place.execute(scope, from, stray, hint);
        let number = place.number;
        if !scope.has_given_hints() {
            self.peak = self.peak.max(number);
        }
        (reply, wrong)
    }

    /// A request arrives at its node.
    fn arrive(&self, scope: &Scope, from: usize, node: usize, at: usize, next: &mut Vec<Next>) {
        let Entry { call, request, .. } = self.places[node].sides[from].channel[at];
        if !scope.has_clock() && !self.has_effect(from, node, request) {
            return;
        }
        let is_revoked = self.clients[from].as_ref().is_some_and(|client| client.is_revoked);
        for (fate, may_be) in [
            (Fate::Replied, true),
            (Fate::Unheard, scope.replies == Replies::AtOnce),
            (Fate::Repeated, self.repeats > 0 && request.sets_key()),
        ] {
            if !may_be {
                continue;
            }
            let step = Step::Execute { from, node, request, is_stray: false, fate };
            let mut world = self.clone();
            let stray = Stray { request, is_excused: false };
            let (outcome, wrong) = world.execute(scope, from, node, stray);
            let side = &mut world.place(node).sides[from];
            if fate == Fate::Repeated {
                side.strays.push(Stray { request, is_excused: true });
            }
            let is_heard_at_once = matches!(scope.replies, Replies::AtOnce | Replies::Certain);
            let is_over = self.clients[from].as_ref().is_none_or(|client| client.is_quiescent());
            if is_heard_at_once || is_over {
                let entry = side.channel.remove(at);
                if fate != Fate::Unheard {
                    side.hear(at, &entry, outcome, !is_revoked);
                }
            } else {
                side.channel[at].reply = Some(outcome);
            }
            world.repeats -= u8::from(fate == Fate::Repeated);
            world.forget_strays(scope);
            if is_heard_at_once && fate != Fate::Unheard && !is_over {
                let replies = [(call, request.kind, outcome)];
                let heard = world.drive(scope, from, step, Input::Replies(&replies));
                next.push(Next { wrong: wrong.or(heard.wrong), ..heard });
            } else {
                next.push(Next { step, world, wrong });
            }
        }
        if scope.has_errors {
            let may_be_unsent = request.sets_key() || request.kind == Kind::Release;
            let unsent = may_be_unsent.then_some(Outcome::NotSent(()));
            for outcome in [Some(Outcome::Failed(())), unsent].into_iter().flatten() {
                let mut world = self.clone();
                world.place(node).sides[from].channel[at].reply = Some(outcome);
                let step = Step::Fail { from, node, request, outcome };
                next.push(Next { step, world, wrong: None });
            }
        }
    }

    fn reply(
        &self,
        scope: &Scope,
        (from, node, at): (usize, usize, usize),
        outcome: Outcome<()>,
        next: &mut Vec<Next>,
    ) {
        let mut world = self.clone();
        let is_revoked = self.clients[from].as_ref().is_some_and(|client| client.is_revoked);
        let side = &mut world.place(node).sides[from];
        let entry = side.channel.remove(at);
        side.hear(at, &entry, outcome, !is_revoked);
        let Entry { call, request, .. } = entry;
        let once = Step::Reply { from, node, request, outcome, is_twice: false };
        let reply = (call, request.kind, outcome);
        next.push(world.drive(scope, from, once, Input::Replies(&[reply])));
        if scope.has_errors {
            let twice = Step::Reply { from, node, request, outcome, is_twice: true };
            next.push(world.drive(scope, from, twice, Input::Replies(&[reply, reply])));
        }
    }

    /// A connection is lost: on an ordered node the only one, on a pool that of one call.
    fn lose_connections(&self, scope: &Scope, from: usize, node: usize, next: &mut Vec<Next>) {
        let channel = &self.places[node].sides[from].channel;
        let all = 0..channel.len();
        let lost: Vec<_> =
            if scope.is_ordered { vec![all] } else { all.map(|at| at..at + 1).collect() };
        for lost in lost {
            let pending = channel[lost.clone()].iter().filter(|entry| entry.reply.is_none());
            let most = if scope.is_delivered_late { pending.clone().count() } else { 0 };
            for delivered in 0..=most {
                let mut world = self.clone();
                world.drops -= 1;
                let side = &mut world.place(node).sides[from];
                let is_excused = !scope.is_ordered;
                let stray = |entry: &Entry| Stray { request: entry.request, is_excused };
                side.strays.extend(pending.clone().take(delivered).map(stray));
                let gone = side.channel.drain(lost.clone());
                let gone = gone.map(|it| (it.call, it.request.kind, Outcome::Lost(())));
                let mut replies: Vec<_> = gone.collect();
                let step = Step::Drop { from, node, delivered };
                next.push(world.drive(scope, from, step, Input::Replies(&replies)));
                if scope.replies == Replies::Shuffled && replies.len() > 1 {
                    replies.reverse();
                    next.push(world.drive(scope, from, step, Input::Replies(&replies)));
                }
            }
        }
    }
    fn tick(&self, scope: &Scope, next: &mut Vec<Next>) {
        let is_due = || self.begun().any(|(_, client)| client.is_due(self.start));
        let under_way = |from: usize| -> usize {
            self.places.iter().map(|place| place.sides[from].channel.len()).sum()
        };
        let is_in_time = scope.under_way.is_none_or(|most| {
            most.iter().enumerate().all(|(from, most)| under_way(from) <= usize::from(*most))
        });
        let may_tick = scope.time == Time::LateTimers || scope.time == Time::Ticks && !is_due();
        if !may_tick || !is_in_time {
            return;
        }
        let mut world = self.clone();
        for client in world.clients.iter_mut().flatten() {
            // A clock that no attempt reads stands still, so that no two states differ only in it.
            if !client.is_quiescent() {
                Rc::make_mut(client).now += 1;
            }
        }
        let promises = |side: &Side| {
            let mut calls = side.channel.iter();
            side.truth.promised > 0 || calls.any(|entry| entry.promises > 0)
        };
        let is_idle = |place: &Place| place.left == 0 && !place.sides.iter().any(promises);
        for at in (0..NODES).filter(|at| !is_idle(&self.places[*at])) {
            let place = world.place(at);
            for side in &mut place.sides {
                let promises = side.channel.iter_mut().map(|entry| &mut entry.promises);
                for left in promises.chain([&mut side.truth.promised]) {
                    *left = left.saturating_sub(1);
                }
            }
            if place.left == 1 {
                place.free();
            }
            place.left = place.left.saturating_sub(1);
        }
        next.push(Next { step: Step::Tick, world, wrong: None });
    }
}

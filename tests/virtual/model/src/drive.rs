//! One input to an attempt: its calls are put on the wire, and its results are judged.

use std::rc::Rc;
use std::time::Instant;

use quorate_pure::core_source::algorithm::attempt::{
    Action, AttemptMachine, CallId, Outcome, Results,
};

use crate::judge::Outputs;
use crate::place::{Entry, Failure, Kind, Request, Stray, Truth, small};
use crate::scope::{Beginning, GRACE, MARGIN, NODES, Scope};
use crate::step::{Input, Next, Step};
use crate::world::{Caller, Client, Undone, World, node_id, ticks, time};

fn drain(machine: &mut AttemptMachine<()>, before: Results) -> Outputs {
    let sends = std::iter::from_fn(|| machine.poll_send());
    let sends = sends.map(|(node, action)| (node.index(), action)).collect();
    Outputs { sends, before, after: machine.results() }
}

impl World {
    /// The first calls of an attempt.
    pub(crate) fn drive_new(&self, scope: &Scope, from: usize) -> Next {
        let mut world = self.clone();
        let mut client = self.begin(scope, from, 0);
        let outputs = drain(&mut client.machine, Results::default());
        world.clients[from] = Some(Rc::new(client));
        world.put_on_the_wire(scope, from, &outputs.sends);
        Next { step: Step::Begin(from), world, wrong: None }
    }

    /// Gives an input to an attempt.
    pub(crate) fn drive(&self, scope: &Scope, from: usize, step: Step, input: Input<'_>) -> Next {
        let mut world = self.clone();
        let Some(before) = self.clients[from].clone() else { unreachable!() };
        if let Input::Replies(replies) = input {
            world.record_failures(from, replies);
        }
        let client = world.client(from);
        let mut opened = client.apply(scope, input, time(self.start, client.now));
        let outputs = drain(&mut client.machine, before.machine.results());
        client.notice_release(&before, input, self.start);
        opened |= client.hear(scope, &outputs);
        if client.caller != Caller::Holds {
            client.asked = None; // A release, or the end of the lease, is the end of the round.
        }
        if client.caller == Caller::Lapsed && client.machine.is_releasing() {
            client.caller = Caller::Gone;
        }
        let wrong = world.judged(scope, from, &before, &outputs, input).judge_results();
        if opened {
            world.forget_round(from);
        }
        world.put_on_the_wire(scope, from, &outputs.sends);
        let wrong =
            wrong.or_else(|| world.judged(scope, from, &before, &outputs, input).judge_machine());
        world.forget_failures(from);
        if !scope.has_clock() && world.client(from).machine.is_releasing() {
            world.retire(from);
        }
        world.forget_strays(scope);
        Next { step, world, wrong }
    }

    /// Without a common clock, an attempt that has ended is what it has sent: its calls are executed in
    /// any order, with a release everywhere.
    fn retire(&mut self, from: usize) {
        self.client(from).is_retired = true;
        let release = {
            let mut calls = self.sides(from).flat_map(|(_, side)| &side.channel);
            calls.find(|entry| entry.request.kind == Kind::Release).map(|entry| entry.request)
        };
        for node in 0..NODES {
            let side = &mut self.place(node).sides[from];
            let calls = std::mem::take(&mut side.channel).into_iter();
            let calls = calls.filter(|it| it.reply.is_none()).map(|it| it.request);
            let calls = calls.filter(|it| it.kind != Kind::Release).chain(release);
            side.strays.extend(calls.map(|request| Stray { request, is_excused: true }));
            side.truth = Truth { was_released: true, is_excused: true, ..Truth::default() };
        }
    }

    /// Without a common clock: forgets requests that can have no effect any more.
    pub(crate) fn forget_strays(&mut self, scope: &Scope) {
        if scope.has_clock() {
            return;
        }
        for from in 0..scope.attempts {
            for node in 0..NODES {
                let place = &*self.places[node];
                let strays = &place.sides[from].strays;
                let may_set = strays.iter().any(|stray| stray.request.sets_key());
                let has_key = place.owner == Some(from) || may_set;
                // The number never falls. A release that does not raise it is as if the key vanished.
                let (number, falls) = (place.number, self.losses > 0);
                let is_idle = |stray: &Stray| {
                    !has_key
                        || !stray.request.sets_key() && stray.request.number <= number && !falls
                };
                if strays.iter().any(is_idle) {
                    self.place(node).sides[from].strays.retain(|stray| !is_idle(stray));
                }
            }
        }
    }

    /// Calls of earlier rounds do not vote in the round that has been opened.
    fn forget_round(&mut self, from: usize) {
        for node in 0..NODES {
            let side = &mut self.place(node).sides[from];
            side.truth.has_voted = false;
            let calls = side.channel.iter_mut().map(|entry| &mut entry.request);
            for request in calls.chain(side.strays.iter_mut().map(|stray| &mut stray.request)) {
                if request.kind == Kind::Extend {
                    request.kind = Kind::OldExtend;
                }
            }
        }
    }

    /// Records what really became of releases.
    fn record_failures(&mut self, from: usize, replies: &[(CallId, Kind, Outcome<()>)]) {
        for (call, kind, outcome) in replies {
            let failure = match outcome {
                Outcome::Failed(()) => Failure::Answered,
                Outcome::Lost(()) | Outcome::NotSent(()) => Failure::Silent,
                Outcome::Granted(_) | Outcome::Refused(()) | Outcome::Marked(()) => continue,
            };
            if *kind == Kind::Release {
                self.place(call.node.index()).sides[from].truth.failure = Some(failure);
            }
        }
    }

    fn forget_failures(&mut self, from: usize) {
        let Some(client) = self.clients[from].clone() else { return };
        for node in 0..NODES {
            let is_over = client.is_quiescent() || !client.node(node).owes_release();
            if is_over && self.places[node].sides[from].truth.failure.is_some() {
                self.place(node).sides[from].truth.failure = None;
            }
        }
    }

    fn put_on_the_wire(&mut self, scope: &Scope, from: usize, sends: &[(usize, Action)]) {
        for (node, action) in sends {
            // Whether the cleanup bound of the attempt has been reached.
            let is_bound = self.clients[from].as_ref().is_some_and(|client| {
                let end = client.ended_at.map(|ended| ended + u32::from(client.longest_ttl));
                !scope.has_clock() || end.is_some_and(|end| client.now >= end)
            });
            let side = &mut self.place(*node).sides[from];
            match action {
                Action::Send(call, message) => {
                    let request = Request::of(*message);
                    if request.kind == Kind::Repair {
                        side.channel.iter_mut().for_each(|older| older.is_outdated = true);
                    }
                    let is_promise = matches!(request.kind, Kind::Acquire | Kind::Extend);
                    let promises = if is_promise { request.ttl.saturating_sub(MARGIN) } else { 0 };
                    let (call, reply, is_outdated) = (*call, None, false);
                    side.channel.push(Entry { call, request, reply, promises, is_outdated });
                }
                Action::GiveUp(call) => {
                    let given_up = side.channel.iter().position(|entry| entry.call == *call);
                    let entry = given_up.map(|at| side.channel.remove(at));
                    if let Some(entry) = entry.filter(|entry| entry.reply.is_none()) {
                        let request = entry.request;
                        side.strays.push(Stray { request, is_excused: is_bound });
                    }
                }
            }
        }
        if self.clients[from].as_ref().is_some_and(|client| client.is_quiescent()) {
            // The attempt hears no replies any more.
            for node in 0..NODES {
                let mut calls = self.places[node].sides[from].channel.iter();
                if calls.any(|entry| entry.reply.is_some()) {
                    self.place(node).sides[from].channel.retain(|entry| entry.reply.is_none());
                }
            }
        }
    }
}

impl Client {
    /// Gives the input to the attempt; returns whether a round has been opened for the caller.
    fn apply(&mut self, scope: &Scope, input: Input<'_>, now: Instant) -> bool {
        let is_adopting = scope.beginning == Beginning::Adopt && self.caller == Caller::Waits;
        let without_guard = if is_adopting { Caller::Parted } else { Caller::Gone };
        match input {
            Input::Replies(replies) => {
                let replies = replies.iter();
                replies.for_each(|(call, _, reply)| self.machine.handle_reply(*call, *reply, now));
            }
            Input::Timeout => self.machine.handle_timeout(now),
            Input::Release => {
                self.machine.release(now);
                self.caller = Caller::Releases;
            }
            Input::Cancel => {
                self.machine.cancel(now);
                self.caller = without_guard;
            }
            Input::Detach => {
                self.machine.detach(now);
                self.caller = Caller::Parted;
            }
            Input::Close => {
                self.machine.close(ticks(GRACE).as_duration(), now);
                self.is_closed = true;
                if self.caller == Caller::Waits {
                    self.caller = without_guard;
                }
            }
            Input::Back(node) => self.machine.handle_back(node_id(node), now),
            Input::Push(node) => self.machine.handle_push(node_id(node), now),
            Input::Extend(ttl) => return self.extend(ttl, now),
        }
        false
    }

    fn extend(&mut self, ttl: u8, now: Instant) -> bool {
        let round = self.machine.extend(ticks(ttl), now);
        self.extensions -= 1;
        if round == Some(self.machine.round()) {
            self.longest_ttl = self.longest_ttl.max(ttl);
        }
        let opened = round.is_some() && self.asked.is_none();
        self.asked = self.asked.max(round);
        opened
    }

    /// Notices that the release has begun, or that no caller waits for it any more.
    fn notice_release(&mut self, before: &Self, input: Input<'_>, start: Instant) {
        if self.machine.is_releasing() && !before.machine.is_releasing() {
            self.ended_at = Some(self.now);
            let is_awaited = matches!(input, Input::Release) && before.is_valid(start);
            self.awaits_cleared = !is_awaited;
        }
        let was_awaited = before.caller == Caller::Releases;
        self.awaits_cleared |= was_awaited && matches!(input, Input::Cancel);
    }

    /// Takes the results to the caller; returns whether the next round has been opened with them.
    fn hear(&mut self, scope: &Scope, outputs: &Outputs) -> bool {
        let Outputs { before, after, .. } = outputs;
        let mut opened = false;
        if let Some(first) = after.first.filter(|_| before.first.is_none()) {
            let is_adopting = scope.beginning == Beginning::Adopt;
            match first {
                Ok(()) => {
                    (self.caller, self.has_won) = (Caller::Holds, true);
                    self.token = self.machine.fencing_token().map(small);
                }
                Err(_) if is_adopting => self.caller = Caller::Parted,
                Err(_) => (self.caller, self.undone) = (Caller::Gone, Undone::Awaited),
            }
        }
        if let Some(round) = outputs.round() {
            self.asked = self.asked.filter(|asked| *asked > round);
            if self.asked.is_some() {
                self.longest_ttl = self.longest_ttl.max(scope.extension_ttl + 1);
            }
            opened = self.asked.is_some();
        }
        self.is_revoked |= after.is_revoked;
        let is_held = matches!(self.caller, Caller::Holds | Caller::Parted);
        if outputs.is_lost() && is_held {
            self.caller = Caller::Lapsed;
        }
        if outputs.is_released() {
            self.caller = Caller::Gone;
        }
        if outputs.is_undone() {
            self.undone = Undone::Decided;
        }
        if outputs.is_cleared() {
            self.awaits_cleared = false;
        }
        opened
    }
}

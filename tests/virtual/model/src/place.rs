//! A node: the key, the number, and the messages in flight between it and each attempt.

use quorate_pure::core_source::algorithm::attempt::{CallId, Message, Outcome};
use quorate_pure::core_source::algorithm::fence::FencingToken;
use quorate_pure::core_source::algorithm::lease::Ttl;

use crate::scope::{Hints, MOST, Scope};

/// A key that was set behind the release that undoes it.
pub(crate) const LATE_EFFECT: &str = "C3: an acquire or a repair took effect behind its release";

/// An attempt that was refused by the attempt before it, of the same request.
pub(crate) const OWN_KEY: &str = "C8: refused by the key of the same request's last attempt";

/// What is wrong, if anything is.
pub(crate) type Wrong = Option<&'static str>;

/// The owner of a key that is no attempt.
pub(crate) const FOREIGN: usize = 9;

/// A request to a node, without the name of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    /// In ticks.
    pub(crate) ttl: u8,
    /// The token, or the highest number.
    pub(crate) number: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Acquire,
    Extend,
    /// An extension of a round that is over.
    OldExtend,
    Raise,
    Repair,
    Look,
    Release,
}

impl Request {
    pub(crate) fn of(message: Message) -> Self {
        let ticks = |ttl: Ttl| u8::try_from(ttl.as_duration().as_secs()).unwrap_or(u8::MAX);
        let (kind, ttl, number) = match message {
            Message::Acquire { ttl } => (Kind::Acquire, ticks(ttl), None),
            Message::Extend { ttl } => (Kind::Extend, ticks(ttl), None),
            Message::Repair { ttl } => (Kind::Repair, ticks(ttl), None),
            Message::Raise { token } => (Kind::Raise, 0, Some(token)),
            Message::Look => (Kind::Look, 0, None),
            Message::Release { highest } => (Kind::Release, 0, highest),
        };
        Self { kind, ttl, number: number.map_or(0, small) }
    }

    /// Whether it may set the key.
    pub(crate) const fn sets_key(self) -> bool {
        matches!(self.kind, Kind::Acquire | Kind::Repair)
    }
}

/// A fencing number: the model's are small.
pub(crate) fn small(token: FencingToken) -> u8 {
    u8::try_from(token.get()).unwrap_or(u8::MAX)
}

/// A call in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) call: CallId,
    pub(crate) request: Request,
    /// The reply, once the node has made one. It has not arrived yet.
    pub(crate) reply: Option<Outcome<()>>,
    /// For how many ticks a grant promises to keep the key.
    pub(crate) promises: u8,
    /// A later call has said that the key is not ours, or may have set it.
    pub(crate) is_outdated: bool,
}

/// A request that a node executes; as a stray, one that is still in flight, while its attempt awaits no reply any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stray {
    pub(crate) request: Request,
    /// Whether a key that it sets is one that no client can prevent.
    pub(crate) is_excused: bool,
}

/// Between one attempt and one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    /// The calls in flight, oldest first.
    pub(crate) channel: Vec<Entry>,
    pub(crate) strays: Vec<Stray>,
    pub(crate) truth: Truth,
}

/// What really happened at a node, whatever the attempt knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Truth {
    /// The node did what the open round asks for.
    pub(crate) has_voted: bool,
    pub(crate) was_released: bool,
    pub(crate) has_deleted: bool,
    /// A key here is one that no client can prevent.
    pub(crate) is_excused: bool,
    /// The number that the node last gave to the attempt, or voted for.
    pub(crate) number: u8,
    /// How the last release that failed did so.
    pub(crate) failure: Option<Failure>,
    /// For how many ticks the node has promised to keep the key, as far as the attempt has heard.
    pub(crate) promised: u8,
}

impl Side {
    /// The attempt hears the reply of a call, of which those before `at` in the channel are older.
    /// Without `counts`, a grant promises nothing.
    pub(crate) fn hear(&mut self, at: usize, entry: &Entry, outcome: Outcome<()>, counts: bool) {
        if entry.is_outdated || matches!(entry.request.kind, Kind::Raise | Kind::Release) {
            return;
        }
        match outcome {
            Outcome::Granted(_) if counts => {
                self.truth.promised = self.truth.promised.max(entry.promises);
            }
            Outcome::Refused(()) => self.truth.promised = 0,
            _ => {}
        }
        if matches!(outcome, Outcome::Refused(()) | Outcome::Marked(())) {
            self.channel[..at].iter_mut().for_each(|older| older.is_outdated = true);
        }
    }
}

/// How a release failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Failure {
    /// The node answered with an error.
    Answered,
    Silent,
}

/// A node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    /// The attempt that has the key, or `FOREIGN`.
    pub(crate) owner: Option<usize>,
    /// A revoke has put its mark in place of the owner's token.
    pub(crate) is_marked: bool,
    /// How many ticks the key lives.
    pub(crate) left: u8,
    /// F: it stays when the key goes.
    pub(crate) number: u8,
    pub(crate) sides: [Side; MOST],
    /// Which attempts were granted the key.
    pub(crate) granted: [bool; MOST],
    /// For each attempt, which others were granted the key before it.
    pub(crate) before: [[bool; MOST]; MOST],
    /// What a clock said when the node lost its data.
    pub(crate) lost_at: u8,
}

impl Place {
    /// Executes a request of attempt `from`; returns the reply and the mistake in its effect.
    pub(crate) fn execute(
        &mut self,
        scope: &Scope,
        from: usize,
        stray: Stray,
        hint: u8,
    ) -> (Outcome<()>, Wrong) {
        let request = stray.request;
        let is_ours = self.has_token_of(from);
        let mut wrong = None;
        let is_granted = match request.kind {
            Kind::Acquire => return self.acquire(scope, from, stray, hint),
            Kind::Extend | Kind::OldExtend | Kind::Look if !is_ours && self.owner == Some(from) => {
                return (Outcome::Marked(()), None);
            }
            Kind::Repair => {
                if self.owner.is_none() {
                    wrong = self.set_key(scope, from, stray);
                }
                self.has_token_of(from)
            }
            Kind::Extend | Kind::OldExtend if is_ours => {
                self.left = self.left.max(request.ttl);
                self.sides[from].truth.has_voted |= request.kind == Kind::Extend;
                true
            }
            Kind::Extend | Kind::OldExtend => false,
            Kind::Look => is_ours,
            Kind::Raise => self.raise(from, request.number),
            Kind::Release => self.release(from, request.number),
        };
        let reply = if is_granted { Outcome::Granted(None) } else { Outcome::Refused(()) };
        (reply, wrong)
    }

    fn acquire(
        &mut self,
        scope: &Scope,
        from: usize,
        stray: Stray,
        hint: u8,
    ) -> (Outcome<()>, Wrong) {
        let is_own = |owner: usize| owner != from && owner != FOREIGN;
        let mut wrong = (scope.is_again && self.owner.is_some_and(is_own)).then_some(OWN_KEY);
        // The restart guard keeps the node from granting.
        let is_guarded = scope.fencing.is_some_and(|fencing| fencing.hints == Hints::Quarantine);
        if is_guarded && hint < self.lost_at {
            return (Outcome::Failed(()), wrong);
        }
        if self.owner.is_none() {
            wrong = self.set_key(scope, from, stray);
            if scope.fencing.is_some() {
                self.number = (self.number + 1).max(hint);
                for (other, granted) in self.granted.iter().enumerate() {
                    self.before[from][other] |= *granted && other != from;
                }
                self.granted[from] = true;
            }
        }
        if !self.has_token_of(from) {
            return (Outcome::Refused(()), wrong);
        }
        let truth = &mut self.sides[from].truth;
        (truth.has_voted, truth.number) = (true, self.number);
        (Outcome::Granted(FencingToken::new(self.number.into())), wrong)
    }

    /// Whether the value of the key is the token of the attempt, and not the mark for it.
    fn has_token_of(&self, from: usize) -> bool {
        self.owner == Some(from) && !self.is_marked
    }

    fn raise(&mut self, from: usize, number: u8) -> bool {
        let is_raised = self.has_token_of(from) && self.number <= number;
        if is_raised {
            self.number = number;
            self.sides[from].truth.number = number;
        }
        is_raised
    }

    fn release(&mut self, from: usize, number: u8) -> bool {
        let is_ours = self.owner == Some(from);
        let truth = &mut self.sides[from].truth;
        truth.was_released = true;
        truth.has_deleted |= is_ours;
        if is_ours {
            self.number = self.number.max(number);
            self.free();
        }
        is_ours
    }

    /// The key goes.
    pub(crate) fn free(&mut self) {
        (self.owner, self.left, self.is_marked) = (None, 0, false);
    }

    fn set_key(&mut self, scope: &Scope, from: usize, stray: Stray) -> Wrong {
        self.owner = Some(from);
        self.left = if scope.has_clock() { stray.request.ttl } else { 0 };
        let truth = &mut self.sides[from].truth;
        if !truth.was_released {
            return None;
        }
        truth.is_excused = true;
        let is_fine = stray.is_excused && !scope.is_strict || !scope.has_clock();
        (!is_fine).then_some(LATE_EFFECT)
    }
}

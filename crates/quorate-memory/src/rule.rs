//! What happens to messages between clients and nodes: values that compose.

use std::time::Duration;

use quorate_core::backend::{Capabilities, Claim, Mode, Operation as Called};

/// What happens to a message between a client and a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// Nothing, and no later rule applies.
    Pass,
    /// Request and reply each take a time drawn evenly from these bounds. Delays add up.
    Delay {
        /// The shortest.
        least: Duration,
        /// The longest.
        most: Duration,
    },
    /// The request is held back for up to this long, so that later ones overtake it.
    Reorder(Duration),
    /// The request never arrives, and the call stays pending.
    DropRequest,
    /// The request is executed, and the call stays pending.
    DropReply,
    /// The request is executed, and the connection breaks before the reply.
    Cut,
    /// The request arrives twice, the second time this much later. Not on an ordered connection.
    Duplicate(Duration),
}

/// Which call a message belongs to, as [`backend::Operation`](quorate_core::backend::Operation)
/// names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// An acquire.
    Acquire,
    /// An extension.
    Extend,
    /// A raise.
    Raise,
    /// A release.
    Release,
    /// A look at the keys of a lock that is held, and the push to a lease. What a rule does to
    /// replies, it does to the push.
    Look,
    /// An inspection.
    Inspect,
    /// A revoke.
    Revoke,
    /// A description.
    Describe,
    /// The question for the server id. The id that comes with a vote is a part of that reply.
    ServerId,
    /// A refresh or a leave.
    Queue,
    /// A watch with its reply, and the push that ends it. The push is a message of its own: what a
    /// rule does to replies, it does to the push.
    Watch,
}

impl Operation {
    /// The operation of a call, and what a backend must be built for to carry it out.
    pub(crate) fn of(called: &Called) -> Option<(Self, Capabilities)> {
        const NONE: Capabilities = Capabilities::NONE;
        let shared = |claim: &Claim| match claim.mode() {
            Mode::Exclusive => NONE,
            Mode::Shared => Capabilities::SHARED,
        };
        let of = match called {
            Called::Acquire(claim, options) => {
                let fencing = options.fencing.map_or(NONE, |_| Capabilities::FENCING);
                let guard = options.guard.map_or(NONE, |_| Capabilities::GUARD);
                (Self::Acquire, fencing | guard | shared(claim))
            }
            Called::Extend(claim, _) => (Self::Extend, shared(claim)),
            Called::Look(_) => (Self::Look, Capabilities::PUSH),
            Called::Raise(..) => (Self::Raise, Capabilities::FENCING),
            Called::Release(claim, options) => {
                let fencing = options.raise_to.map_or(NONE, |_| Capabilities::FENCING);
                (Self::Release, fencing | shared(claim))
            }
            Called::Refresh { .. } | Called::Leave { .. } => (Self::Queue, Capabilities::QUEUE),
            Called::Watch { .. } => (Self::Watch, Capabilities::WATCH),
            Called::Inspect { .. } => (Self::Inspect, Capabilities::INSPECT),
            Called::Revoke { .. } => (Self::Revoke, Capabilities::REVOKE),
            Called::Describe => (Self::Describe, Capabilities::DESCRIBE),
            Called::ServerId => (Self::ServerId, Capabilities::SERVER_ID),
            _ => return None,
        };
        // Readers have no numbers.
        Some(of).filter(|(_, needs)| !needs.contains(Capabilities::FENCING | Capabilities::SHARED))
    }
}

/// An [`Effect`], and which messages it befalls: all, unless said otherwise.
///
/// A node asks its rules in the order in which they were added, and all that apply take effect
/// together. `Rule` by `Rule`, a network is described:
///
/// ```
/// use std::time::Duration;
/// use quorate_memory::{Effect, MemoryNode, Operation, Rule, Sim};
///
/// let sim = Sim::new(1);
/// let node = MemoryNode::new("far away", sim.clone());
/// let ms = Duration::from_millis;
/// node.add_rule(Rule::new(Effect::Delay { least: ms(20), most: ms(80) }));
/// // One release in ten is never heard of, and its caller never learns.
/// node.add_rule(Rule::new(Effect::DropRequest).on(Operation::Release).chance(100_000));
/// // Nothing comes back to this client: a partition in one direction.
/// let client = sim.client(0);
/// node.add_rule(Rule::new(Effect::DropReply).client(&client));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    effect: Effect,
    operation: Option<Operation>,
    client: Option<usize>,
    parts_per_million: u32,
}

impl Rule {
    /// `effect`, on every message.
    #[must_use]
    pub const fn new(effect: Effect) -> Self {
        Self { effect, operation: None, client: None, parts_per_million: 1_000_000 }
    }

    /// Only on this operation.
    #[must_use]
    pub const fn on(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// Only between the node and this client.
    #[must_use]
    pub const fn client(mut self, client: &crate::SimClient) -> Self {
        self.client = Some(client.id());
        self
    }

    /// Only on so many of a million messages, drawn at random.
    #[must_use]
    pub const fn chance(mut self, parts_per_million: u32) -> Self {
        self.parts_per_million = parts_per_million;
        self
    }

    fn applies(
        &self,
        operation: Operation,
        client: Option<usize>,
        random: &mut dyn FnMut(u64) -> u64,
    ) -> bool {
        self.operation.is_none_or(|only| only == operation)
            && self.client.is_none_or(|only| Some(only) == client)
            && (self.parts_per_million >= 1_000_000
                || random(1_000_000) < u64::from(self.parts_per_million))
    }
}

/// What all rules together do to one message and its reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Journey {
    pub(crate) request: Duration,
    pub(crate) reply: Duration,
    pub(crate) loses_request: bool,
    pub(crate) loses_reply: bool,
    pub(crate) is_cut: bool,
    pub(crate) again: Option<Duration>,
}

impl Journey {
    /// `random` draws a number below its argument.
    pub(crate) fn new(
        rules: &[Rule],
        operation: Operation,
        client: Option<usize>,
        random: &mut dyn FnMut(u64) -> u64,
    ) -> Self {
        let mut journey = Self::default();
        for rule in rules {
            if !rule.applies(operation, client, random) {
                continue;
            }
            match rule.effect {
                Effect::Pass => break,
                Effect::Delay { least, most } => {
                    journey.request += between(least, most, random);
                    journey.reply += between(least, most, random);
                }
                Effect::Reorder(most) => journey.request += between(Duration::ZERO, most, random),
                Effect::DropRequest => journey.loses_request = true,
                Effect::DropReply => journey.loses_reply = true,
                Effect::Cut => journey.is_cut = true,
                Effect::Duplicate(after) => journey.again = Some(after),
            }
        }
        journey
    }
}

fn between(least: Duration, most: Duration, random: &mut dyn FnMut(u64) -> u64) -> Duration {
    let span = most.saturating_sub(least).as_nanos();
    let span = u64::try_from(span).unwrap_or(u64::MAX - 1);
    least + Duration::from_nanos(random(span + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn journey(rules: &[Rule]) -> Journey {
        Journey::new(rules, Operation::Acquire, Some(1), &mut |bound| bound - 1)
    }

    #[test]
    fn rules_add_up_until_one_passes() {
        let delay = Rule::new(Effect::Delay { least: MS, most: 2 * MS });
        let lost = Rule::new(Effect::DropReply);
        let pass = Rule::new(Effect::Pass);
        let both = journey(&[delay, delay, lost]);
        assert_eq!((both.request, both.reply, both.loses_reply), (4 * MS, 4 * MS, true));
        assert!(!journey(&[delay, pass, lost]).loses_reply);
        assert_eq!(journey(&[]), Journey::default());
    }

    #[test]
    fn a_rule_befalls_only_what_it_names() {
        let client = crate::Sim::new(0).client(0);
        let other = crate::Sim::new(0);
        let _first = other.client(0);
        let second = other.client(0);
        let lost = Rule::new(Effect::DropRequest);
        assert!(journey(&[lost.client(&client)]).loses_request);
        assert!(!journey(&[lost.client(&second)]).loses_request);
        assert!(!journey(&[lost.on(Operation::Release)]).loses_request);
        assert!(!journey(&[lost.chance(0)]).loses_request);
        assert!(
            !journey(&[lost.chance(999_999)]).loses_request,
            "the draw is the last of a million"
        );
        assert!(journey(&[lost.chance(1_000_000)]).loses_request);
    }
}

//! All that can happen: nodes, attempts, and what is on its way between them.

use stateright::{Model, Property};

use crate::case::{Case, Hints};
use crate::client::{Client, NODES, Phase};
use crate::node::{self, Node, Number, Reply, Request};
use crate::set::Set;

/// A node, and what only we know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a part of the tests")]
pub struct Place<const A: usize> {
    /// The node.
    pub node: Node,
    /// To whom it has granted. Another grant needs a resent acquire.
    pub granted: Set,
    /// For each attempt, to whom it was granted later.
    pub after: [Set; A],
    /// What a clock said, at the least, when the node lost its data.
    pub lost_at: Number,
}

/// An attempt, and what only we know of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a part of the tests")]
pub struct Attempt {
    /// The client.
    pub client: Client,
    /// Its clock, when it began.
    pub hint: Number,
    /// Who was confirmed before it began.
    pub older: Set,
    /// How many acquires may still be resent.
    pub resends: u8,
}

/// The state: N nodes and A attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a part of the tests")]
pub struct World<const A: usize> {
    /// The nodes.
    pub places: [Place<A>; NODES],
    /// The attempts.
    pub attempts: [Attempt; A],
    /// The highest number that there ever was; kept only where hints depend on it.
    pub peak: Number,
    /// How often a node may still lose its data.
    pub losses: u8,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a part of the tests")]
pub enum Step {
    /// An attempt begins: its acquires are on their way.
    Begin(usize),
    /// A client with grants of a quorum that does not agree wants votes.
    Raise(usize),
    /// A client releases the lock, or gives up: its releases are on their way.
    End(usize),
    /// A request arrives.
    Arrive {
        /// The attempt that sent it.
        from: usize,
        /// The node.
        node: usize,
        /// The request.
        request: Request,
        /// Whether the reply arrives as well.
        is_heard: bool,
    },
    /// A key vanishes: its time was up, or the node thought so.
    Vanish(usize),
    /// A node loses its data.
    Lose(usize),
}

impl<const A: usize> World<A> {
    /// The nodes' numbers at the beginning, and the clocks.
    #[must_use]
    pub fn new(fences: [Number; NODES], hints: [Number; A], case: &Case<A>) -> Self {
        let place = |fence| Place {
            node: Node { key: None, fence },
            granted: Set::default(),
            after: [Set::default(); A],
            lost_at: 0,
        };
        let attempt = |hint| Attempt { hint, resends: case.resends, ..Attempt::default() };
        let peak = fences.into_iter().max().unwrap_or(0);
        Self {
            places: fences.map(place),
            attempts: hints.map(attempt),
            peak: if case.hints == Hints::Given { 0 } else { peak },
            losses: case.losses,
        }
    }

    /// The token of each attempt that was ever confirmed.
    fn tokens(&self) -> impl Iterator<Item = (usize, Number)> + '_ {
        let tokens = self.attempts.iter().map(|attempt| attempt.client.token);
        tokens.enumerate().filter_map(|(at, token)| Some((at, token?)))
    }

    fn pairs(&self) -> impl Iterator<Item = ((usize, Number), (usize, Number))> + '_ {
        let others = move |one: (usize, Number)| {
            self.tokens().filter(move |other| other.0 != one.0).map(move |other| (one, other))
        };
        self.tokens().flat_map(others)
    }

    /// No two attempts are confirmed with the same token.
    fn is_unique(&self) -> bool {
        self.pairs().all(|((_, one), (_, other))| one != other)
    }

    /// Who was confirmed before another began has the lower token.
    fn is_in_time(&self) -> bool {
        self.pairs().all(|((a, low), (b, high))| !self.attempts[b].older.has(a) || low < high)
    }

    /// Who was granted every common node later has the higher token.
    ///
    /// So whoever has the higher token was granted some node after the other.
    fn is_in_tenure(&self) -> bool {
        self.pairs().all(|((a, high), (b, low))| {
            high <= low || self.places.iter().any(|place| place.after[a].has(b))
        })
    }

    /// One world for all that differ only in which node is called which: sorted by all that is kept
    /// by node.
    #[must_use]
    pub fn representative(&self) -> Self {
        let mut order = [0, 1, 2];
        order.sort_by_key(|node| {
            let by_client = self.attempts.map(|Attempt { client, .. }| {
                (client.numbers[*node], client.asked.has(*node), client.votes.has(*node))
            });
            (self.places[*node], by_client)
        });
        self.renamed(&order)
    }

    fn renamed(&self, order: &[usize; NODES]) -> Self {
        let mut world = *self;
        world.places = order.map(|old| self.places[old]);
        for attempt in &mut world.attempts {
            let client = &mut attempt.client;
            client.numbers = order.map(|old| client.numbers[old]);
            client.asked = client.asked.renamed(order);
            client.votes = client.votes.renamed(order);
        }
        world
    }
}

impl<const A: usize> Model for Case<A> {
    type State = World<A>;
    type Action = Step;

    fn init_states(&self) -> Vec<World<A>> {
        let worlds = |fences: &[Number; NODES]| {
            let fences = *fences;
            self.clocks.iter().map(move |clocks| World::new(fences, *clocks, self))
        };
        self.fences.iter().flat_map(worlds).collect()
    }

    fn actions(&self, world: &World<A>, steps: &mut Vec<Step>) {
        for (at, place) in world.places.iter().enumerate() {
            if place.node.key.is_some() {
                steps.push(Step::Vanish(at));
            }
            if world.losses > 0 {
                steps.push(Step::Lose(at));
            }
        }
        for (from, attempt) in world.attempts.iter().enumerate() {
            match attempt.client.phase {
                Phase::Idle => {
                    steps.push(Step::Begin(from));
                    continue;
                }
                Phase::Granting | Phase::Raising | Phase::Reading | Phase::Holding => {
                    steps.push(Step::End(from));
                }
                Phase::Ended => {}
            }
            if attempt.client.has_quorum() {
                steps.push(Step::Raise(from));
            }
            for node in 0..NODES {
                for request in self.on_their_way(world, from, node).into_iter().flatten() {
                    steps.push(Step::Arrive { from, node, request, is_heard: true });
                    if self.is_lossy {
                        steps.push(Step::Arrive { from, node, request, is_heard: false });
                    }
                }
            }
        }
    }

    fn next_state(&self, last: &World<A>, step: Step) -> Option<World<A>> {
        let mut world = *last;
        match step {
            Step::Begin(from) => {
                let mut older = Set::default();
                for (at, _) in last.tokens() {
                    older = older.with(at);
                }
                let attempt = &mut world.attempts[from];
                attempt.older = older;
                attempt.client.begin();
                if self.hints != Hints::Given {
                    attempt.hint = last.peak + 1;
                }
            }
            Step::Raise(from) => self.raise(&mut world.attempts[from].client),
            Step::End(from) => world.attempts[from].client.end(),
            Step::Vanish(node) => world.places[node].node.key = None,
            Step::Lose(node) => {
                let place = &mut world.places[node];
                place.node = Node::default();
                place.lost_at = if self.hints == Hints::Given { 0 } else { last.peak + 1 };
                world.losses -= 1;
            }
            Step::Arrive { from, node, request, is_heard } => {
                let reply = self.arrive(&mut world, from, node, request);
                if is_heard {
                    self.hear(&mut world.attempts[from].client, node, request, reply);
                }
            }
        }
        if self.hints != Hints::Given {
            let fences = world.places.iter().map(|place| place.node.fence);
            world.peak = fences.fold(world.peak, Number::max);
        }
        // What changes nothing, as a request that is refused, is as good as lost.
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(UNIQUE, |_, world: &World<A>| world.is_unique()),
            Property::always(IN_TIME, |_, world: &World<A>| world.is_in_time()),
            Property::always(IN_TENURE, |_, world: &World<A>| world.is_in_tenure()),
            Property::sometimes(ALL_CONFIRMED, |_, world: &World<A>| world.tokens().count() == A),
            Property::sometimes(ALL_VOTED, |_, world: &World<A>| {
                world.attempts.iter().all(|attempt| {
                    let client = attempt.client;
                    client.token.is_some() && client.token == Some(client.wanted)
                })
            }),
        ]
    }
}

/// No two attempts are confirmed with the same token.
pub const UNIQUE: &str = "unique";
/// Confirmed before the other began: a lower token.
pub const IN_TIME: &str = "real-time order";
/// Granted every common node later: a higher token.
pub const IN_TENURE: &str = "tenure order";
/// There are runs in which all attempts are confirmed.
pub const ALL_CONFIRMED: &str = "all are confirmed";
/// There are runs in which all of them needed the second round.
pub const ALL_VOTED: &str = "all needed votes";

impl<const A: usize> Case<A> {
    /// What may arrive at a node now. Nothing is ever too late.
    fn on_their_way(&self, world: &World<A>, from: usize, node: usize) -> [Option<Request>; 6] {
        let (attempt, place) = (&world.attempts[from], &world.places[node]);
        let Client { phase, wanted, asked, highest, .. } = attempt.client;
        let is_new = !place.granted.has(from) || place.node.key == Some(from);
        let is_after = matches!(phase, Phase::Holding | Phase::Ended);
        let is_holder = self.is_extended && is_after && attempt.client.token.is_some();
        let (lost_at, hint) = (place.lost_at, attempt.hint);
        let acquire = match self.hints {
            Hints::Quarantine if hint < lost_at => None,
            Hints::Send => Some(hint.max(lost_at)),
            _ => Some(hint),
        };
        let is_open = self.is_late || phase != Phase::Ended;
        let acquire = acquire.filter(|_| is_open && (is_new || attempt.resends > 0));
        [
            acquire.map(|hint| Request::Acquire { hint }),
            (is_open && asked.has(node)).then_some(Request::Raise { to: wanted }),
            is_holder.then_some(Request::Extend { highest }),
            is_holder.then_some(Request::Restore),
            (phase == Phase::Ended).then_some(Request::Release { highest }),
            (phase == Phase::Reading).then_some(Request::Read),
        ]
    }

    pub(crate) fn answer(&self, node: Node, from: usize, request: Request) -> (Node, Reply) {
        match self.flaw {
            Some(flaw) => flaw.answer(node, from, request),
            None => node::answer(node, from, request),
        }
    }

    fn arrive(&self, world: &mut World<A>, from: usize, node: usize, request: Request) -> Reply {
        let place = &mut world.places[node];
        let before = place.node;
        let (after, reply) = self.answer(before, from, request);
        place.node = after;
        if let (Request::Acquire { .. }, Reply::Number(_), None) = (request, reply, before.key) {
            if place.granted.has(from) {
                world.attempts[from].resends -= 1;
            }
            place.after[from] = place.after[from].or(place.granted.without(from));
            place.granted = place.granted.with(from);
        }
        reply
    }

    fn hear(&self, client: &mut Client, node: usize, request: Request, reply: Reply) {
        let before = client.phase;
        match (request, reply) {
            (Request::Acquire { .. }, Reply::Number(_)) if before == Phase::Reading => {}
            (Request::Acquire { .. } | Request::Read, Reply::Number(number)) => {
                client.on_number(node, number);
            }
            (Request::Raise { .. }, Reply::Yes) => client.on_vote(node),
            _ => {}
        }
        match self.flaw {
            Some(flaw) => {
                flaw.agree(client);
                flaw.unlearn(before, client);
            }
            None => client.agree(),
        }
    }

    fn raise(&self, client: &mut Client) {
        match self.flaw {
            Some(flaw) => flaw.raise(client),
            None => client.raise(),
        }
    }
}

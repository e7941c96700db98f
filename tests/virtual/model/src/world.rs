//! The state: attempts, nodes, and the messages in flight between them.

use std::hash::{BuildHasher as _, Hash, Hasher};
use std::rc::Rc;
use std::time::{Duration, Instant};

use foldhash::quality::FixedState;
use quorate_pure::core_source::algorithm::attempt::{
    AttemptMachine, Node, Outcome, RoundId, Settings,
};
use quorate_pure::core_source::algorithm::lease::{Drift, SafetyMargin, Ttl};
use quorate_pure::core_source::algorithm::quorum::{NodeCount, NodeId};

use crate::place::Place;
use crate::scope::{Beginning, Hints, MARGIN, MOST, NODES, Scope, TTL};

/// The same in every run, so that a way can be told. Faster than the standard hash, which takes most of the time
/// otherwise.
const HASHES: FixedState = FixedState::with_seed(0);

/// What the caller of an attempt does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    /// Waits for the first round.
    Waits,
    /// Has the guard.
    Holds,
    /// Has the guard of a lease that has ended.
    Lapsed,
    /// Waits for `release`.
    Releases,
    /// Has its answer, or has dropped the future or the guard.
    Gone,
    /// Has left the lock to another process.
    Parted,
}

/// What becomes of the undo of a lost round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Undone {
    /// No round is lost.
    NotDue,
    Awaited,
    Decided,
}

/// One attempt, and what its caller knows.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) machine: AttemptMachine<()>,
    pub(crate) caller: Caller,
    /// Whether it waits for the undo of a lost round.
    pub(crate) undone: Undone,
    /// Whether it has to learn that a quorum is clear.
    pub(crate) awaits_cleared: bool,
    /// Whether the manager is closed.
    pub(crate) is_closed: bool,
    /// The longest ttl that a round asked for, in ticks.
    pub(crate) longest_ttl: u8,
    /// Whether it has ever had the lock.
    pub(crate) has_won: bool,
    /// Its clock, in ticks.
    pub(crate) now: u32,
    /// Nothing that it learns matters any more: its requests stay in flight without it.
    pub(crate) is_retired: bool,
    /// When its end began.
    pub(crate) ended_at: Option<u32>,
    /// How many extensions are left.
    pub(crate) extensions: u8,
    /// Whether a revoke has taken effect, as far as it knows.
    pub(crate) is_revoked: bool,
    /// The last extension that was asked for and is not decided.
    pub(crate) asked: Option<RoundId>,
    /// The fencing token; it is in use for ever after.
    pub(crate) token: Option<u8>,
    pub(crate) hint: u8,
    /// Which attempts had their token when this one began.
    pub(crate) older: [bool; MOST],
}

impl Client {
    pub(crate) fn node(&self, at: usize) -> &Node<()> {
        self.machine.node(node_id(at))
    }

    /// Whether the lease has ended and its keys are kept for the margin.
    pub(crate) fn is_lapsed(&self) -> bool {
        let is_over = self.machine.is_releasing() || self.caller == Caller::Parted;
        self.machine.has_ended() && !is_over
    }

    pub(crate) fn is_quiescent(&self) -> bool {
        self.is_retired || self.machine.is_quiescent()
    }

    /// Whether the lease is valid now, by its own clock.
    pub(crate) fn is_valid(&self, start: Instant) -> bool {
        self.machine.valid_until().is_some_and(|end| time(start, self.now) < end)
    }

    /// Whether a timer is due.
    pub(crate) fn is_due(&self, start: Instant) -> bool {
        self.machine.next_timeout().is_some_and(|due| due <= time(start, self.now))
    }
}

/// The state of everything.
#[derive(Clone, Debug)]
pub(crate) struct World {
    /// All clocks count from here.
    pub(crate) start: Instant,
    pub(crate) clients: [Option<Rc<Client>>; MOST],
    pub(crate) places: [Rc<Place>; NODES],
    pub(crate) drops: u8,
    pub(crate) repeats: u8,
    pub(crate) losses: u8,
    /// How many keys a revoke can still mark.
    pub(crate) revokes: u8,
    /// The highest number that any node ever had; kept where hints depend on it.
    pub(crate) peak: u8,
}

pub(crate) fn node_id(at: usize) -> NodeId {
    let mut nodes = NodeCount::new(NODES).into_iter().flat_map(NodeCount::ids);
    nodes.nth(at).unwrap_or_else(|| unreachable!())
}

/// A time, in ticks of a second.
pub(crate) fn time(start: Instant, ticks: u32) -> Instant {
    start + Duration::from_secs(ticks.into())
}

pub(crate) fn ticks(ttl: u8) -> Ttl {
    Ttl::try_from(Duration::from_secs(ttl.into())).unwrap_or_else(|_| unreachable!())
}

impl World {
    /// No attempt has begun.
    pub(crate) fn new(scope: &Scope, start: Instant) -> Self {
        let numbers = scope.fencing.map_or([0; NODES], |fencing| fencing.numbers);
        let peak = numbers.into_iter().max().filter(|_| !scope.has_given_hints());
        Self {
            start,
            clients: [const { None }; MOST],
            places: numbers.map(|number| Rc::new(Place { number, ..Place::default() })),
            drops: scope.drops,
            repeats: scope.repeats,
            losses: scope.losses,
            revokes: scope.revokes,
            peak: peak.unwrap_or(0),
        }
    }

    /// Attempts that have begun.
    pub(crate) fn begun(&self) -> impl Iterator<Item = (usize, &Client)> {
        let clients = self.clients.iter().enumerate();
        clients.filter_map(|(at, client)| Some((at, &**client.as_ref()?)))
    }

    pub(crate) fn place(&mut self, at: usize) -> &mut Place {
        Rc::make_mut(&mut self.places[at])
    }

    pub(crate) fn client(&mut self, at: usize) -> &mut Client {
        Rc::make_mut(self.clients[at].as_mut().unwrap_or_else(|| unreachable!()))
    }

    /// The attempt before its first call.
    pub(crate) fn begin(&self, scope: &Scope, at: usize, now: u32) -> Client {
        let nodes = NodeCount::new(NODES).unwrap_or_else(|| unreachable!());
        let mut settings = Settings::new(nodes, ticks(TTL), Duration::from_secs(1));
        settings.drift = Drift::new(0, Duration::ZERO);
        settings.safety_margin = SafetyMargin::Fixed(ticks(MARGIN).as_duration());
        settings.hold_limit = scope.hold_limit.map(|limit| ticks(limit).as_duration());
        settings.fencing = scope.fencing.is_some();
        settings.ordered = nodes.ids().filter(|_| scope.is_ordered).collect();
        settings.pushing = settings.ordered.iter().filter(|_| scope.has_pushes).collect();
        let time = time(self.start, now);
        let machine = match scope.beginning {
            Beginning::Acquire => AttemptMachine::new(settings, time),
            Beginning::Adopt => AttemptMachine::adopt(settings, None, time),
        };
        let hint = scope.fencing.map_or(0, |fencing| match fencing.hints {
            Hints::Given(hints) => hints[at],
            _ => self.peak + 1,
        });
        let mut older = [false; MOST];
        for (other, client) in self.begun() {
            older[other] = client.token.is_some();
        }
        Client {
            machine,
            caller: Caller::Waits,
            undone: Undone::NotDue,
            awaits_cleared: false,
            is_closed: false,
            longest_ttl: TTL,
            has_won: false,
            is_retired: false,
            now,
            ended_at: None,
            extensions: scope.extensions,
            is_revoked: false,
            asked: None,
            token: None,
            hint,
            older,
        }
    }

    /// The hash of each node with what the attempts know of it.
    pub(crate) fn place_hashes(&self) -> [u64; NODES] {
        let mut hashes = [0; NODES];
        for (at, place) in self.places.iter().enumerate() {
            let Place { owner, is_marked, left, number, sides: _, granted, before, lost_at } =
                &**place;
            let mut hasher = HASHES.build_hasher();
            is_marked.hash(&mut hasher);
            (owner, left, number, granted, before, lost_at).hash(&mut hasher);
            for (from, client) in self.begun() {
                let side = &place.sides[from];
                side.strays.hash(&mut hasher);
                side.channel.len().hash(&mut hasher);
                for entry in &side.channel {
                    entry.request.hash(&mut hasher);
                    entry.reply.map(|reply| std::mem::discriminant(&reply)).hash(&mut hasher);
                    if let Some(Outcome::Granted(number)) = entry.reply {
                        number.hash(&mut hasher);
                    }
                }
                if client.is_quiescent() {
                    (side.truth.was_released, side.truth.is_excused).hash(&mut hasher);
                } else {
                    side.truth.hash(&mut hasher);
                    let now = time(self.start, client.now);
                    client.machine.node_fingerprint(node_id(at), now, &mut hasher);
                }
            }
            hashes[at] = hasher.finish();
        }
        hashes
    }

    /// The same for all states that differ only in the names of nodes and in what is over.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = HASHES.build_hasher();
        for client in &self.clients {
            client.is_some().hash(&mut hasher);
            if let Some(client) = client {
                let Client { caller, extensions, asked, token, hint, older, .. } = &**client;
                if !client.is_retired {
                    client.machine.fingerprint(time(self.start, client.now), &mut hasher);
                }
                (caller, client.is_quiescent(), extensions, asked.is_some()).hash(&mut hasher);
                (token, hint, older, client.undone).hash(&mut hasher);
                (client.is_revoked, client.awaits_cleared, client.is_closed).hash(&mut hasher);
            }
        }
        (self.drops, self.repeats, self.losses, self.revokes, self.peak).hash(&mut hasher);
        let mut places = self.place_hashes();
        places.sort_unstable();
        places.hash(&mut hasher);
        hasher.finish()
    }
}

//! Every subset of nodes fails, in every way: a lock is had exactly when a majority is healthy.

use std::thread;
use std::time::Duration;

use quorate::{
    BackendErrorKind, LockError, LockGuard, LockManager, NodeVote, Released, Said, Votes,
};

use quorate_tests::wait::{NODE_TIMEOUT, times, within_limit};

use crate::client::{Client, LIMIT, on_tokio, unhurried};
use crate::fault::{Effect, Fault, KEY, Place, Struck};
use crate::table::Table;

/// The rows. Where there are several faults, the failed nodes have them in turn.
const ROWS: &[(&str, &[Fault])] = &[
    ("killed", &[Fault::Dead]),
    ("never up", &[Fault::NeverUp]),
    ("stopped", &[Fault::Stopped]),
    ("stopped before connecting", &[Fault::StoppedBefore]),
    ("reset on each use", &[Fault::Reset]),
    ("connections closed", &[Fault::Cut]),
    ("black hole to the node", &[Fault::HoleToNode]),
    ("black hole to the client", &[Fault::HoleToClient]),
    ("black hole when connecting", &[Fault::HoleBefore]),
    ("too slow (an hour each way)", &[Fault::TooSlow]),
    ("slow (50 ms each way)", &[Fault::Slow]),
    ("READONLY", &[Fault::ReadOnly]),
    ("LOADING", &[Fault::Loading]),
    ("OOM", &[Fault::OutOfMemory]),
    ("MISCONF", &[Fault::Misconfigured]),
    ("NOAUTH", &[Fault::NoAuth]),
    ("NOPERM", &[Fault::NoPermission]),
    ("WRONGTYPE", &[Fault::WrongType]),
    ("foreign key", &[Fault::Foreign]),
    ("garbage", &[Fault::Babble]),
    ("garbage for a vote", &[Fault::BabbleAtVote]),
    ("foreign key, READONLY", &[Fault::Foreign, Fault::ReadOnly]),
    (
        "killed, foreign key, stopped, OOM, reset",
        &[Fault::Dead, Fault::Foreign, Fault::Stopped, Fault::OutOfMemory, Fault::Reset],
    ),
];

#[test]
fn three_nodes_with_redis() {
    every_subset(Client::Redis, 3);
}

#[test]
fn three_nodes_with_fred() {
    every_subset(Client::Fred, 3);
}

#[test]
fn five_nodes_with_redis() {
    every_subset(Client::Redis, 5);
}

#[test]
fn five_nodes_with_fred() {
    every_subset(Client::Fred, 5);
}

/// Of five nodes, in a short run, only one set of each row that leaves a bare quorum and one that
/// leaves a node less.
fn is_left_out(row: usize, mask: u32, count: usize) -> bool {
    let failed = mask.count_ones();
    let mut alike = (0..mask).filter(|other| other.count_ones() == failed);
    count == 5
        && times(true, false)
        && (!matches!(failed, 2 | 3) || alike.by_ref().count() != row % 10)
}

fn every_subset(client: Client, count: usize) {
    let places: Vec<_> = (0..count).map(|_| Place::start()).collect();
    let mut table = Table::new(format!("{client:?}, N = {count}"), count);
    on_tokio(async {
        for (row, &(name, faults)) in ROWS.iter().enumerate() {
            table.begin_row(name);
            for mask in (0_u32..1 << count).filter(|mask| !is_left_out(row, *mask, count)) {
                let cell = Cell::new(&places, faults, mask);
                let outcome = cell.run(client).await;
                let wrong = |wrong| format!("{client:?}, {name}, nodes {mask:0count$b}: {wrong}");
                table.count(mask.count_ones() as usize, outcome.map_err(wrong));
            }
        }
    });
    table.conclude();
}

/// How long a round waits that waits in vain.
const HASTY: Duration = Duration::from_millis(250);

const REFUSED_LOGIN: Effect = Effect::Error(BackendErrorKind::Auth);

/// One subset of the nodes with its faults.
struct Cell<'a> {
    places: &'a [Place],
    /// What is wrong with each node.
    faults: Vec<Option<Fault>>,
}

impl<'a> Cell<'a> {
    fn new(places: &'a [Place], faults: &[Fault], mask: u32) -> Self {
        let mut turn = faults.iter().copied().cycle();
        let fault_of = |place| (mask >> place & 1 == 1).then(|| turn.next()).flatten();
        Self { places, faults: (0..places.len()).map(fault_of).collect() }
    }

    async fn run(&self, client: Client) -> Result<(), String> {
        let outcome;
        let manager;
        if self.faults.iter().flatten().any(|fault| fault.comes_first()) {
            let struck = self.strike();
            manager = self.manager(client);
            outcome = self.try_lock(&manager).await;
            undo(struck);
        } else {
            manager = self.manager(client);
            let first = manager.lock("warm").wait(LIMIT).await;
            drop(first.map_err(|error| format!("nothing is wrong yet, and {error}"))?);
            // From here on it is connected to all nodes.
            expect(manager.settle(LIMIT).await, 0, "under way before")?;
            let struck = self.strike();
            outcome = self.try_lock(&manager).await;
            undo(struck);
        }
        // In any case, so that the next cell finds the nodes empty.
        let under_way = manager.settle(LIMIT).await;
        let left: Vec<_> = self.places.iter().map(Place::keys_left).collect();
        for place in self.places {
            place.node.flushall();
        }
        outcome?;
        expect(under_way, 0, "under way after")?;
        expect(left.concat(), Vec::<String>::new(), "left behind")?;
        self.lock_again(manager, client).await
    }

    fn manager(&self, client: Client) -> LockManager {
        let places = self.places.iter().zip(&self.faults);
        let addresses: Vec<_> = places
            .map(|(place, fault)| match fault {
                Some(fault) => fault.address(place),
                None => place.node.address(),
            })
            .collect();
        unhurried(client.connect(&addresses)).node_timeout(self.patience()).build().unwrap()
    }

    /// Who waits in vain shall not wait long. Where nobody needs to be waited for, a wait is seen.
    fn patience(&self) -> Duration {
        if self.waits_in_vain() { HASTY } else { NODE_TIMEOUT }
    }

    fn waits_in_vain(&self) -> bool {
        self.count(Effect::Silence) > 0 && !self.has_quorum()
    }

    fn has_quorum(&self) -> bool {
        let healthy = self.effects().filter(|effect| *effect == Effect::Nothing).count();
        healthy > self.spare()
    }

    fn spare(&self) -> usize {
        (self.places.len() - 1) / 2
    }

    fn effects(&self) -> impl Iterator<Item = Effect> {
        self.faults.iter().map(|fault| fault.map_or(Effect::Nothing, Fault::effect))
    }

    fn count(&self, wanted: Effect) -> usize {
        self.effects().filter(|effect| *effect == wanted).count()
    }

    fn strike(&self) -> Vec<Struck<'a>> {
        let places = self.places.iter().zip(&self.faults);
        places.filter_map(|(place, fault)| Some(fault.as_ref()?.strike(place))).collect()
    }

    /// Locks and, if that goes well, releases.
    async fn try_lock(&self, manager: &LockManager) -> Result<(), String> {
        let outcome = within_limit("an outcome, which needs no silent node", manager.try_lock(KEY));
        match outcome.await {
            Ok(guard) if self.has_quorum() => release(guard).await,
            Ok(_) => Err("locked without a healthy quorum".to_owned()),
            Err(error) if self.has_quorum() => Err(format!("a quorum is healthy, and {error}")),
            Err(error) => self.judge(&error),
        }
    }

    fn judge(&self, error: &LockError) -> Result<(), String> {
        let told = |wrong: &str| format!("{wrong}: {error}");
        let (LockError::Held { votes } | LockError::NoQuorum { votes }) = error else {
            return Err(told("an error of another kind"));
        };
        // Nodes that the machine did not let run for as long as the round waited.
        let starved = self.judge_votes(votes).map_err(|wrong| told(&wrong))?;
        let refusing = self.count(Effect::Refusal);
        let heard = self.count(Effect::Nothing) + refusing;
        let unknown = self.places.len() - heard + starved;
        match error {
            LockError::Held { .. } if refusing == 0 => Err(told("nobody has it")),
            LockError::NoQuorum { .. } if unknown <= self.spare() => Err(told("somebody has it")),
            _ => Ok(()),
        }
    }

    /// Checks what the nodes are said to have said; counts those that would have, and said nothing.
    fn judge_votes(&self, votes: &Votes) -> Result<usize, String> {
        let mut named = 0;
        let mut starved = 0;
        let nodes = votes.iter().zip(self.effects()).zip(self.places.iter().zip(&self.faults));
        for ((NodeVote { name, said, .. }, effect), (place, fault)) in nodes {
            let address = fault.map_or_else(|| place.node.address(), |fault| fault.address(place));
            if !address.ends_with(&**name) {
                return Err(format!("{address} is called {name}"));
            }
            match (effect, said) {
                (_, Said::Unheard) | (Effect::Nothing, Said::Granted) => {}
                (Effect::Nothing | Effect::Refusal, Said::Silent { .. })
                    if self.waits_in_vain() =>
                {
                    starved += 1;
                }
                (Effect::Error(_), Said::Silent { .. }) if self.waits_in_vain() => named += 1,
                (Effect::Refusal, Said::Refused) | (Effect::Silence, Said::Silent { .. }) => {
                    named += 1;
                }
                (Effect::Error(kind), Said::Failed(error)) if error.kind() == kind => named += 1,
                _ => return Err(format!("{effect:?} at {name} is told as {said:?}")),
            }
        }
        if named + starved <= self.spare() {
            return Err(format!("only {named} nodes are named"));
        }
        Ok(starved)
    }

    /// What is healed works again.
    async fn lock_again(&self, manager: LockManager, client: Client) -> Result<(), String> {
        let faults = self.faults.iter().flatten();
        if faults.filter(|fault| !fault.can_be_undone()).count() > self.spare() {
            return Ok(());
        }
        // For the same manager. But an error that only an operator can mend ends a lock at once,
        // and clients share the outcome of an attempt to connect for a moment.
        let manager =
            if self.count(REFUSED_LOGIN) > self.spare() { self.manager(client) } else { manager };
        let again = manager.lock(KEY).wait(LIMIT).await;
        let guard = again.map_err(|error| format!("all is well again, and {error}"))?;
        release(guard).await?;
        expect(manager.settle(LIMIT).await, 0, "under way in the end")?;
        let left: Vec<_> = self.places.iter().map(Place::keys_left).collect();
        expect(left.concat(), Vec::<String>::new(), "left behind in the end")
    }
}

async fn release(guard: LockGuard) -> Result<(), String> {
    match guard.release().await {
        Ok(Released::Held) => Ok(()),
        other => Err(format!("locked, and released as {other:?}")),
    }
}

/// All at once: a restart takes a while.
fn undo(struck: Vec<Struck<'_>>) {
    thread::scope(|scope| {
        for node in struck {
            scope.spawn(|| node.undo());
        }
    });
}

fn expect<T: PartialEq + std::fmt::Debug>(is: T, wanted: T, what: &str) -> Result<(), String> {
    if is == wanted { Ok(()) } else { Err(format!("{what}: {is:?}")) }
}

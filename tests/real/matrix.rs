//! Every subset of nodes fails, in every way: a lock is acquired exactly when a quorum is healthy.

use std::thread;
use std::time::Duration;

use quorate::error::{Answer, NodeAnswer, QuorumFailure};
use quorate::{BackendErrorKind, LockError, LockGuard, LockManager};
use quorate_tests::wait::{now, times, within_limit};

use crate::client::{Client, LIMIT, on_tokio, unhurried};

mod fault;

use fault::{Effect, Fault, KEY, Place, ROWS, Struck};

#[test]
fn every_subset_of_three_nodes() {
    Client::ALL.into_iter().for_each(|client| every_subset(client, 3));
}

#[test]
fn every_subset_of_five_nodes_with_redis() {
    every_subset(Client::Redis, 5);
}

#[test]
fn every_subset_of_five_nodes_with_fred() {
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

/// Every so many rows run one after the other, on nodes of their own, since most of a cell is waiting.
const LANES: usize = 8;

fn every_subset(client: Client, count: usize) {
    let wrong: Vec<String> = thread::scope(|scope| {
        let lanes = (0..LANES).map(|lane| scope.spawn(move || run_lane(client, count, lane)));
        let lanes: Vec<_> = lanes.collect();
        lanes.into_iter().flat_map(|lane| lane.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} cells are wrong: {wrong:#?}", wrong.len());
}

/// Returns what is wrong in the rows of a lane.
fn run_lane(client: Client, count: usize, lane: usize) -> Vec<String> {
    let places: Vec<_> = (0..count).map(|_| Place::start()).collect();
    let mut wrong = Vec::new();
    on_tokio(async {
        for (row, faults) in ROWS.into_iter().enumerate().skip(lane).step_by(LANES) {
            for mask in (0_u32..1 << count).filter(|mask| !is_left_out(row, *mask, count)) {
                if let Err(why) = Cell::new(&places, faults, mask).run(client).await {
                    wrong.push(format!("{client:?}, {faults:?}, nodes {mask:0count$b}: {why}"));
                }
            }
        }
    });
    wrong
}

/// A failed release is sent again after a node timeout.
const UNHURRIED: Duration = Duration::from_secs(2);

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
        let manager;
        let outcome;
        if self.faults.iter().flatten().any(|fault| fault.comes_first()) {
            let struck = self.strike();
            manager = self.manager(client);
            outcome = self.try_lock(&manager).await;
            undo(struck);
        } else {
            manager = self.manager(client);
            self.connect(&manager).await?;
            let struck = self.strike();
            outcome = self.try_lock(&manager).await;
            undo(struck);
        }
        let outcome = match outcome {
            Ok(()) => self.work_again(&manager, client).await,
            failed => failed,
        };
        // In any case, so that the next cell finds the nodes empty.
        let report = manager.close(LIMIT).await;
        // A node that failed a release is named by the report, and may have a key left (C8).
        let is_named = |(place, fault): &(&Place, &Option<Fault>)| {
            let address = fault.map_or_else(|| place.node.address(), |fault| fault.address(place));
            report.nodes().any(|name| address.ends_with(name))
        };
        let places = self.places.iter().zip(&self.faults);
        let clean = places.filter(|named| !is_named(named));
        let left: Vec<_> = clean.map(|(place, _)| place.keys_left()).collect();
        for place in self.places {
            place.node.flushall();
        }
        outcome?;
        expect(left.concat(), Vec::<String>::new(), &format!("left behind in the end, {report}"))
    }

    /// Connects to all nodes, and leaves nothing there.
    async fn connect(&self, manager: &LockManager) -> Result<(), String> {
        let first = manager.lock("warm").await;
        let guard = first.map_err(|error| format!("nothing is wrong yet, and {error}"))?;
        let have = |place: &Place| place.node.get("warm").is_some();
        self.become_true("a lock on each node", || self.places.iter().all(have)).await?;
        release(guard).await?;
        self.be_emptied("before").await
    }

    async fn be_emptied(&self, when: &str) -> Result<(), String> {
        let is_empty = |place: &Place| place.keys_left().is_empty();
        self.become_true(&format!("no key {when}"), || self.places.iter().all(is_empty)).await
    }

    async fn become_true(&self, what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), String> {
        let limit = now() + LIMIT;
        while !is_so() {
            if now() > limit {
                let left: Vec<_> = self.places.iter().map(Place::keys_left).collect();
                return Err(format!("not within {LIMIT:?}: {what}; there is {left:?}"));
            }
            tokio::task::yield_now().await;
        }
        Ok(())
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

    /// A wait in vain shall be short. Where no node needs to be waited for, a wait is to be seen.
    fn patience(&self) -> Duration {
        if self.waits_in_vain() { HASTY } else { UNHURRIED }
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
        let outcome =
            within_limit("an outcome, which needs no silent node", manager.lock(KEY).no_wait());
        match outcome.await {
            Ok(guard) if self.has_quorum() => release(guard).await,
            Ok(_) => Err("locked without a healthy quorum".to_owned()),
            Err(error) if self.has_quorum() => Err(format!("a quorum is healthy, and {error}")),
            Err(error) => self.judge(&error),
        }
    }

    fn judge(&self, error: &LockError) -> Result<(), String> {
        let told = |wrong: &str| format!("{wrong}: {error}");
        let (LockError::Held(failure) | LockError::NoQuorum(failure)) = error else {
            return Err(told("an error of another kind"));
        };
        // Nodes that the machine did not let run for as long as the round waited.
        let starved = self.judge_answers(failure).map_err(|wrong| told(&wrong))?;
        let refusing = self.count(Effect::Refusal);
        let heard = self.count(Effect::Nothing) + refusing;
        let unknown = self.places.len() - heard + starved;
        match error {
            LockError::Held(_) if refusing == 0 => Err(told("nobody has it")),
            LockError::NoQuorum(_) if unknown <= self.spare() => Err(told("somebody has it")),
            _ => Ok(()),
        }
    }

    /// Checks the answer of each node; counts those that would have answered, and did not.
    fn judge_answers(&self, failure: &QuorumFailure) -> Result<usize, String> {
        let mut named = 0;
        let mut starved = 0;
        let places = self.places.iter().zip(&self.faults);
        let nodes = failure.nodes().iter().zip(self.effects()).zip(places);
        for ((NodeAnswer { name, answer, .. }, effect), (place, fault)) in nodes {
            let address = fault.map_or_else(|| place.node.address(), |fault| fault.address(place));
            if !address.ends_with(&**name) {
                return Err(format!("{address} is called {name}"));
            }
            match (effect, answer) {
                (_, Answer::NoReply { is_over: false } | Answer::NotAsked)
                | (Effect::Nothing, Answer::Granted) => {}
                (Effect::Nothing | Effect::Refusal, Answer::NoReply { .. })
                    if self.waits_in_vain() =>
                {
                    starved += 1;
                }
                (Effect::Error(_), Answer::NoReply { .. }) if self.waits_in_vain() => named += 1,
                (Effect::Refusal, Answer::Refused { .. })
                | (Effect::Silence, Answer::NoReply { .. }) => {
                    named += 1;
                }
                (Effect::Error(kind), Answer::Failed(error)) if error.kind() == kind => named += 1,
                // redis-rs ends a connection on which there is garbage, and fred waits on.
                (
                    Effect::Error(BackendErrorKind::Protocol),
                    Answer::NoReply { .. } | Answer::Failed(_),
                ) => named += 1,
                _ => return Err(format!("{effect:?} at {name} is reported as {answer:?}")),
            }
        }
        if named + starved <= self.spare() {
            return Err(format!("only {named} nodes are named"));
        }
        Ok(starved)
    }

    /// Nothing is left behind, and a node that is healed works again.
    async fn work_again(&self, manager: &LockManager, client: Client) -> Result<(), String> {
        self.be_emptied("after the fault").await?;
        let faults = self.faults.iter().flatten();
        if faults.filter(|fault| !fault.can_be_undone()).count() > self.spare() {
            return Ok(());
        }
        // An error that only an operator can mend ends a lock at once, and a connection that was refused
        // for it is not made again at once.
        if self.count(REFUSED_LOGIN) > self.spare() {
            let manager = self.manager(client);
            let works = self.lock_again(&manager).await;
            let _ = manager.close(LIMIT).await;
            return works;
        }
        self.lock_again(manager).await
    }

    async fn lock_again(&self, manager: &LockManager) -> Result<(), String> {
        let again = manager.lock(KEY).await;
        release(again.map_err(|error| format!("all is well again, and {error}"))?).await
    }
}

async fn release(guard: LockGuard) -> Result<(), String> {
    guard.release().await.map_err(|error| format!("locked, and released as {error}"))
}

/// All at once: each restart takes time.
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

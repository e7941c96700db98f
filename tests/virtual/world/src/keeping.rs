//! Leases that are kept alive with one node in trouble, until so many fail that no quorum is left.
//!
//! As long as a quorum is well no lease is lost, and then each holder is notified when its lease
//! ends.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quorate_core::{Lease, LockGuard, LockManager, Runtime};
use quorate_memory::{Effect, Fault, MemoryNode, Rule, Sim};

use crate::dice::Dice;
use crate::worker::{loading, name};

/// What came of many leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// How many leases were kept, each until a majority failed.
    pub(crate) leases: u64,
    /// How often they were renewed before that.
    pub(crate) renewals: u64,
    /// How many were lost though a quorum was well. There must be none.
    pub(crate) lost_in_vain: u64,
    /// How many holders were notified after the end of the lease. There must be none.
    pub(crate) told_late: u64,
    /// How many were seen to be valid after they were reported as lost. There must be none.
    pub(crate) valid_after: u64,
}

impl Figures {
    /// Whether all is as it must be.
    pub(crate) const fn are_right(&self) -> bool {
        self.lost_in_vain + self.told_late + self.valid_after == 0
    }

    fn add(&mut self, other: &Self) {
        self.leases += other.leases;
        self.renewals += other.renewals;
        self.lost_in_vain += other.lost_in_vain;
        self.told_late += other.told_late;
        self.valid_after += other.valid_after;
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} renewals of {} leases, one node in trouble", self.renewals, self.leases)?;
        writeln!(f, "lost though a quorum was well: {}", self.lost_in_vain)?;
        writeln!(f, "told of the loss too late: {}", self.told_late)?;
        writeln!(f, "valid after it was told: {}", self.valid_after)
    }
}

/// Runs one world after the other until there were so many renewals.
pub(crate) fn keep(renewals: u64) -> Figures {
    let mut figures = Figures::default();
    let mut seed = 0;
    while figures.renewals < renewals && figures.are_right() {
        seed += 1;
        figures.add(&one(seed));
    }
    figures
}

const TTL: Duration = Duration::from_secs(10);
const LEASES: usize = 4;

/// One world: leases under one kind of trouble, and the end of it.
fn one(seed: u64) -> Figures {
    let sim = Sim::new(seed);
    let dice = Dice::new(sim.clone());
    let count = *dice.pick(&[3, 5]);
    let nodes = MemoryNode::cluster(count, sim.clone());
    for node in &nodes {
        let most = Duration::from_millis(20);
        node.add_rule(Rule::new(Effect::Delay { least: most / 10, most }));
    }
    let Ok(manager) = LockManager::builder(nodes.clone()).runtime(sim.clone()).ttl(TTL).build()
    else {
        return Figures::default();
    };
    let kept: Vec<(LockGuard, Kept)> =
        (0..LEASES).filter_map(|place| Kept::take(&sim, &manager, place)).collect();
    trouble(&sim, &dice, dice.pick(&nodes));
    sim.advance(dice.time(TTL * 6, TTL * 14));

    let mut figures = Figures { leases: kept.len() as u64, ..Figures::default() };
    for (guard, kept) in &kept {
        figures.renewals += kept.seen().renewals;
        figures.lost_in_vain += u64::from(kept.seen().told.is_some() || !guard.is_valid());
    }
    figures.lost_in_vain += (LEASES - kept.len()) as u64;
    no_quorum(&dice, &nodes);
    sim.advance(TTL * 2);
    for (_, kept) in &kept {
        let seen = kept.seen();
        figures.told_late += u64::from(seen.told.is_none_or(|at| at > seen.until));
        figures.valid_after += u64::from(seen.valid_after);
    }
    drop(kept);
    sim.end();
    figures
}

/// What is wrong with a node as long as the leases are kept.
fn trouble(sim: &Sim, dice: &Dice, node: &MemoryNode) {
    let loading = loading();
    let (fault, flaps) = match dice.below(8) {
        0 => (Fault::Down, false),
        1 => (Fault::Slow(dice.scaled_time(TTL)), false),
        2 => (Fault::Late(dice.scaled_time(TTL)), false),
        3 => (Fault::Hung, false),
        4 => (Fault::Down, true),
        // It comes back empty each time.
        5 => (Fault::Dead, true),
        6 => (Fault::Failing(loading), true),
        _ => (Fault::Hung, true),
    };
    node.inject(fault.clone());
    if flaps {
        let (world, node, lasting) = (sim.clone(), node.clone(), dice.time(TTL / 50, TTL));
        sim.spawn(Box::pin(async move {
            loop {
                world.sleep_until(world.now() + lasting).await;
                node.heal();
                world.sleep_until(world.now() + lasting / 2).await;
                node.inject(fault.clone());
            }
        }));
    }
}

/// A majority fails at once.
fn no_quorum(dice: &Dice, nodes: &[MemoryNode]) {
    let fault = match dice.below(5) {
        0 => Some(Fault::Down),
        1 => Some(Fault::Hung),
        2 => Some(Fault::Slow(TTL)),
        3 => Some(Fault::Failing(loading())),
        _ => None,
    };
    let first = dice.below(nodes.len());
    for place in 0..=nodes.len() / 2 {
        let node = &nodes[(first + place) % nodes.len()];
        match &fault {
            Some(fault) => {
                // The flapping node must not heal out of it, so its rules are cut as well.
                node.inject(fault.clone());
                node.add_rule(Rule::new(Effect::DropRequest));
            }
            None => {
                node.restart();
                node.add_rule(Rule::new(Effect::DropReply));
            }
        }
    }
}

/// A lease that is kept alive, and what was seen of it.
#[derive(Clone)]
struct Kept {
    sim: Sim,
    lease: Lease,
    seen: Arc<Mutex<Seen>>,
}

struct Seen {
    until: Instant,
    renewals: u64,
    told: Option<Instant>,
    valid_after: bool,
}

impl Kept {
    fn take(sim: &Sim, manager: &LockManager, place: usize) -> Option<(LockGuard, Self)> {
        let guard = sim.block_on(manager.lock(name(place))).ok()?;
        guard.auto_renew();
        let lease = guard.lease();
        let until = lease.valid_until();
        let seen = Seen { until, renewals: 0, told: None, valid_after: false };
        let kept = Self { sim: sim.clone(), lease, seen: Arc::new(Mutex::new(seen)) };
        sim.spawn(Box::pin(kept.clone().waits_for_the_loss()));
        sim.spawn(Box::pin(kept.clone().looks_now_and_then()));
        Some((guard, kept))
    }

    async fn waits_for_the_loss(self) {
        let mut lost = pin!(self.lease.lost());
        poll_fn(|context| {
            // Before it is cut short.
            self.look();
            lost.as_mut().poll(context).map(drop)
        })
        .await;
        self.seen().told = Some(self.sim.now());
        self.look();
    }

    /// More often than the lease is renewed, so that no renewal is missed.
    async fn looks_now_and_then(self) {
        loop {
            self.sim.sleep_until(self.sim.now() + TTL / 20).await;
            self.look();
        }
    }

    fn look(&self) {
        let until = self.lease.valid_until();
        let mut seen = self.seen();
        if until > seen.until {
            seen.until = until;
            seen.renewals += 1;
        }
        seen.valid_after |= seen.told.is_some() && self.lease.is_valid();
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo xtask sim --keep 100000` does more of it.
    #[test]
    fn h5_no_lease_is_lost_while_a_quorum_is_well_and_then_each_holder_is_told_at_the_end() {
        let figures = keep(5_000);
        assert!(figures.are_right(), "{figures}");
        assert!(figures.renewals >= 5_000 && figures.leases > 50, "{figures}");
    }
}

//! Nodes lose their data: killed, emptied, rolled back, or replaced by a replica that lags.

#![expect(clippy::disallowed_methods, reason = "it paces what it does to nodes")]

use std::{fs, thread};

use quorate_tests::dice::Dice;
use quorate_tests::{Builder, Direction, Mode, Nodes, Proxy, RedisServer};

use super::{Plan, TTL};

/// The file that a node starts from, if there is one.
const DUMP: &str = "dump.rdb";

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Blows {
    /// `kill -9`, and a start with nothing.
    kills: u32,
    /// `FLUSHALL`.
    flushes: u32,
    /// `kill -9`, and a start from a file that was saved before.
    rollbacks: u32,
    /// `kill -9`, and a replica that had not heard the latest takes the address.
    promotions: u32,
    /// How often so many nodes lost their data at once that the rest is no quorum.
    bursts: u32,
}

impl Blows {
    /// Kills and restarts, the later with something or nothing.
    pub(super) const fn cycles(&self) -> u32 {
        self.kills + self.rollbacks + self.promotions
    }
}

/// Settings of all nodes. A replica is sent all that there is when it asks, and keeps no file of it.
pub(super) fn node(plan: Plan) -> Builder {
    let builder = RedisServer::builder()
        .config("repl-diskless-sync-delay", &["0"])
        .config("rdb-del-sync-files", &["yes"]);
    if plan.remembers { builder.append_only() } else { builder }
}

/// The next thing to do to a node.
#[derive(Clone, Copy, Debug)]
enum Blow {
    Kill,
    Flush,
    Rollback,
    Promote,
}

/// Strikes, one round after the other, until that is `enough`.
pub(super) fn strike(
    plan: Plan,
    nodes: &mut Nodes,
    mut enough: impl FnMut(&Blows) -> bool,
) -> Blows {
    let mut dice = Dice::new(1);
    let mut blows = Blows::default();
    let (mut turn, mut round) = (0, 0_u32);
    while !enough(&blows) {
        round += 1;
        // Now and then one more than can be spared. Nodes that remember can all be spared.
        let is_burst = plan.remembers || round.is_multiple_of(BURST_EVERY);
        let victims = (plan.nodes - 1) / 2 + usize::from(is_burst);
        for _ in 0..victims {
            let place = turn % plan.nodes;
            turn += 1;
            let blow = if plan.remembers { Blow::Kill } else { choose(&mut dice) };
            blow.strike(plan, &mut nodes[place], &mut blows);
            thread::sleep(dice.part(TTL, 0, 10));
        }
        blows.bursts += u32::from(is_burst);
        // With the guard they all vote again after the ttl: mostly before the next ones are struck.
        thread::sleep(dice.part(TTL, 70, 150));
    }
    blows
}

/// Each so many rounds.
const BURST_EVERY: u32 = 4;

fn choose(dice: &mut Dice) -> Blow {
    match dice.below(20) {
        0..15 => Blow::Kill,
        15..17 => Blow::Flush,
        17..19 => Blow::Rollback,
        _ => Blow::Promote,
    }
}

impl Blow {
    fn strike(self, plan: Plan, node: &mut RedisServer, blows: &mut Blows) {
        match self {
            Self::Kill => {
                node.kill();
                node.restart();
                blows.kills += 1;
            }
            Self::Flush => {
                node.flushall();
                blows.flushes += 1;
            }
            Self::Rollback => {
                roll_back(node);
                blows.rollbacks += 1;
            }
            Self::Promote => {
                promote(plan, node);
                blows.promotions += 1;
            }
        }
    }
}

/// It saves its data, goes on for a quarter of the ttl, and wakes up with the saved data.
fn roll_back(node: &RedisServer) {
    assert_eq!(node.cli(&["SAVE"]).text(), "OK");
    thread::sleep(TTL / 4);
    node.restart();
    // The next start is one with nothing again.
    fs::remove_file(node.dir().join(DUMP)).expect("the file that it started from");
}

/// A replica is cut off, and a quarter of the ttl later takes the node's place.
fn promote(plan: Plan, node: &mut RedisServer) {
    let line = Proxy::start(node.port());
    let replica = self::node(plan).replica_through(&line).start();
    replica.wait_until_in_sync();
    line.set(Mode::BlackHole(Direction::ToClient));
    thread::sleep(TTL / 4);
    node.take_over(replica);
}

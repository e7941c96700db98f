//! Nodes lose their data: killed, emptied, rolled back, or replaced by a replica that lags.

#![expect(clippy::disallowed_methods, reason = "it paces what it does to nodes")]

use std::{fs, thread};

use quorate_tests::dice::Dice;
use quorate_tests::{Builder, Direction, Mode, Nodes, Proxy, RedisServer};

use super::{Plan, TTL};

/// The file that a node starts from, if there is one.
const DUMP: &str = "dump.rdb";

/// Settings of all nodes. A replica is sent all that there is when it asks, and keeps no file of it.
pub(super) fn node(plan: Plan) -> Builder {
    let builder = RedisServer::builder().config("rdb-del-sync-files", &["yes"]);
    if plan.remembers { builder.append_only() } else { builder }
}

/// Strikes, one round after the other, until the kills and restarts are `enough`. Returns how many there were.
pub(super) fn strike(plan: Plan, nodes: &mut Nodes, mut enough: impl FnMut(u32) -> bool) -> u32 {
    let (dice, mut turn, mut round, mut cycles) = (Dice::new(1), 0, 0_u32, 0);
    while !enough(cycles) {
        round += 1;
        // Now and then one more than can be spared. Nodes that remember can all be spared.
        let is_burst = plan.remembers || round.is_multiple_of(BURST_EVERY);
        for _ in 0..(plan.nodes - 1) / 2 + usize::from(is_burst) {
            let node = &mut nodes[turn % plan.nodes];
            turn += 1;
            let number = if plan.remembers { 0 } else { dice.below(20) };
            cycles += u32::from(blow(number, plan, node));
            thread::sleep(dice.part(TTL, 0, 10));
        }
        // With the guard they all vote again after the ttl: mostly before the next ones are struck.
        thread::sleep(dice.part(TTL, 70, 150));
    }
    cycles
}

/// Each so many rounds.
const BURST_EVERY: u32 = 4;

/// Whether a server has ended and another one begun, which a flush is not.
fn blow(number: usize, plan: Plan, node: &mut RedisServer) -> bool {
    match number {
        0..15 => node.restart(),
        15..17 => node.flushall(),
        17..19 => roll_back(node),
        _ => promote(plan, node),
    }
    !(15..17).contains(&number)
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
    let replica = self::node(plan).replica_of(line.port()).start();
    replica.wait_until_in_sync();
    line.set(Mode::BlackHole(Direction::ToClient));
    thread::sleep(TTL / 4);
    let promoted = replica.run_id();
    node.take_over(replica);
    assert_eq!(node.run_id(), promoted);
}

//! What users of lock libraries and other test suites found, each as a test of its name: the third list.

use quorate_core::backend::Capabilities;
use quorate_core::{ExtendError, LeaseEnd, Runtime};
use quorate_memory::{Effect, Fault, Operation, Rule};

use crate::waiting::contest::Contest;
use crate::waiting::processes::Scene;
use crate::world::{HOUR, MARGIN, MS, SECOND, World};

/// Why a lease ends by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    NotRenewed,
    RenewalsFail,
    HoldLimit,
}

/// A holder that stops late is alone for the margin, whoever comes next.
#[test]
fn a_lapsed_lease_keeps_its_margin() {
    for end in [End::NotRenewed, End::RenewalsFail, End::HoldLimit] {
        for (is_other, guard_goes) in [(false, false), (false, true), (true, false), (true, true)] {
            let row = format!("{end:?}, another process: {is_other}, the guard goes: {guard_goes}");
            let scene = Scene::new(5);
            let (holder, other) = (scene.process(), scene.process());
            let mut request = holder.lock("r").ttl(10 * SECOND);
            if end == End::HoldLimit {
                request = request.hold_limit(4 * SECOND);
            }
            let guard = scene.run(request).unwrap();
            if end == End::RenewalsFail {
                guard.auto_renew();
                for node in &scene.nodes {
                    node.add_rule(Rule::new(Effect::DropRequest).on(Operation::Extend));
                }
            }
            let next = if is_other { &other } else { &holder }.hold_once("r", MS);
            let lost = scene.run(guard.lost());
            assert_eq!(
                matches!(lost, LeaseEnd::HoldLimit(_)),
                end == End::HoldLimit,
                "{row}: {lost:?}"
            );
            let ended = holder.client.now();
            assert_eq!(guard.valid_until(), ended, "{row}");
            if guard_goes {
                scene.advance(MARGIN / 5);
                drop(guard);
                scene.advance(MARGIN / 5);
                assert!(next.lock().unwrap().is_some(), "{row}: its holder has stopped");
            } else {
                scene.advance(2 * SECOND);
                let from = next.lock().unwrap().expect("the margin is over").from;
                let waited = from - ended;
                assert!(waited >= MARGIN && waited < MARGIN + 20 * MS, "{row}: {waited:?}");
            }
        }
    }
}

/// A node that was down when its lock was released, with a ttl of an hour.
#[test]
fn a_node_that_is_back_is_released_at_once() {
    for world in World::kinds(3) {
        for (away, asks_another) in [(SECOND, true), (60 * SECOND, true), (60 * SECOND, false)] {
            let manager = world.manager();
            let guard = world.run(manager.lock("r").ttl(HOUR)).unwrap();
            world.catch_up();
            world.nodes[0].inject(Fault::Down);
            world.run(guard.release()).unwrap();
            world.advance(away + 7 * MS);
            world.nodes[0].heal();
            assert!(world.nodes[0].get("r").is_some());
            if asks_another {
                // It has answered something.
                drop(world.run(manager.lock("s")).unwrap());
                world.catch_up();
            } else {
                world.advance(500 * MS);
            }
            assert!(world.nodes[0].keys().is_empty(), "{away:?}, {asks_another}");
        }
    }
}

#[test]
fn the_smallest_validity_does_not_spin() {
    let world = World::new(3);
    let manager = world.builder().ttl(4 * MS).build().unwrap();
    let guard = world.run(manager.lock("r")).unwrap();
    guard.auto_renew();
    world.advance(SECOND);
    assert!(guard.is_valid());
    let extended = world.log.count("extend") / 3;
    // Four in a validity of 1.56 ms.
    assert!(extended < 2_600, "{extended} rounds in a second");
    // And while no node answers.
    world.inject(.., Fault::Hung);
    world.advance(SECOND);
    assert!(!guard.is_valid());
    assert!(world.log.operations().len() < 3 * 2_600 + 100);
}

/// The second caller hears of the round after the next one has failed.
#[test]
fn a_won_extension_is_won_for_all_its_callers() {
    let (world, guard) = World::new(3).held();
    world.inject(.., Fault::Late(100 * MS));
    let mut shared = Box::pin(guard.extend());
    assert!(world.sim.block_on_for(shared.as_mut(), 1).is_none(), "it is in the round");
    world.run(guard.extend()).unwrap();
    world.inject(.., Fault::Down);
    let failed = world.run(guard.extend());
    assert!(matches!(failed, Err(ExtendError::NoQuorum(_))), "{failed:?}");
    world.run(shared).expect("its round was won");
    assert!(guard.is_valid());
}

/// A process over a pool, one without pushes, and one that can do nothing, beside others that can do everything.
#[test]
fn processes_with_other_abilities_are_not_starved() {
    let pool = Capabilities::ORDERED | Capabilities::WATCH;
    for (others, hold) in [(3, MS), (7, MS), (3, 100 * MS), (7, 100 * MS)] {
        for lacks in [pool, Capabilities::WATCH] {
            let scene = Scene::new(5);
            let odd = scene.process_on(move |node| node.without(lacks));
            let mut contest = Contest::on(scene, hold);
            contest.run(odd, 1);
            (0..others).for_each(|_| contest.join(1));
            let figures = contest.figures(if hold == MS { 3 * SECOND } else { 20 * SECOND });
            assert!(figures.least() >= 0.5, "{lacks:?} beside {others}, {hold:?}: {figures:?}");
        }
    }
}

/// Both rank the nodes by server id and key.
#[test]
fn the_order_of_the_nodes_does_not_matter() {
    let scene = Scene::new(5);
    let orders = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1], [3, 0, 4, 1, 2]];
    let processes = orders.map(|order| scene.process_listing(&order));
    let mut contest = Contest::on(scene, MS);
    processes.into_iter().for_each(|process| contest.run(process, 1));
    // The server ids are known after the first answers.
    contest.figures(SECOND);
    let figures = contest.figures(4 * SECOND);
    assert!(figures.least() >= 0.5 && figures.longest_absence < SECOND, "{figures:?}");
}

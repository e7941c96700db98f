//! Those who wait and are gone are passed by.

use std::future::{Future, IntoFuture, poll_fn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use quorate_core::{Key, Place, Queue, Resource, Runtime};
use quorate_memory::{Effect, Fault, MemoryNode, Operation, Rule, Sim};

use crate::order::{contend_for, nodes, process};
use crate::world::{MS, SECOND};

/// So many have places at each node, and never leave them.
pub(crate) fn haunt(sim: &Sim, nodes: &[MemoryNode], ghosts: usize) {
    for (number, node) in nodes.iter().enumerate() {
        for ghost in 0..ghosts {
            let fill = |bytes: &mut [u8]| {
                bytes.fill((10 * ghost + number) as u8);
                Ok(())
            };
            let (key, place) = (Key::new(b"", &Resource::new("r").unwrap()), Place::draw(fill));
            let before = sim.block_on(node.join(&key, &place.unwrap())).unwrap();
            assert_eq!(before.is_some(), ghost > 0);
        }
    }
}

/// So many processes want the lock once, one after the other, for no time. When each had it.
fn served_at(sim: &Sim, nodes: &[MemoryNode], waiters: usize) -> Arc<Mutex<Vec<Duration>>> {
    let times = Arc::<Mutex<Vec<Duration>>>::default();
    for _ in 0..waiters {
        let (manager, times, sim_) = (process(sim, nodes), Arc::clone(&times), sim.clone());
        sim.spawn(Box::pin(async move {
            let guard = manager.lock("r").wait(60 * SECOND).await.unwrap();
            times.lock().unwrap().push(sim_.elapsed());
            let _ = guard.release().await.unwrap();
        }));
        sim.advance(MS);
    }
    times
}

/// Its process was killed while it waited.
#[test]
fn a_place_that_nobody_answers_for_is_passed_by_after_a_moment() {
    for waiters in [1, 4] {
        let sim = Sim::new(1);
        let nodes = nodes(&sim);
        let held = sim.block_on(process(&sim, &nodes).lock("r")).unwrap();
        haunt(&sim, &nodes, 1);
        let times = served_at(&sim, &nodes, waiters);
        sim.advance(SECOND);
        let _ = sim.block_on(held.release()).unwrap();
        let released = sim.elapsed();
        sim.advance(SECOND);
        let times = times.lock().unwrap();
        assert_eq!(times.len(), waiters);
        let last = times[waiters - 1] - released;
        assert!(last < 80 * MS, "{waiters} behind it had the lock after {last:?}");
        let haunted = nodes.iter().filter(|node| !node.keys().is_empty()).count();
        assert_eq!(haunted, 4, "it is removed where it was passed by");
    }
}

/// By somebody who does not stand in line, say, and whose hold shows that nobody let it lie there.
#[test]
fn those_before_have_another_moment_when_somebody_takes_the_lock() {
    let sim = Sim::new(1);
    let nodes = nodes(&sim);
    let [held, other] = [process(&sim, &nodes), process(&sim, &nodes)];
    let held = sim.block_on(held.lock("r")).unwrap();
    haunt(&sim, &nodes, 1);
    let times = served_at(&sim, &nodes, 1);
    sim.advance(SECOND);
    let _ = sim.block_on(held.release()).unwrap();
    sim.advance(25 * MS);
    let taken = sim.block_on(other.try_lock("r")).unwrap();
    sim.advance(5 * MS);
    let _ = sim.block_on(taken.release()).unwrap();
    let released = sim.elapsed();
    sim.advance(SECOND);
    let waited = times.lock().unwrap()[0] - released;
    assert!(waited > 50 * MS && waited < 70 * MS, "{waited:?}");
}

#[test]
fn several_places_that_nobody_answers_for_are_passed_by_after_a_moment_too() {
    for (ghosts, waiters) in [(2, 1), (5, 1), (2, 6)] {
        let sim = Sim::new(1);
        let nodes = nodes(&sim);
        let held = sim.block_on(process(&sim, &nodes).lock("r")).unwrap();
        haunt(&sim, &nodes, ghosts);
        let times = served_at(&sim, &nodes, waiters);
        sim.advance(SECOND);
        let _ = sim.block_on(held.release()).unwrap();
        let released = sim.elapsed();
        sim.advance(SECOND);
        let times: Vec<_> = times.lock().unwrap().iter().map(|at| *at - released).collect();
        assert!(
            times.len() == waiters && times[waiters - 1] < 330 * MS,
            "{times:?} behind {ghosts}"
        );
    }
}

/// What a process does that is killed: nothing more, and it gives nothing up.
fn until_killed(
    killed: &Arc<AtomicBool>,
    task: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let (killed, mut task) = (Arc::clone(killed), Box::pin(task));
    poll_fn(move |context| match killed.load(Ordering::SeqCst) {
        true => Poll::Pending,
        false => task.as_mut().poll(context),
    })
}

#[test]
fn those_who_are_killed_anywhere_in_line_cost_a_moment_and_no_order() {
    for (killed, hold) in [(0, MS), (1, MS), (3, MS), (1, 300 * MS), (3, 300 * MS)] {
        let sim = Sim::new(2);
        let nodes = nodes(&sim);
        let held = sim.block_on(process(&sim, &nodes).lock("r")).unwrap();
        let (ghost, served) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<_>>>::default());
        for number in 0..7 {
            let waits = process(&sim, &nodes).lock("r").wait(60 * SECOND).into_future();
            let (served, sim_) = (Arc::clone(&served), sim.clone());
            let is_killed = if number == killed { Arc::clone(&ghost) } else { Arc::default() };
            let task = async move {
                let guard = waits.await.unwrap();
                served.lock().unwrap().push((number, sim_.elapsed()));
                sim_.sleep_until(sim_.now() + hold).await;
                let _ = guard.release().await.unwrap();
            };
            sim.spawn(Box::pin(until_killed(&is_killed, task)));
            sim.advance(2 * MS);
        }
        sim.advance(SECOND);
        ghost.store(true, Ordering::SeqCst);
        let _ = sim.block_on(held.release()).unwrap();
        let released = sim.elapsed();
        sim.advance(7 * hold + SECOND);
        let served = served.lock().unwrap();
        let order: Vec<_> = served.iter().map(|(number, _)| *number).collect();
        let rest: Vec<_> = (0..7).filter(|number| *number != killed).collect();
        assert_eq!(order, rest, "{killed} was killed, held for {hold:?}");
        let took = served[5].1 - released - 5 * hold;
        assert!(took < 300 * MS, "{took:?} where {killed} was killed, held for {hold:?}");
    }
}

/// In two regions, say, of which one has no quorum.
#[test]
fn a_place_is_passed_by_where_the_gate_is_near_and_the_others_are_far() {
    for near in 0..5 {
        let sim = Sim::new(1);
        let nodes = nodes(&sim);
        for (number, node) in nodes.iter().enumerate() {
            let far = Effect::Delay { least: 20 * MS, most: 20 * MS };
            if number != near {
                node.add_rule(Rule::new(far));
            }
        }
        let held = sim.block_on(process(&sim, &nodes).lock("r")).unwrap();
        haunt(&sim, &nodes, 1);
        let times = served_at(&sim, &nodes, 2);
        sim.advance(SECOND);
        let _ = sim.block_on(held.release()).unwrap();
        sim.advance(SECOND);
        assert_eq!(times.lock().unwrap().len(), 2, "{near} is near");
    }
}

#[test]
fn who_waits_for_less_than_that_looks_in_time() {
    let sim = Sim::new(1);
    let nodes = nodes(&sim);
    let held = sim.block_on(process(&sim, &nodes).lock("r")).unwrap();
    haunt(&sim, &nodes, 3);
    let waits = process(&sim, &nodes).lock("r").wait(150 * MS).into_future();
    sim.spawn(Box::pin(async move { drop(held.release().await) }));
    assert!(sim.block_on(waits).is_ok());
}

#[test]
fn a_node_that_hangs_does_not_hold_up_those_who_have_their_places_there() {
    for hung in 0..5 {
        let sim = Sim::new(1);
        let nodes = nodes(&sim);
        let held = sim.block_on(process(&sim, &nodes).lock("r")).unwrap();
        let served = served_at(&sim, &nodes, 6);
        sim.advance(SECOND);
        nodes[hung].inject(Fault::Hung);
        let _ = sim.block_on(held.release()).unwrap();
        let released = sim.elapsed();
        sim.advance(8 * SECOND);
        let times: Vec<_> = served.lock().unwrap().iter().map(|at| *at - released).collect();
        assert!(times.len() == 6 && times[5] < SECOND / 2, "{times:?} where {hung} hangs");
    }
}

/// And the others took the lock only after those who wait had looked.
#[test]
fn a_node_that_hangs_holds_nobody_up_where_others_were_late() {
    for hung in 0..5 {
        let sim = Sim::new(1);
        let nodes = nodes(&sim);
        let held = sim.block_on(process(&sim, &nodes).lock("r")).unwrap();
        let next = process(&sim, &nodes).lock("r").wait(60 * SECOND).into_future();
        let sim_ = sim.clone();
        sim.spawn(Box::pin(async move {
            let guard = next.await.unwrap();
            sim_.sleep_until(sim_.now() + SECOND).await;
            let _ = guard.release().await.unwrap();
        }));
        sim.advance(MS);
        let times = served_at(&sim, &nodes, 4);
        sim.advance(SECOND);
        for late in [&nodes[(hung + 1) % 5], &nodes[(hung + 2) % 5]] {
            let late_by = Effect::Delay { least: 400 * MS, most: 400 * MS };
            late.add_rule(Rule::new(late_by).on(Operation::Acquire));
        }
        let _ = sim.block_on(held.release()).unwrap();
        sim.advance(700 * MS);
        nodes.iter().for_each(MemoryNode::clear_rules);
        nodes[hung].inject(Fault::Hung);
        sim.advance(2 * SECOND);
        assert_eq!(times.lock().unwrap().len(), 4, "{hung} hangs");
    }
}

#[test]
fn those_who_stand_at_a_node_that_hangs_are_not_kept_out_by_those_who_do_not() {
    for hung in 0..5 {
        let sim = Sim::new(1);
        let nodes = nodes(&sim);
        let held = sim.block_on(process(&sim, &nodes).lock("r")).unwrap();
        let times = served_at(&sim, &nodes, 4);
        sim.advance(SECOND);
        nodes[hung].inject(Fault::Hung);
        let others = contend_for(100 * MS, &sim, &nodes, 3);
        sim.advance(MS);
        let _ = sim.block_on(held.release()).unwrap();
        sim.advance(8 * SECOND);
        let others: u32 = others.lock().unwrap().iter().sum();
        assert!(others > 30, "{others}");
        let served = times.lock().unwrap().len();
        assert_eq!(served, 4, "while others had it {others} times, and {hung} hangs");
    }
}

#[test]
fn a_place_that_nobody_answers_for_costs_a_moment_and_no_more() {
    for processes in [1, 2, 4] {
        let sim = Sim::new(1);
        let nodes = nodes(&sim);
        let held = sim.block_on(process(&sim, &nodes).lock("r")).unwrap();
        haunt(&sim, &nodes, 1);
        let served = contend_for(MS, &sim, &nodes, processes);
        sim.advance(MS);
        let _ = sim.block_on(held.release()).unwrap();
        sim.advance(SECOND);
        let served: u32 = served.lock().unwrap().iter().sum();
        assert!(served > 600, "{processes} processes had it {served} times in a second");
    }
}

//! S1 and S5: each permit has one holder, also where processes give different counts.

use quorate_core::LockGuard;
use quorate_memory::{Effect, Rule};

use super::{Board, hand_over, name_of};
use crate::waiting::processes::{Process, REFRESH, ROUND_TRIP, SECOND_LOOK, Scene};
use crate::world::{MS, SECOND};

#[test]
fn s1_a_permit_has_one_holder_at_a_time() {
    for (processes, tasks, permits) in [(6, 1, 2), (1, 8, 3), (4, 3, 5), (2, 2, 1)] {
        let (scene, board) = (Scene::new(3), Board::default());
        for number in 0..processes {
            let process = scene.process();
            for task in 0..tasks {
                let hold = move |time| MS * ((number + 2 * task + time) % 5) as u32;
                board.use_again(&process, move |it| it.permit(permits), 12, hold);
            }
        }
        scene.advance(60 * SECOND);
        let story = format!("{processes} processes of {tasks} tasks, {permits} permits");
        board.check(permits.into(), 12 * processes * tasks, &story);
        assert!(scene.keys().is_empty(), "{story}: {:?}", scene.keys());
    }
}

/// Each of three processes reaches two of three nodes. A node that counted would grant two of them, and each process would
/// have two grants.
#[test]
fn s1_counting_does_not_compose() {
    let (scene, processes) = Scene::new(3).and_processes::<3>();
    for (node, process) in scene.nodes.iter().zip(&processes) {
        node.add_rule(Rule::new(Effect::DropRequest).client(&process.client));
    }
    let had = |process: &Process| scene.run(process.permit(2).no_wait()).ok();
    let guards: Vec<LockGuard> = processes.iter().filter_map(had).collect();
    assert_eq!(guards.len(), 2, "{guards:?}");
}

#[test]
fn s1_a_permit_is_a_lock_on_its_name_with_a_fencing_token_of_its_own() {
    let (scene, [one, other]) = Scene::new(3).and_processes();
    let first = scene.run(one.permit(2).fenced()).unwrap();
    let second = scene.run(other.permit(2).fenced()).unwrap();
    let mut names = [name_of(&first), name_of(&second)];
    names.sort();
    assert_eq!(names, ["p#1", "p#2"]);
    for name in names {
        assert!(scene.run(one.locks.try_lock(name)).unwrap().is_none());
    }
    let token = first.fencing_token().unwrap();
    let name = name_of(&first);
    scene.run(first.release()).unwrap();
    let third = scene.run(other.permit(2).fenced()).unwrap();
    assert_eq!(name_of(&third), name);
    assert!(third.fencing_token().unwrap() > token);
    let held = scene.run(one.locks.lock_any([name, "q".to_owned()])).unwrap();
    assert_eq!(name_of(&held), "q");
}

#[test]
fn s5_processes_with_different_counts_share_the_permits_of_both() {
    let (scene, board) = (Scene::new(3), Board::default());
    for permits in [2, 3, 5, 5] {
        let process = scene.process();
        for _ in 0..2 {
            board.use_again(&process, move |it| it.permit(permits), 20, |_| 5 * MS);
        }
    }
    scene.advance(60 * SECOND);
    board.check(5, 4 * 2 * 20, "counts of 2, 3 and 5");
}

/// A process with the count 3 waits in front of one with the count 5.
#[test]
fn s5_a_waiter_with_a_lower_count_does_not_hold_up_one_with_a_higher() {
    let (scene, [holder, lower, higher]) = Scene::new(3).and_processes();
    let mut guards: Vec<_> = (0..5).map(|_| scene.run(holder.permit(5)).unwrap()).collect();
    let first = lower.waits(3);
    scene.advance(SECOND);
    let second = higher.waits(5);
    scene.advance(SECOND);
    for (waits, numbers) in [(second, 4..=5), (first, 1..=3)] {
        let is_right = |name: &str| numbers.clone().any(|number| name == format!("p#{number}"));
        let at = guards.iter().position(|guard| is_right(&name_of(guard))).unwrap();
        let (had, took) = hand_over(&scene, guards.swap_remove(at), &waits);
        assert!(is_right(&had), "{had}");
        assert!(took <= REFRESH + SECOND_LOOK + 4 * ROUND_TRIP, "{took:?}");
    }
}

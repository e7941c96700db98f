//! Lists of nodes: by the procedure of the guide their quorums meet, and against it they do not.

use quorate_memory::Fault;

use crate::world::World;

/// One replaced of three: a lock on a and b, and another one on c and d.
#[test]
fn a_node_of_three_that_is_replaced_at_once_makes_two_holders() {
    let world = World::new(4);
    let list = |from: usize| world.over(world.spies().into_iter().skip(from).take(3));
    let (old, new) = (list(0), list(1));
    world.inject(2..3, Fault::Down);
    let one = world.lock(&old);
    world.heal();
    let other = world.lock(&new);
    assert!(one.is_valid() && other.is_valid());
}

/// Whether each quorum of the one list has a node in common with each quorum of the other.
fn meet(one: u32, other: u32) -> bool {
    let quorums = |list: u32| {
        let is_quorum =
            move |some: &u32| some & !list == 0 && some.count_ones() * 2 > list.count_ones();
        (0..1 << 9).filter(is_quorum).collect::<Vec<_>>()
    };
    quorums(one).iter().all(|some| quorums(other).iter().all(|others| some & others != 0))
}

#[test]
fn quorums_meet_after_one_node_more_or_less_and_not_after_one_of_an_odd_number_is_replaced() {
    for count in 1..=7_u32 {
        let list = (1 << count) - 1;
        assert!(meet(list, list | 1 << count), "one more than {count}");
        assert!(count == 1 || meet(list, list >> 1), "one less than {count}");
        assert_eq!(meet(list, list << 1), count % 2 == 0, "one of {count} is replaced");
        assert_eq!(meet(list, (1 << (count + 2)) - 1), count % 2 == 0, "two more than {count}");
    }
}

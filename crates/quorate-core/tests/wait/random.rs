//! Random inputs in random order: whatever comes, a wait goes on, and its entries leave.

use super::*;

/// Picks a number below its argument: by a seed, or by the bytes of a fuzzer.
pub(super) struct Random<'a>(pub(super) &'a mut dyn FnMut(u32) -> u32);

impl Random<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        (self.0)(bound)
    }

    fn one_in(&mut self, bound: u32) -> bool {
        self.below(bound) == 0
    }

    fn choose<'b, T>(&mut self, list: &'b [T]) -> &'b T {
        &list[self.below(u32::try_from(list.len()).expect("short")) as usize]
    }

    /// Up to three nodes in any order.
    fn ranks(&mut self) -> Vec<NodeId> {
        let mut ranks = Vec::new();
        for _ in 0..self.below(4) {
            let node = node(1 + self.below(3) as usize);
            if !ranks.contains(&node) {
                ranks.push(node);
            }
        }
        ranks
    }

    fn reply(&mut self) -> Refreshed {
        let names = ["e1", "e2", "p1"].map(entry);
        let predecessor = (!self.one_in(3)).then(|| self.choose(&names).clone());
        let first =
            predecessor.as_ref().map_or_else(|| entry("me"), |_| self.choose(&names).clone());
        let place = if predecessor.is_some() { 1 + self.below(3) as usize } else { 0 };
        let held = (!self.one_in(2)).then(|| self.below(2) as usize);
        let is_read = self.one_in(2);
        Refreshed { predecessor, first, held, free: None, is_read, place }
    }
}

/// What the shell and the nodes know of a wait.
struct World {
    gates: Vec<NodeId>,
    /// The nodes that may have the entry: a REFRESH was sent, and no LEAVE after it.
    joined: Vec<NodeId>,
    is_polling: bool,
    /// The call or the attempt that the machine awaits.
    awaited: Option<WaitAction>,
}

impl World {
    /// Performs the actions of one input.
    fn apply(&mut self, machine: &mut WaitMachine) {
        let mut count = 0;
        while let Some(action) = machine.poll_action() {
            count += 1;
            match &action {
                WaitAction::Skip(gate) => {
                    self.gates.retain(|other| other != gate);
                    continue;
                }
                WaitAction::Leave { gate, .. } => {
                    let at = self.joined.iter().position(|other| other == gate);
                    self.joined.remove(at.expect("LEAVE goes to a node that may have the entry"));
                    continue;
                }
                WaitAction::Refresh(gate) if !self.joined.contains(gate) => self.joined.push(*gate),
                WaitAction::Watch(gate, _) => {
                    assert!(!self.is_polling, "no push would come");
                    assert_eq!(self.joined, [*gate], "a watch is at the gate of the only entry");
                }
                _ => {}
            }
            assert_eq!(self.awaited.replace(action), None, "one call or attempt at a time");
        }
        assert!(count <= 3, "{count} actions after one input");
        assert_eq!(machine.has_entry(), !self.joined.is_empty());
        assert!(self.joined.len() <= 2, "the old gate and the new one");
    }
}

pub(super) fn run(random: &mut Random<'_>) {
    let mut now = Instant::now();
    let (gates, is_polling) = (random.ranks(), random.one_in(4));
    let own = entry(if is_polling { "p" } else { "me" });
    let mut machine = WaitMachine::begin(&gates, &own, NODE_TIMEOUT, random.one_in(2), now);
    let mut world = World { gates, joined: Vec::new(), is_polling, awaited: None };
    world.apply(&mut machine);
    // When the machine last attempted or sent a refresh.
    let mut active = now;
    for _ in 0..200 {
        if random.one_in(6) {
            world.gates = random.ranks();
        }
        machine.set_gates(&world.gates);
        let next = machine.next_timeout();
        if random.one_in(5) {
            let later = now + Duration::from_millis(u64::from(random.below(30)));
            now = next.map_or(later, |next| next.min(later));
        }
        let refresh = WaitMachine::refresh_interval(random.below(2000));
        match (world.awaited.take(), random.below(9)) {
            (awaited, 0) => {
                world.awaited = awaited;
                let keys = [key("lock"), key("e1"), key("e2"), WatchedKey::Lock(1)];
                machine.handle_push(random.choose(&keys), now);
            }
            (_, 1) if random.one_in(20) => machine.cancel(),
            (Some(WaitAction::Attempt), 2) if random.one_in(8) => machine.handle_won(),
            (Some(WaitAction::Attempt), 3) => machine.take_over(),
            (Some(WaitAction::Attempt), _) => machine.handle_refused(refresh, now),
            (Some(_), 2) => machine.handle_failure(now),
            (Some(WaitAction::Refresh(_)), 3..) => {
                machine.handle_refreshed(random.reply(), refresh, now);
            }
            (Some(WaitAction::Watch(..)), 3..) => machine.handle_watched(random.one_in(2), now),
            _ => {
                now = next.expect("each phase but Trying has a timeout");
                machine.handle_timeout(now);
            }
        }
        world.apply(&mut machine);
        if matches!(world.awaited, Some(WaitAction::Attempt | WaitAction::Refresh(_))) {
            active = now;
        }
        let longest = REFRESH * 6 / 5 + Duration::from_millis(100) + 2 * NODE_TIMEOUT;
        assert!(now - active <= longest, "W1: no refresh for {:?}", now - active);
        if !machine.has_entry() && world.awaited.is_none() && machine.next_timeout().is_none() {
            break;
        }
    }
    world.awaited = None;
    machine.cancel();
    world.apply(&mut machine);
    assert_eq!(world.joined, [], "a LEAVE for each queue that was joined");
    assert_eq!((machine.next_timeout(), world.awaited), (None, None));
}

//! Steps that belong to no node: the clock ticks, and a holder reads its token.

use std::rc::Rc;

use crate::scope::{Flaw, NODES, QUORUM, Scope, Time};
use crate::step::{Next, Step};
use crate::world::World;

impl World {
    /// The wrong idea: the token is the number that a quorum has now.
    pub(super) fn read_back(&self, scope: &Scope, at: usize, next: &mut Vec<Next>) {
        let is_flawed = scope.fencing.is_some_and(|it| it.flaw == Some(Flaw::ReadBack));
        if !is_flawed || !self.clients[at].as_ref().is_some_and(|client| client.reads) {
            return;
        }
        let mut numbers = self.places.clone().map(|place| place.number);
        numbers.sort_unstable();
        for same in numbers.chunk_by(|one, other| one == other).filter(|it| it.len() >= QUORUM) {
            let mut world = self.clone();
            let client = world.client(at);
            (client.token, client.reads) = (Some(same[0]), false);
            next.push(Next { step: Step::ReadBack(at, same[0]), world, wrong: None });
        }
    }

    pub(super) fn tick(&self, scope: &Scope, next: &mut Vec<Next>) {
        let is_due = || self.begun().any(|(_, client)| client.is_due(self.start));
        let under_way = |from: usize| -> usize {
            self.places.iter().map(|place| place.sides[from].channel.len()).sum()
        };
        let is_in_time = scope.under_way.is_none_or(|most| {
            most.iter().enumerate().all(|(from, most)| under_way(from) <= usize::from(*most))
        });
        let may_tick = scope.time == Time::LateTimers || scope.time == Time::Ticks && !is_due();
        if !may_tick || !is_in_time {
            return;
        }
        let mut world = self.clone();
        for client in world.clients.iter_mut().flatten() {
            // A clock that no attempt reads stands still, so that no two states differ only in it.
            if !client.is_quiescent() {
                Rc::make_mut(client).now += 1;
            }
        }
        let promises = |at: usize| {
            let sides = self.places[at].sides.iter();
            sides.flat_map(|side| {
                side.channel.iter().map(|it| it.promises).chain([side.truth.promised])
            })
        };
        for at in (0..NODES).filter(|at| promises(*at).any(|left| left > 0)) {
            for side in &mut world.place(at).sides {
                side.truth.promised = side.truth.promised.saturating_sub(1);
                side.channel.iter_mut().for_each(|it| it.promises = it.promises.saturating_sub(1));
            }
        }
        for at in 0..NODES {
            if self.places[at].left > 0 {
                let place = world.place(at);
                place.left -= 1;
                if place.left == 0 {
                    (place.owner, place.is_marked) = (None, false);
                }
            }
        }
        next.push(Next { step: Step::Tick, world, wrong: None });
    }
}

//! What must hold in each state.

use std::rc::Rc;
use std::time::Duration;

use quorate_pure::core_source::algorithm::attempt::Knowledge;

use crate::place::Place;
use crate::scope::{MARGIN, QUORUM, Scope};
use crate::world::{World, time};

impl World {
    /// What is violated. Of violations by fencing tokens, the `wanted` one if it is among them.
    pub(crate) fn judge(
        &self,
        scope: &Scope,
        wanted: Option<&'static str>,
    ) -> Option<&'static str> {
        let of_tokens = || {
            let [first, ..] = self.judge_tokens(scope)[..] else { return None };
            self.judge_tokens(scope).into_iter().find(|what| wanted == Some(what)).or(Some(first))
        };
        self.judge_leases(scope).or_else(of_tokens)
    }

    fn judge_leases(&self, scope: &Scope) -> Option<&'static str> {
        let mut holders = 0;
        for (from, client) in self.begun().filter(|_| scope.has_clock()) {
            // The margin protects a holder that stops late.
            let margin = Duration::from_secs(MARGIN.into());
            let end = match client.machine.valid_until() {
                Some(end) => Some(end + margin),
                None if client.is_lapsed() => client.machine.next_timeout(),
                None => None,
            };
            if let Some(end) = end.filter(|end| *end > time(self.start, client.now)) {
                holders += 1;
                let kept = self.places.iter().filter(|place| {
                    let until = time(self.start, client.now + u32::from(place.left));
                    place.owner == Some(from) && until >= end
                });
                if !scope.keys_vanish && scope.attempts == 1 && kept.count() < QUORUM {
                    return Some(
                        "T1, T2: valid, or in its margin, for longer than a quorum keeps the keys",
                    );
                }
            }
            for (node, place) in self.places.iter().enumerate() {
                let is_freed = client.node(node).knowledge() == Knowledge::Freed;
                if is_freed && place.owner == Some(from) && !place.sides[from].truth.is_excused {
                    return Some("C3: a key at a node that has answered a release");
                }
            }
        }
        (holders > 1 && !scope.keys_vanish).then_some(OVERLAP)
    }

    fn judge_tokens(&self, scope: &Scope) -> Vec<&'static str> {
        let mut violated = Vec::new();
        if scope.fencing.is_none() || scope.attempts == 1 {
            return violated;
        }
        for (one, a) in self.begun() {
            for (other, b) in self.begun().filter(|(other, _)| *other != one) {
                let (Some(token), Some(later)) = (a.token, b.token) else { continue };
                if token == later {
                    violated.push(UNIQUE);
                }
                if b.older[one] && token >= later {
                    violated.push(IN_TIME);
                }
                let was_granted_after = |place: &Rc<Place>| place.before[one][other];
                if token > later && !self.places.iter().any(was_granted_after) {
                    violated.push(IN_TENURE);
                }
            }
        }
        violated
    }
}

/// Two attempts hold the lock at one moment.
pub(crate) const OVERLAP: &str = "two leases are valid at once";
/// No two attempts have the same token.
pub(crate) const UNIQUE: &str = "fencing: two attempts have one token";
/// An attempt that had its token before another began has the lower one.
pub(crate) const IN_TIME: &str = "fencing: tokens against real time";
/// An attempt that was granted all common nodes after another has the higher token.
pub(crate) const IN_TENURE: &str = "fencing: tokens against the order of holding";

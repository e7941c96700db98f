//! The bugs: what libraries have got wrong, as changes of our own sources.

/// A wrong version.
pub(super) struct Bug {
    /// What it is called.
    pub(super) name: &'static str,
    /// File, what stands there, and what stands there instead. `PLANTED` becomes the switch.
    pub(super) edits: &'static [(&'static str, &'static str, &'static str)],
}

const CALLS: &str = "crates/quorate-core/src/calls.rs";
const DRIVER: &str = "crates/quorate-core/src/driver.rs";
const GUARD: &str = "crates/quorate-core/src/guard.rs";
const LEASE: &str = "crates/quorate-core/src/algorithm/lease.rs";
const MANAGER: &str = "crates/quorate-core/src/manager.rs";
const QUORUM: &str = "crates/quorate-core/src/algorithm/quorum.rs";
const ROUND: &str = "crates/quorate-core/src/algorithm/round.rs";
const STORE: &str = "crates/quorate-memory/src/store.rs";

/// All of them.
pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "token-reused-on-retry",
        edits: &[(
            MANAGER,
            "let token = Token::draw(|bytes| cluster.runtime.fill_random(bytes))?;",
            "let draw = || Token::draw(|bytes| cluster.runtime.fill_random(bytes));
             let token = if crate::planted::PLANTED {
                 crate::planted::same_token(&wanted.keys, draw)?
             } else {
                 draw()?
             };",
        )],
    },
    Bug {
        name: "no-validity-check-on-acquire",
        edits: &[(
            ROUND,
            "(Verdict::Won, Goal::Lease { within, .. }) if now >= within =>",
            "(Verdict::Won, Goal::Lease { within, valid_until })
                 if now >= within && !(within == valid_until && crate::planted::PLANTED) =>",
        )],
    },
    Bug {
        name: "no-validity-check-on-extend",
        edits: &[(
            ROUND,
            "let goal = Goal::Lease { valid_until: extended.max(held_until), within: held_until };",
            "let far = held_until + Duration::from_secs(1_000_000);
             let within = if crate::planted::PLANTED { far } else { held_until };
             let goal = Goal::Lease { valid_until: extended.max(held_until), within };",
        )],
    },
    Bug {
        name: "validity-from-the-reply",
        edits: &[(
            MANAGER,
            "Step::Won { valid_until } => {
                flight.keep();",
            "Step::Won { valid_until } => {
                let late = drift.valid_until(cluster.runtime.now(), wanted.ttl);
                let valid_until = if crate::planted::PLANTED { late } else { valid_until };
                flight.keep();",
        )],
    },
    Bug {
        name: "extension-from-the-reply",
        edits: &[(
            GUARD,
            "let valid_for = nanos_between(self.start, valid_until);
                self.valid_for.fetch_max",
            "let late = config.drift.valid_until(cluster.runtime.now(), ttl);
             let valid_until = if crate::planted::PLANTED { late } else { valid_until };
             let valid_for = nanos_between(self.start, valid_until);
                self.valid_for.fetch_max",
        )],
    },
    Bug {
        name: "quorum-of-half",
        edits: &[(
            QUORUM,
            "const fn decide(&self, yes: usize) -> Verdict {
        if yes >= self.nodes.quorum() {",
            "fn decide(&self, yes: usize) -> Verdict {
        if crate::planted::PLANTED && yes >= (self.nodes.get() / 2).max(1) {
            return Verdict::Won;
        }
        if yes >= self.nodes.quorum() {",
        )],
    },
    Bug {
        name: "quorum-of-those-that-answered",
        edits: &[(
            QUORUM,
            "if yes >= self.nodes.quorum() {
            Verdict::Won",
            "if crate::planted::PLANTED
            && self.open() == 0
            && yes > (self.granted() + self.refused()) / 2
        {
            return Verdict::Won;
        }
        if yes >= self.nodes.quorum() {
            Verdict::Won",
        )],
    },
    Bug {
        name: "refusals-counted-as-grants",
        edits: &[(
            QUORUM,
            "Vote::Refused => self.refused |= bit(node),",
            "Vote::Refused if crate::planted::PLANTED => self.granted |= bit(node),
             Vote::Refused => self.refused |= bit(node),",
        )],
    },
    Bug {
        name: "silence-counted-as-grants",
        edits: &[(
            QUORUM,
            "for node in self.nodes.ids() {
            self.on_unknown(node);",
            "for node in self.nodes.ids() {
            if crate::planted::PLANTED {
                self.on_vote(node, Vote::Granted);
            }
            self.on_unknown(node);",
        )],
    },
    Bug {
        name: "errors-counted-as-grants",
        edits: &[(
            ROUND,
            "self.tally.on_unknown(node);",
            "if crate::planted::PLANTED {
                 self.tally.on_vote(node, Vote::Granted);
             }
             self.tally.on_unknown(node);",
        )],
    },
    Bug {
        name: "no-release-before-the-retry",
        edits: &[(
            DRIVER,
            "self.attempt.set_out(&mut self.calls, &Operation::Release);",
            "if !crate::planted::PLANTED {
                 self.attempt.set_out(&mut self.calls, &Operation::Release);
             }",
        )],
    },
    Bug {
        name: "cancel-skips-cleanup",
        edits: &[(
            DRIVER,
            "if self.aftermath == Aftermath::Undo {",
            "if self.aftermath == Aftermath::Undo && !crate::planted::PLANTED {",
        )],
    },
    Bug {
        name: "release-only-where-granted",
        edits: &[(
            DRIVER,
            "Operation::Release => backend.release(&attempt.claim).await,",
            "Operation::Release if crate::planted::PLANTED && !attempt.has_granted(node) => {
                 Ok(Vote::Refused)
             }
             Operation::Release => backend.release(&attempt.claim).await,",
        )],
    },
    Bug {
        name: "no-release-after-a-timeout",
        edits: &[(
            CALLS,
            "self.open.push(Call { node, superseded: false, future });",
            "let silent = self.open.iter().any(|call| call.node == node && call.superseded);
             if !(silent && crate::planted::PLANTED) {
                 self.open.push(Call { node, superseded: false, future });
             }",
        )],
    },
    Bug {
        name: "release-to-a-quorum-only",
        edits: &[(
            DRIVER,
            "for node in self.cluster.count().ids() {",
            "let few = matches!(operation, Operation::Release) && crate::planted::PLANTED;
             let quorum = self.cluster.count().quorum();
             for node in self.cluster.count().ids().filter(|n| !few || n.index() < quorum) {",
        )],
    },
    Bug {
        name: "release-overtakes-the-acquire",
        edits: &[(
            DRIVER,
            "let _lane = attempt.lanes[node.index()].lock().await;",
            "let lane = attempt.lanes[node.index()].lock();
             let _lane = if crate::planted::PLANTED { None } else { Some(lane.await) };",
        )],
    },
    Bug {
        name: "late-answers-dropped",
        edits: &[(
            DRIVER,
            "let releases = self.aftermath != Aftermath::Drain;",
            "if crate::planted::PLANTED && self.aftermath != Aftermath::Undo {
                 return;
             }
             let releases = self.aftermath != Aftermath::Drain;",
        )],
    },
    Bug {
        name: "failed-release-not-repeated",
        edits: &[(
            DRIVER,
            "again.retain(|node| attempt.has_granted(*node));",
            "again.retain(|node| attempt.has_granted(*node) && !crate::planted::PLANTED);",
        )],
    },
    Bug {
        name: "drop-skips-the-release",
        edits: &[(
            GUARD,
            "if !mem::replace(&mut self.released, true) {",
            "if !mem::replace(&mut self.released, true) && !crate::planted::PLANTED {",
        )],
    },
    Bug {
        name: "delete-without-compare",
        edits: &[(
            STORE,
            "if matches!(held, Some(Value::String(held)) if held == claim.token().as_bytes()) {",
            "let any = held.is_some() && quorate_core::planted::PLANTED;
            if any
                || matches!(held, Some(Value::String(held)) if held == claim.token().as_bytes())
            {",
        )],
    },
    Bug {
        name: "acquire-sent-twice-shortens",
        edits: &[(
            STORE,
            "if self.get(key.as_bytes(), now).is_none() {",
            "if self.get(key.as_bytes(), now).is_none() || quorate_core::planted::PLANTED {",
        )],
    },
    Bug {
        name: "extension-brings-keys-back",
        edits: &[(
            STORE,
            "_ => return Ok(Vote::Refused),
            }
        }
        let end",
            "None if quorate_core::planted::PLANTED => {
                let token = Value::String(claim.token().as_bytes().to_vec());
                self.put(key.as_bytes(), token, Some(now + claim.ttl().as_duration()));
            }
            _ => return Ok(Vote::Refused),
            }
        }
        let end",
        )],
    },
    Bug {
        name: "extension-shortens-keys",
        edits: &[(
            STORE,
            "entry.end = Some(entry.end.map_or(end, |before| before.max(end)));",
            "let longest = entry.end.map_or(end, |before| before.max(end));
             entry.end = Some(if quorate_core::planted::PLANTED { end } else { longest });",
        )],
    },
    Bug {
        name: "extension-shortens-the-lease",
        edits: &[(
            GUARD,
            "self.valid_for.fetch_max(valid_for, Ordering::AcqRel);",
            "self.valid_for.fetch_max(valid_for, Ordering::AcqRel);
             if crate::planted::PLANTED {
                 let short = config.drift.valid_until(start, ttl);
                 self.valid_for.store(nanos_between(self.start, short), Ordering::Release);
             }",
        )],
    },
    Bug {
        name: "extension-counts-lost-keys",
        edits: &[(
            DRIVER,
            "backend.extend(&claim).await",
            "match backend.extend(&claim).await {
                 Ok(_) if crate::planted::PLANTED => Ok(Vote::Granted),
                 vote => vote,
             }",
        )],
    },
    Bug {
        name: "failed-extension-releases",
        edits: &[(
            GUARD,
            "let votes = |outcome: &Outcome| outcome.votes(cluster, start);",
            "if crate::planted::PLANTED && !matches!(outcome.step, Step::Won { .. }) {
                 drop(Flight::new(&self.attempt, &Operation::Release));
             }
             let votes = |outcome: &Outcome| outcome.votes(cluster, start);",
        )],
    },
    Bug {
        name: "drift-ignored",
        edits: &[(
            LEASE,
            "ttl.as_duration().saturating_sub(self.of(ttl))",
            "if crate::planted::PLANTED { ttl.as_duration() } else {
                 ttl.as_duration().saturating_sub(self.of(ttl))
             }",
        )],
    },
    Bug {
        name: "wall-clock-set-back",
        edits: &[(
            GUARD,
            "self.valid_until().saturating_duration_since(self.attempt.cluster.runtime.now())",
            "let mut now = self.attempt.cluster.runtime.now();
             if crate::planted::PLANTED {
                 now -= self.attempt.claim.ttl().as_duration() / 10;
             }
             self.valid_until().saturating_duration_since(now)",
        )],
    },
    Bug {
        name: "validity-as-a-flag",
        edits: &[(
            GUARD,
            "!self.remaining().is_zero()",
            "!self.remaining().is_zero() || (crate::planted::PLANTED && !self.released)",
        )],
    },
    Bug {
        name: "deadline-ignored",
        edits: &[(
            MANAGER,
            "if next >= deadline {",
            "if next >= deadline && !crate::planted::PLANTED {",
        )],
    },
];

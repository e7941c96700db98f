//! The bugs: what libraries have got wrong, as changes of our own sources.

/// A wrong version.
pub(super) struct Bug {
    /// What it is called.
    pub(super) name: &'static str,
    /// File, what stands there, and what stands there instead. `PLANTED` becomes the switch.
    pub(super) edits: &'static [(&'static str, &'static str, &'static str)],
}

const CALLING: &str = "crates/quorate-core/src/driver/calling.rs";
const CALLS: &str = "crates/quorate-core/src/driver/calls.rs";
const CLEANUP: &str = "crates/quorate-core/src/driver/cleanup.rs";
const ATTEMPT: &str = "crates/quorate-core/src/driver/attempt.rs";
const DRIVER: &str = "crates/quorate-core/src/driver.rs";
const GUARD: &str = "crates/quorate-core/src/guard.rs";
const HANDOVER: &str = "crates/quorate-core/src/handover.rs";
const LEASE: &str = "crates/quorate-core/src/algorithm/lease.rs";
const MANAGER: &str = "crates/quorate-core/src/manager.rs";
const ONE_ROUND: &str = "crates/quorate-core/src/manager/one_round.rs";
const QUORUM: &str = "crates/quorate-core/src/algorithm/quorum.rs";
const RENEWAL: &str = "crates/quorate-core/src/algorithm/renewal.rs";
const RENEWING: &str = "crates/quorate-core/src/renewal.rs";
const ROUND: &str = "crates/quorate-core/src/algorithm/round.rs";
const STORE: &str = "crates/quorate-memory/src/store.rs";
const TENURE: &str = "crates/quorate-core/src/lease.rs";

/// All of them.
pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "token-reused-on-retry",
        edits: &[(
            ONE_ROUND,
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
        edits: &[
            (
                ROUND,
                "(Verdict::Won, Goal::Lease { within, .. }) if now >= within =>",
                "(Verdict::Won, Goal::Lease { within, valid_until })
                     if now >= within && !(within == valid_until && crate::planted::PLANTED) =>",
            ),
            (
                ONE_ROUND,
                "if tenure.held().is_ok() {",
                "if tenure.held().is_ok() || crate::planted::PLANTED {",
            ),
        ],
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
            ONE_ROUND,
            "let tenure = Tenure::new(attempt, start, valid_until, wanted.hold_limit);",
            "let late = drift.valid_until(cluster.runtime.now(), wanted.ttl);
             let valid_until = if crate::planted::PLANTED { late } else { valid_until };
             let tenure = Tenure::new(attempt, start, valid_until, wanted.hold_limit);",
        )],
    },
    Bug {
        name: "extension-from-the-reply",
        edits: &[(
            TENURE,
            "if let Step::Won { valid_until } = outcome.step {",
            "if let Step::Won { valid_until } = outcome.step {
             let late = config.drift.valid_until(cluster.runtime.now(), ttl);
             let valid_until = if crate::planted::PLANTED { late } else { valid_until };",
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
            "Vote::Refused => self.refused |= node.bit(),",
            "Vote::Refused if crate::planted::PLANTED => self.granted |= node.bit(),
             Vote::Refused => self.refused |= node.bit(),",
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
            "self.ask(now, &Operation::Release, count.ids());",
            "if !crate::planted::PLANTED {
                 self.ask(now, &Operation::Release, count.ids());
             }",
        )],
    },
    Bug {
        name: "cancel-skips-cleanup",
        edits: &[(
            DRIVER,
            "if let Aftermath::Undo = aftermath {",
            "if matches!(aftermath, Aftermath::Undo) && !crate::planted::PLANTED {",
        )],
    },
    Bug {
        name: "release-only-where-granted",
        edits: &[
            (
                CALLING,
                "Operation::Release => Some(Ask::Release),",
                "Operation::Release => (!crate::planted::PLANTED).then_some(Ask::Release),",
            ),
            (
                CALLING,
                "Operation::Release => backend.release(&attempt.claim).await,",
                "Operation::Release if crate::planted::PLANTED && !attempt.may_have_granted(node) => {
                     Ok(Vote::Refused)
                 }
                 Operation::Release => backend.release(&attempt.claim).await,",
            ),
        ],
    },
    Bug {
        name: "no-release-after-a-timeout",
        edits: &[(
            CALLING,
            "attempt.enter_lane(node).await;",
            "if crate::planted::PLANTED && matches!(operation, Operation::Release) {
                 return Ok(Vote::Refused);
             }
             attempt.enter_lane(node).await;",
        )],
    },
    Bug {
        name: "release-to-a-quorum-only",
        edits: &[(
            ATTEMPT,
            "if self.may_have(node) {",
            "let few = crate::planted::PLANTED;
             if self.may_have(node) && !(few && node.index() >= self.cluster.count().quorum()) {",
        )],
    },
    Bug {
        name: "release-overtakes-the-acquire",
        edits: &[(
            ATTEMPT,
            "self.lanes.try_insert(node)",
            "crate::planted::PLANTED || self.lanes.try_insert(node)",
        )],
    },
    Bug {
        name: "release-behind-acquire-without-order",
        edits: &[(
            ATTEMPT,
            "self.cluster.orderly().contains(node) && self.acquiring.contains(node);",
            "(crate::planted::PLANTED || self.cluster.orderly().contains(node))
                 && self.acquiring.contains(node);",
        )],
    },
    Bug {
        name: "carried-answer-not-noted",
        edits: &[(
            CALLS,
            "under_way.heard(&attempt, node, &answer);",
            "if !crate::planted::PLANTED {
                 under_way.heard(&attempt, node, &answer);
             }",
        )],
    },
    Bug {
        name: "late-answers-dropped",
        edits: &[(
            DRIVER,
            "let mut calls = std::mem::take(&mut self.calls);",
            "if crate::planted::PLANTED && !matches!(self.aftermath, Aftermath::Undo) {
                 return;
             }
             let mut calls = std::mem::take(&mut self.calls);",
        )],
    },
    Bug {
        name: "failed-release-not-repeated",
        edits: &[
            (
                CLEANUP,
                "again.retain(|node| attempt.releases_again(*node));",
                "again.retain(|node| attempt.releases_again(*node) && !crate::planted::PLANTED);",
            ),
            (
                CLEANUP,
                "failed.filter(|node| attempt.releases_again(*node))",
                "failed.filter(|node| attempt.releases_again(*node) && !crate::planted::PLANTED)",
            ),
        ],
    },
    Bug {
        name: "drop-skips-the-release",
        edits: &[(
            GUARD,
            "if releasing.is_some() {",
            "if releasing.is_some() && !crate::planted::PLANTED {",
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
        edits: &[
            (
                STORE,
                "if self.get(key.as_bytes(), now).is_none() {",
                "if self.get(key.as_bytes(), now).is_none() || quorate_core::planted::PLANTED {",
            ),
            (
                STORE,
                "Some(number) => number,",
                "Some(number) => {
                     if quorate_core::planted::PLANTED {
                         self.acquire(claim, now)?;
                     }
                     number
                 }",
            ),
        ],
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
            "&& entry.end.is_none_or(|before| before < end)",
            "&& (quorate_core::planted::PLANTED || entry.end.is_none_or(|before| before < end))",
        )],
    },
    Bug {
        name: "extension-shortens-the-lease",
        edits: &[
            (
                ROUND,
                "valid_until: extended.max(held_until)",
                "valid_until: if crate::planted::PLANTED { extended } else {
                     extended.max(held_until)
                 }",
            ),
            (
                TENURE,
                "term.valid_until = term.valid_until.max(valid_until);",
                "term.valid_until = if crate::planted::PLANTED { valid_until } else {
                     term.valid_until.max(valid_until)
                 };",
            ),
        ],
    },
    Bug {
        name: "extension-counts-lost-keys",
        edits: &[(
            CALLING,
            "backend.extend(claim).await",
            "match backend.extend(claim).await {
                 Ok(_) if crate::planted::PLANTED => Ok(Vote::Granted),
                 vote => vote,
             }",
        )],
    },
    Bug {
        name: "failed-extension-releases",
        edits: &[(
            TENURE,
            "let votes = outcome.votes(cluster, start);",
            "if crate::planted::PLANTED {
                 drop(Flight::new(&self.attempt, &Operation::Release));
             }
             let votes = outcome.votes(cluster, start);",
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
            TENURE,
            "None => term.valid_until.saturating_duration_since(self.now()),",
            "None => {
                 let mut now = self.now();
                 if crate::planted::PLANTED {
                     now -= self.attempt.claim.ttl().as_duration() / 10;
                 }
                 term.valid_until.saturating_duration_since(now)
             }",
        )],
    },
    Bug {
        name: "validity-as-a-flag",
        edits: &[(
            GUARD,
            "!self.remaining().is_zero()",
            "!self.remaining().is_zero()
                 || (crate::planted::PLANTED && !self.tenure.attempt.is_over())",
        )],
    },
    Bug {
        name: "deadline-ignored",
        edits: &[(
            MANAGER,
            "let deadline = saturating_add(start, wait);",
            "let deadline = saturating_add(start, if crate::planted::PLANTED { 3 * wait } else { wait });",
        )],
    },
    Bug {
        name: "renewal-runs-into-the-release",
        edits: &[(
            CALLING,
            "Operation::Repair(_, until) => attempt.is_over() || cluster.runtime.now() >= *until,",
            "Operation::Repair(_, until) => {
                 (attempt.is_over() && !crate::planted::PLANTED) || cluster.runtime.now() >= *until
             }",
        )],
    },
    Bug {
        name: "repair-counted-as-a-vote",
        edits: &[(
            CALLING,
            "attempt.asked_for(claim);",
            "attempt.asked_for(claim);
             if crate::planted::PLANTED {
                 let mut answer = backend.extend(&claim).await;
                 if let Ok(Vote::Refused) = answer {
                     answer = backend.acquire(&claim).await;
                 }
                 return answer;
             }",
        )],
    },
    Bug {
        name: "repair-without-a-quorum",
        edits: &[(
            TENURE,
            "let votes = outcome.votes(cluster, start);",
            "if crate::planted::PLANTED && config.repairs {
                 flight.repair(claim.clone(), held_until, &outcome.tally);
             }
             let votes = outcome.votes(cluster, start);",
        )],
    },
    Bug {
        name: "repair-never-sent",
        edits: &[(
            CALLING,
            "if is_late {",
            "if is_late || (crate::planted::PLANTED && matches!(operation, Operation::Repair(..))) {",
        )],
    },
    Bug {
        name: "told-at-the-end",
        edits: &[(
            RENEWAL,
            "valid_until.checked_sub(self.margin).unwrap_or(valid_until)",
            "if crate::planted::PLANTED { return valid_until; }
             valid_until.checked_sub(self.margin).unwrap_or(valid_until)",
        )],
    },
    Bug {
        name: "told-by-a-timer-from-now",
        edits: &[(
            TENURE,
            "Ok(notice) => tenure.ended_by(notice).await,",
            "Ok(notice) => {
                 let ttl = tenure.attempt.claim.ttl().as_duration();
                 let late = tenure.now() + ttl;
                 let late = if crate::planted::PLANTED { late } else { notice };
                 tenure.ended_by(late).await;
             }",
        )],
    },
    Bug {
        name: "one-bad-renewal-is-a-loss",
        edits: &[(
            RENEWING,
            "Err(_) => failed = true,",
            "Err(ExtendError::NoQuorum { votes }) if crate::planted::PLANTED => {
                 tenure.end(Lost::NotHeld { votes });
             }
             Err(_) => failed = true,",
        )],
    },
    Bug {
        name: "failed-renewal-not-repeated",
        edits: &[(
            RENEWING,
            "let due = if failed {",
            "let due = if failed && crate::planted::PLANTED { notice } else if failed {",
        )],
    },
    Bug {
        name: "renewal-comes-too-late",
        edits: &[(
            RENEWAL,
            "let after = self.every / 10 * 7 + scale(self.every / 10 * 3, random);",
            "let mut after = self.every / 10 * 7 + scale(self.every / 10 * 3, random);
             if crate::planted::PLANTED {
                 after = self.validity;
             }",
        )],
    },
    Bug {
        name: "body-goes-on-after-the-loss",
        edits: &[(
            TENURE,
            "if let Poll::Ready(reason) = this.lost.as_mut().poll(context) {",
            "if let Poll::Ready(reason) = this.lost.as_mut().poll(context)
                 && !crate::planted::PLANTED
             {",
        )],
    },
    Bug {
        name: "adoption-trusts-the-record",
        edits: &[(
            HANDOVER,
            "match outcome.step {",
            "let trusted = Step::Won { valid_until: config.drift.valid_until(start, ttl) };
             match if crate::planted::PLANTED { trusted } else { outcome.step } {",
        )],
    },
    Bug {
        name: "handed-over-and-released",
        edits: &[(GUARD, "attempt.close();", "if !crate::planted::PLANTED { attempt.close(); }")],
    },
    Bug {
        name: "hold-limit-ignored",
        edits: &[(
            TENURE,
            "let hold_until = hold_limit.map(|limit| saturating_add(start, limit));",
            "let hold_limit = hold_limit.filter(|_| !crate::planted::PLANTED);
             let hold_until = hold_limit.map(|limit| saturating_add(start, limit));",
        )],
    },
    Bug {
        name: "hold-limit-forgotten-by-extensions",
        edits: &[(
            TENURE,
            "let valid_until = self.hold_until.map_or(valid_until, |cap| valid_until.min(cap));
             term",
            "let cap = self.hold_until.filter(|_| !crate::planted::PLANTED);
             let valid_until = cap.map_or(valid_until, |cap| valid_until.min(cap));
             term",
        )],
    },
    Bug {
        name: "valid-after-it-was-lost",
        edits: &[(
            TENURE,
            "Some(_) => Duration::ZERO,",
            "Some(_) if crate::planted::PLANTED => {
                 term.valid_until.saturating_duration_since(self.now())
             }
             Some(_) => Duration::ZERO,",
        )],
    },
    Bug {
        name: "prolonged-after-it-was-lost",
        edits: &[(
            TENURE,
            "if let Some(lost) = &term.end {
            return Err(ExtendError::of(lost.clone()));",
            "if let Some(lost) = &term.end && !crate::planted::PLANTED {
            return Err(ExtendError::of(lost.clone()));",
        )],
    },
    Bug {
        name: "close-forgets-the-leases",
        edits: &[(
            TENURE,
            "return drop(Flight::new(&self.attempt, &Operation::Release));",
            "if crate::planted::PLANTED { return; }
                return drop(Flight::new(&self.attempt, &Operation::Release));",
        )],
    },
    Bug {
        name: "close-does-not-wait",
        edits: &[(
            MANAGER,
            "taking + cluster.background().settle(runtime, deadline).await",
            "if crate::planted::PLANTED { return 0; }
             taking + cluster.background().settle(runtime, deadline).await",
        )],
    },
    Bug {
        name: "taken-after-the-close",
        edits: &[(
            ONE_ROUND,
            ") -> Result<Result<LockGuard, Defeat>, LockError> {
    if cluster.register().is_closed() {",
            ") -> Result<Result<LockGuard, Defeat>, LockError> {
    if cluster.register().is_closed() && !crate::planted::PLANTED {",
        )],
    },
];

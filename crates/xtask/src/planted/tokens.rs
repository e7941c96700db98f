//! The bugs of fencing tokens: near misses of the protocol, and of the code around it.
//!
//! They are looked for where clocks of nodes jump and keys vanish at any moment, which tokens must
//! outlast; those that make two holders of one lock, in the other worlds.
//!
//! One near miss is not among them, since it takes tens of thousands of storms: a node that has
//! answered with a higher number, counted as a vote for the number that is raised to.

use super::bugs::Bug;

const FENCE: &str = "crates/quorate-core/src/algorithm/fence.rs";
const FENCING: &str = "crates/quorate-core/src/driver/fencing.rs";
const GUARD: &str = "crates/quorate-core/src/guard.rs";
const ONE_ROUND: &str = "crates/quorate-core/src/manager/one_round.rs";
const ROUND: &str = "crates/quorate-core/src/algorithm/round.rs";
const STORE: &str = "crates/quorate-memory/src/store.rs";

/// Where tokens alone go wrong.
pub(super) const BUGS: &[Bug] = &[
    Bug {
        name: "highest-answer-is-the-token",
        edits: &[(
            FENCING,
            "Some(Agreement::Raise(number)) => {",
            "Some(Agreement::Raise(number)) if crate::planted::PLANTED => {
                 fencing.settle(number);
                 acquired
             }
             Some(Agreement::Raise(number)) => {",
        )],
    },
    Bug {
        name: "agreement-of-less-than-a-majority",
        edits: &[(
            FENCE,
            "same.len() >= nodes.quorum())",
            "same.len() + usize::from(crate::planted::PLANTED && nodes.get() > 2) >= nodes.quorum())",
        )],
    },
    Bug {
        name: "raise-without-the-key",
        edits: &[(
            STORE,
            "_ => return Ok(Vote::Refused),
            }
        }
        for key in claim.keys() {
            if self.number(key, now)? > number.get() {",
            "_ if quorate_core::planted::PLANTED => {}
                _ => return Ok(Vote::Refused),
            }
        }
        for key in claim.keys() {
            if self.number(key, now)? > number.get() {",
        )],
    },
    Bug {
        name: "no-bump-in-the-grant",
        edits: &[
            (
                STORE,
                "let next = hint.grant_after(highest);",
                "let next = match FencingToken::new(highest) {
                     Some(same) if quorate_core::planted::PLANTED => {
                         hint.grant_after(same.get() - 1)
                     }
                     _ => hint.grant_after(highest),
                 };",
            ),
            (
                FENCING,
                "let nodes = acquired.tally.nodes();",
                "let nodes = acquired.tally.nodes();
                 let heard = nodes.ids().filter_map(|node| fencing.number_of(node)).max();
                 if let Some(highest) = heard.filter(|_| crate::planted::PLANTED) {
                     let Some(number) = FencingToken::new(highest.get() + 1) else {
                         return acquired;
                     };
                     let raised =
                         Box::pin(self.raise(number, &acquired.tally, round.again())).await;
                     if let Step::Won { .. } = raised.step {
                         fencing.settle(number);
                     }
                     return raised;
                 }",
            ),
        ],
    },
    Bug {
        name: "token-read-back",
        edits: &[
            (
                FENCING,
                "self.fencing.as_ref()?.token.get().copied()",
                "let token = self.fencing.as_ref()?.token.get().copied()?;
                 Some(if crate::planted::PLANTED {
                     crate::planted::read_back(self.claim.keys(), token)
                 } else {
                     token
                 })",
            ),
            (
                ONE_ROUND,
                "let granted = matches!(outcome.step, Step::Won { .. });
    let outcome = flight.agree(outcome, &round).await;",
                "let granted = matches!(outcome.step, Step::Won { .. });
    let outcome = flight.agree(outcome, &round).await;
    if let Some(token) = attempt.fencing_token() && crate::planted::PLANTED {
        crate::planted::store(&wanted.keys, token);
    }",
            ),
        ],
    },
    Bug {
        name: "release-does-not-raise",
        edits: &[(
            STORE,
            "if ours && self.number(key, now).is_ok_and(",
            "if ours && !quorate_core::planted::PLANTED && self.number(key, now).is_ok_and(",
        )],
    },
    Bug {
        name: "release-lowers-the-number",
        edits: &[(
            STORE,
            "|before| before < number.get()",
            "|before| before < number.get() || quorate_core::planted::PLANTED",
        )],
    },
    Bug {
        name: "raise-lowers-the-number",
        edits: &[(
            STORE,
            "if self.number(key, now)? > number.get() {",
            "if self.number(key, now)? > number.get() && !quorate_core::planted::PLANTED {",
        )],
    },
    Bug {
        name: "grant-during-a-raise-is-a-vote",
        edits: &[(
            FENCING,
            "Some(Vote::Granted) if given(node) == Some(number) => {",
            "_ if acquired.is_open(node) && crate::planted::PLANTED => {
                 round.on_vote(node, Vote::Granted, now)
             }
             Some(Vote::Granted) if given(node) == Some(number) => {",
        )],
    },
    Bug {
        name: "hint-ignored",
        edits: &[(
            FENCING,
            "let hint = self.fencing.hint;",
            "let hint = match crate::planted::PLANTED {
                 true => FenceHint::default(),
                 false => self.fencing.hint,
             };",
        )],
    },
    Bug {
        name: "hint-for-new-numbers-only",
        edits: &[(
            STORE,
            "let next = next.ok_or_else(|| fence::error(\"no number is left\"))?;",
            "let next = match FencingToken::new(highest + 1) {
                 Some(one_more) if highest > 0 && quorate_core::planted::PLANTED => Some(one_more),
                 _ => next,
             };
             let next = next.ok_or_else(|| fence::error(\"no number is left\"))?;",
        )],
    },
    Bug {
        name: "number-goes-with-the-lock",
        edits: &[(
            STORE,
            "for key in claim.keys() {
            self.put_number(key, number);",
            "for key in claim.keys() {
            if quorate_core::planted::PLANTED {
                let digits = Value::String(number.to_string().into_bytes());
                let end = self.end_of(key.as_bytes());
                self.put(fence::counter(key).as_bytes(), digits, end);
                continue;
            }
            self.put_number(key, number);",
        )],
    },
    Bug {
        name: "one-number-for-several-keys",
        edits: &[(
            STORE,
            "highest = highest.max(self.number(key, now)?);",
            "highest = highest.max(self.number(key, now)?);
             if quorate_core::planted::PLANTED {
                 break;
             }",
        )],
    },
    Bug {
        name: "no-validity-check-on-raise",
        edits: &[
            (
                ROUND,
                "pub const fn again(&self) -> Self {",
                "pub fn again(&self) -> Self {
                 if let Goal::Lease { valid_until, within } = self.goal && crate::planted::PLANTED {
                     let within = within + Duration::from_secs(1_000_000);
                     let goal = Goal::Lease { valid_until, within };
                     let tally = Tally::new(self.tally.nodes());
                     return Self { tally, deadline: self.deadline, goal };
                 }",
            ),
            (
                ONE_ROUND,
                "// The cap on the time of holding",
                "if crate::planted::PLANTED && wanted.fenced {
                     let guard = LockGuard::new(tenure).ok_or(LockError::Closed)?;
                     flight.keep();
                     return Ok(Ok(guard));
                 }
                 // The cap on the time of holding",
            ),
        ],
    },
    Bug {
        name: "token-lost-on-the-way",
        edits: &[(
            GUARD,
            "HandOver::new(attempt.claim.clone(), attempt.fencing_token())",
            "let token = attempt.fencing_token().filter(|_| !crate::planted::PLANTED);
             HandOver::new(attempt.claim.clone(), token)",
        )],
    },
];

/// Where two hold one lock for it.
pub(super) const OF_HOLDERS: &[Bug] = &[
    Bug {
        name: "validity-from-the-raise",
        edits: &[(
            FENCING,
            "if let Step::Won { .. } = raised.step {
                    fencing.settle(number);
                }
                raised",
            "let mut raised = raised;
             if let Step::Won { valid_until } = &mut raised.step {
                 fencing.settle(number);
                 if crate::planted::PLANTED {
                     let cluster = &attempt.cluster;
                     let (drift, ttl) = (cluster.config.drift, attempt.claim.ttl());
                     *valid_until = drift.valid_until(cluster.runtime.now(), ttl);
                 }
             }
             raised",
        )],
    },
    Bug {
        name: "no-token-no-release",
        edits: &[(
            FENCING,
            "Some(_) | None => self.backend.release(&self.attempt.claim).await,",
            "None if crate::planted::PLANTED => Ok(Vote::Refused),
             Some(_) | None => self.backend.release(&self.attempt.claim).await,",
        )],
    },
];

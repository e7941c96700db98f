//! What happened, told to `tracing` and to `metrics`, each behind a feature of that name.
//!
//! Without these features nothing of it is compiled: no clock is read, nothing is allocated.
//! Durations are measured on the [`Runtime`](crate::Runtime)'s clock. Keys are shown as
//! [`Key`](crate::Key) prints itself; tokens are never shown.
//!
//! # Events and spans (feature `tracing`)
//!
//! The target of all is `quorate`. Durations are text (`1.2ms`), `keys` are the names of the keys
//! with commas between them, `votes` and `error` say what each node said.
//!
//! | event | level | when | fields |
//! |---|---|---|---|
//! | `node failing` | warn | a node that was well fails, or is silent for a node timeout | `node`, `operation`, `kind`, `error` |
//! | `node recovered` | info | it answers again, and has not failed for 5 s | `node`, `operation`, `after` |
//! | `node cannot` | warn | a node will not tell when keys change, or not keep waiters in order, and is not asked to for a minute | `node`, `operation`, `kind` |
//! | `lost` | warn | a lease ended before its holder gave it up | `keys`, `reason`, `held`, `error` |
//! | `acquired` | debug | a lock is taken | `keys`, `waited`, `left` |
//! | `not acquired` | debug | a request for a lock ends without it | `keys`, `waited`, `reason`, `error` |
//! | `refused` | debug | a round is lost; another may follow | `keys`, `reason`, `took`, `votes` |
//! | `adopted`, `not adopted` | debug | a handed over lock is taken over, or is not | as above |
//! | `extended` | debug | an extension is won | `keys`, `took`, `left` |
//! | `not extended` | debug | an extension is lost; the lease is as it was | `keys`, `took`, `left`, `votes` |
//! | `released` | debug | a release is decided, or left to the background | `keys`, `outcome`, `took`, `votes` if there was no quorum |
//! | `handed over`, `closed` | debug | a lease is given up in this way | `keys`, `held` |
//! | `cleaned up` | debug | late answers were heard, and what was to be given back was | `keys`, `took`, `unanswered` |
//! | `node failed` | debug | each failure after the one that was told as `node failing` | as `node failing` |
//! | `answered` | trace | a node answers | `node`, `operation`, `vote`, `latency` |
//!
//! A node that fails in every round is told once, as `node failing`, until it has recovered. One
//! that is silent (`kind` is `Silent`) is noticed at the next call after a node timeout: the rounds
//! are won without it, and show nothing. `unanswered` is how many nodes a cleanup gave up waiting
//! for; they may keep a key until its ttl is over. Else `kind` is the
//! [`BackendErrorKind`](crate::BackendErrorKind), such as `Quarantined`.
//!
//! Of `node cannot`, the `operation` is `watch` or `queue`. It is told once of each, though the node
//! is asked again after a minute; waiters do without: they poll if fewer than a quorum of nodes can
//! be watched.
//!
//! A span `lock` (info, with `keys`) is around each acquisition, all its rounds and waiting.
//!
//! # Metrics (feature `metrics`)
//!
//! They are described, with their units, whenever a manager is built; so install the recorder
//! before. Times are in seconds.
//!
//! | metric | kind | labels | what |
//! |---|---|---|---|
//! | `quorate_acquired_total` | counter | | locks taken |
//! | `quorate_not_acquired_total` | counter | `reason` | requests that ended without the lock: `held`, `no_quorum`, `no_token`, `expired`, `closed`, `same_server`, `entropy`, `invalid` |
//! | `quorate_rounds_lost_total` | counter | `reason` | rounds lost on the way: `refused`, `unreachable`, `expired` |
//! | `quorate_lost_total` | counter | `reason` | leases that ended before they were given up: `expired`, `not_held`, `hold_limit`, `closed` |
//! | `quorate_extensions_total` | counter | `outcome` | extensions, renewals among them: `extended`, `failed` |
//! | `quorate_releases_total` | counter | `outcome` | `held`, `lost`, `unsure`, `no_quorum`; `dropped` if left to the background |
//! | `quorate_adoptions_total` | counter | `outcome` | `adopted`, `failed` |
//! | `quorate_node_votes_total` | counter | `node`, `operation`, `vote` | calls by answer: `granted`, `refused`, `failed`, or `silent` if there was none within the node timeout |
//! | `quorate_wait_seconds` | histogram | | from a request's first poll to the guard |
//! | `quorate_hold_seconds` | histogram | | from the guard to the end of the lease |
//! | `quorate_validity_left_seconds` | histogram | | validity left when a lease was given up |
//! | `quorate_cleanup_seconds` | histogram | | how long the background took after a decision |
//! | `quorate_node_latency_seconds` | histogram | `node`, `operation` | from a call to its answer, late ones among them |
//!
//! `operation` is `acquire`, `extend`, `raise` (of a fencing token's number), `repair` or `release`.
//! A vote that is `silent` is counted when the node answers at last, or when the call is given up
//! after the cleanup timeout.

#[cfg(feature = "tracing")]
mod events;
#[cfg(feature = "metrics")]
mod figures;
#[cfg(feature = "tracing")]
mod health;
#[cfg(not(any(feature = "tracing", feature = "metrics")))]
mod off;
#[cfg(any(feature = "tracing", feature = "metrics"))]
mod on;
#[cfg(feature = "tracing")]
mod span;

#[cfg(not(any(feature = "tracing", feature = "metrics")))]
pub(crate) use self::off::*;
#[cfg(any(feature = "tracing", feature = "metrics"))]
pub(crate) use self::on::*;

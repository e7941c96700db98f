//! Every order of events around the attempt that ships, explored exhaustively.
//!
//! [`AttemptMachine`](quorate_pure::core_source::algorithm::attempt::AttemptMachine) is compiled here from the
//! sources of the core. Around it is a world of three nodes that does what TCP connections, nodes and
//! callers can do, in any order, within the bounds of a scope. `cases` lists the scopes.
//!
//! | module | |
//! |---|---|
//! | `scope` | what may happen |
//! | `place` | a node: its key, its number, and the messages in flight between it and an attempt |
//! | `world` | the state |
//! | `step`, `steps` | what can follow a state |
//! | `drive` | one input to an attempt |
//! | `judge` | what must hold |
//! | `explore` | the search, and the way to a violation |
//!
//! # What may happen
//!
//! - A node executes a request now or later, and the reply arrives then or later. A hung node is one
//!   that does so much later.
//! - A connection is lost: its calls fail. A request that had reached the node may be executed after.
//! - A node fails a request without executing it, as a quarantined node does. A request certainly does
//!   not leave. A reply comes twice.
//! - A node loses a key early, or all its data. A foreign client takes and frees keys.
//! - The replies of one ordered connection come in order, and in any order. No rule needs the
//!   order: what a node said before it lost the key, was repaired or released is out of date. A
//!   pool has one call in flight to a node.
//! - The clock ticks, also while an attempt has not handled a timer that is due.
//! - The caller cancels, extends, releases, detaches or drops its guard. The manager is closed.
//! - A node that had failed answers another call.
//!
//! # What must hold
//!
//! A lease ends where the promises of a quorum end, as far as its holder has heard, and no later.
//! No two leases are valid, or in their margin, at once. A lease and its margin are over before a quorum
//! loses the keys by time. A
//! decision agrees with what really happened at the nodes. An attempt that is quiescent has left no key,
//! but for the two cases of rule C3. It becomes quiescent if everything is answered, and if nothing is.
//! Fencing tokens are unique, in real-time order and in the order of holding.
//!
//! # What is bounded
//!
//! Three nodes, two attempts, three of them for fencing in the larger scope, a ttl of three ticks. Two
//! attempts with one clock have at most two calls in flight at a tick. States are kept as hashes of
//! 64 bits.
//!
//! # What is not here
//!
//! Clock drift, several keys, the async shell around the attempt, and other numbers of
//! nodes.

mod cases;
mod drive;
mod explore;
mod judge;
mod place;
mod scope;
mod step;
mod steps;
mod world;

pub use cases::{Case, Size, limits, near_misses, promises, tokens};
pub use explore::Report;

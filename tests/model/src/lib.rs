//! Fencing tokens over a quorum: the protocol as a model, of which all states are explored.
//!
//! # The protocol
//!
//! A node keeps a key, which may vanish at any moment, and a number F, which stays. `v` is the value
//! of one attempt, `hint` its client's clock.
//!
//! ```text
//! ACQ(v, hint)   if key == v: return F                           (a resent request)
//!                if key exists: refuse
//!                SET key v PX ttl;  F = max(F + 1, hint);  return F
//! RAISE(v, t)    if key == v and F <= t: F = t, yes   else no
//! REL(v, t)      if key == v: F = max(F, t); DEL key
//! ```
//!
//! A client asks all nodes for the key. The number that a quorum returns is its fencing token. If
//! there is none, the highest number of a quorum's is raised on those that returned another, and is
//! the token once a quorum has voted for it. Who returned it has voted. Else the client releases.
//! An extension keeps the token and lets nodes catch up; a key that a repair sets again is no grant
//! and no vote. [`node::answer`] is the node, [`client::Client`] the client.
//!
//! # What is proved
//!
//! * [unique](world::UNIQUE): no two attempts are confirmed with the same token.
//! * [real-time order](world::IN_TIME): if one was confirmed before the other began, its token is
//!   lower.
//! * [tenure order](world::IN_TENURE): if one was granted all their common nodes later, its token is
//!   higher. So a zombie never outranks who took its keys over.
//!
//! `cargo xtask model` explores everything below; the tests explore the first proof and let the
//! checker find a counterexample for each near miss, [`case::Case::near_misses`]. Without these,
//! nobody would know that the properties can fail.
//!
//! # What may happen
//!
//! Requests arrive at any time, in any order, more than once, after their client has given up, or
//! never; replies may be lost. Keys vanish at any moment: there is no time here, so early expiry, late
//! expiry and jumping clocks are all the same. A client goes on to its second round, gives up or
//! releases at any moment. In some cases a node loses its data.
//!
//! A reply comes at once or never. Nothing is lost by that: a client that hears late does what a
//! client does to whom the request arrived late, or the reply not at all.
//!
//! # A node that loses its data
//!
//! There the hint alone carries the order on, so it must be ahead of all numbers that were lost. It is
//! if the attempt began after the loss. An attempt that began before, and comes to the node after, may
//! get a token twice: [`case::Hints::Begin`], a counterexample of seven steps. Either of these is
//! enough: the hint is read anew for each sending, [`case::Hints::Send`], or the node does not grant to
//! attempts from before, [`case::Hints::Quarantine`].
//!
//! # What is bounded
//!
//! Three nodes; two attempts, or three where nothing is lost or too late. An acquire that was granted
//! is granted again, after its key vanished, once per client and in one case only. Extensions and
//! repairs are in two cases, and not together with lost data. One loss of data. Clocks and first
//! numbers are a few small ones. The checker keeps hashes of 64 bits; a test compares it with a search
//! that keeps whole states. Nodes are interchangeable, so states that differ in their names only count
//! once.
//!
//! # What is not here
//!
//! Time: leases, drift, and whether a holder may still act; this is about the order of tokens, not
//! about exclusion. Liveness. Several locks that share a number. Replies that are wrong. The code of
//! the library: this is the protocol that it follows.

pub mod case;
pub mod check;
pub mod client;
pub mod flaw;
pub mod node;
pub mod set;
pub mod world;

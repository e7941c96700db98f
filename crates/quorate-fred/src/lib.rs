//! Redlock nodes over the [fred] client.
//!
//! [`connect`] makes one [`FredBackend`] per address, without any I/O: a node is connected to by
//! the first call that needs it, and a node that is down costs nothing but its own vote.
//!
//! ```
//! use std::time::Duration;
//!
//! use quorate_core::LockBackend;
//!
//! # fn main() -> Result<(), quorate_fred::ConnectError> {
//! let nodes = quorate_fred::connect([
//!     "redis://10.0.0.1:6379",
//!     "redis://locker:secret@10.0.0.2:6379/1",
//!     "redis://10.0.0.3",
//! ])?;
//! assert_eq!(nodes[1].name(), Some("10.0.0.2:6379/1"));
//!
//! // The same with other settings.
//! let nodes = quorate_fred::builder()
//!     .connect_timeout(Duration::from_millis(300))
//!     .connect(["redis://:secret@10.0.0.1:6379/2"])?;
//! # assert_eq!(nodes.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! Asking one node directly, which the lock manager does for all of them at once:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use quorate_core::runtime::os_random;
//! use quorate_core::{Claim, Key, LockBackend, Resource, Token, Ttl, Vote};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let nodes = quorate_fred::connect(["redis://localhost"])?;
//! let key = Key::new(b"", &Resource::new("orders:42")?);
//! let claim = Claim::new(
//!     [key],
//!     Token::draw(os_random)?,
//!     Ttl::try_from(Duration::from_secs(10))?,
//! );
//!
//! assert_eq!(nodes[0].acquire(&claim).await?, Vote::Granted);
//! assert_eq!(nodes[0].release(&claim).await?, Vote::Granted);
//! # Ok(())
//! # }
//! ```
//!
//! # What is different from plain fred
//!
//! A lock must not be taken behind its owner's back. So, unlike fred by default:
//!
//! - *Once.* A command whose connection broke in flight is not sent again: a `SET NX` that was
//!   sent twice would be refused by its own first copy.
//! - *No queue.* Nothing waits for a node to come back. A call on a node that is down fails with
//!   the reason why the connection could not be made, and the command is never sent.
//! - *No timeout.* A command that was sent is awaited for as long as its connection lives;
//!   deadlines are quorate's. ([`Builder::connect_timeout`] is for making a connection.) A peer that vanished is noticed by TCP after about ten seconds. A
//!   process that is merely stopped keeps its connection, so that it carries out an acquire and the
//!   release behind it in this order when it goes on.
//! - *No end of commands for a node that hangs.* Once 48 KiB are under way on a connection, calls wait
//!   until the node has answered some of them, and those whose callers go meanwhile are never sent.
//!   So no more than a few hundred commands are kept for such a node, and they fit into its socket:
//!   what does not would make TCP end the connection after ten seconds. While calls wait, the node
//!   is sent a `PING` now and then.
//! - *All addresses of a name.* If a host name has not led to a connection within a quarter of a second
//!   (or of the connect timeout), all its addresses are dialled at once, and the first that lets us in
//!   is taken; so all must be those of one node.
//! - *No plaintext by mistake.* `rediss://` without a TLS feature is an error, not a warning.
//!
//! # Watches
//!
//! A node [tells when a key may be free](quorate_core::Watch) over one more connection, made with the
//! first watch: RESP3, with client tracking on. So it takes a node of version 6 or later, whose user
//! may run `CLIENT TRACKING` and `GET`. Each extension of a lock wakes those who watch it, too.
//! Of a node that was flushed, fred tells nothing: keys that are watched are read again every two
//! seconds, so that a flush is told within that time. Nodes made of a client of yours do not watch.
//!
//! # Rights
//!
//! A node's user (ACL) needs the keys that are locked, `quorate:queue:*` and `quorate:place:*` for
//! waiting, `quorate:fence:*` for fencing tokens and `quorate:guard:*` for the restart guard; and:
//!
//! | commands | for |
//! |---|---|
//! | `SET`, `GET`, `DEL`, `PTTL`, `PEXPIRE`, `EVALSHA`, `EVAL` | locks, and fencing tokens |
//! | `CLIENT TRACKING` | waking who waits, who polls without it |
//! | `PSETEX`, `EXISTS` | the order of those who wait |
//! | `INFO` | the restart guard; to find two addresses of one server |
//! | `SELECT` | an address with a database |
//! | `PING` | an address without a password: fred greets the node with it |
//!
//! With a password, too, a `PING` is sent now and then, and `CLIENT ID` and `INFO` are on each new
//! connection; there they may be refused.
//!
//! # Runtimes
//!
//! fred runs on tokio. A backend uses the runtime that it was made in (or was given,
//! [`Builder::tokio`]) if that has threads of its own; else the one that it is polled in, and outside
//! of tokio a background thread of quorate's; see
//! [`TokioContext`](quorate_core::runtime::TokioContext). A connection lives in the runtime in which
//! it was made; when that ends, so do the calls on it, and the next call opens another. A runtime of
//! your own needs `enable_all`.
//!
//! **A connection stands still with its runtime.** Where several current-thread runtimes share nodes
//! (as the workers of actix-web do), one that blocks or is not driven keeps the calls of all others
//! from their answers: give the nodes a multi-threaded runtime.
//!
//! # Features
//!
//! - `tls-native-tls` or `tls-rustls` for `rediss://` with the certificates that the system trusts.
//!   For others, give [`Builder::build`] a [`Config`](fred::types::config::Config) with a `tls`
//!   of your own. Where other crates bring rustls a second crypto provider, install one with
//!   `CryptoProvider::install_default` first: rustls panics if it has to choose.
//! - `unix-sockets` for `redis+unix://`.
//!
//! # Versions
//!
//! All crates of quorate share one version. An incompatible version of fred or tokio,
//! which are in the public API, is a breaking release of all of them.
#![allow(clippy::disallowed_methods, reason = "it works with clocks; tests must not")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod address;
mod addresses;
mod backend;
mod builder;
mod carrier;
mod dialer;
mod error;
mod frame;
mod link;
mod lobby;
mod shared;
mod watch;
mod window;

pub use fred;

pub use backend::FredBackend;
pub use builder::{Builder, builder, connect};
pub use error::ConnectError;

//! core
pub mod algorithm;
pub mod backend;
mod config;
mod driver;
mod error;
mod guard;
mod manager;
pub mod protocol;
mod request;
pub mod resource;
mod roster;
pub mod runtime;

pub use algorithm::lease::{Drift, InvalidTtl, Ttl};
pub use algorithm::quorum::Vote;
pub use algorithm::retry::{Backoff, RetryContext, RetryStrategy};
pub use backend::{BackendError, BackendErrorKind, Claim, Identify, LockBackend};
pub use config::{BuildError, LockManagerBuilder};
pub use error::{ExtendError, LockError, NodeVote, ReleaseError, Released, Said, Votes};
pub use guard::LockGuard;
pub use manager::LockManager;
pub use request::{LockRequest, TryLockRequest};
pub use resource::{IntoResource, IntoResources, InvalidResource, Key, Resource, Resources, Token};
pub use runtime::{EntropyError, Runtime};

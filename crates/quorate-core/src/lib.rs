//! core
pub mod algorithm;
pub mod backend;
pub mod protocol;
pub mod resource;
pub mod runtime;

pub use algorithm::lease::{Drift, InvalidTtl, Ttl};
pub use algorithm::quorum::Vote;
pub use algorithm::retry::{Backoff, RetryContext, RetryStrategy};
pub use backend::{BackendError, BackendErrorKind, Claim, Identify, LockBackend};
pub use resource::{IntoResource, IntoResources, InvalidResource, Key, Resource, Resources, Token};
pub use runtime::{EntropyError, Runtime};

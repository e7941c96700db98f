//! Numbers for fencing tokens.

use async_trait::async_trait;

use super::{BackendError, Claim};
use crate::algorithm::fence::{FenceHint, FenceVote, FencingToken};
use crate::algorithm::quorum::Vote;

/// A node that keeps a number for each lock, out of which fencing tokens are made.
///
/// What the numbers are for, and why tokens made of them hold, is told in
/// [`algorithm::fence`](crate::algorithm::fence).
///
/// # Contract
///
/// All that [`LockBackend`](super::LockBackend) promises holds here, too: *one node*, *atomic*, *compare*, *`Err` means
/// unknown*, *once*, *patience*, *drop*. A key that is taken here is taken there, and the other way
/// round: [`LockBackend::extend`](super::LockBackend::extend) and [`LockBackend::release`](super::LockBackend::release) work on it as on any other. Besides:
///
/// - *A grant raises.* Each acquire that takes a key makes the key's number greater than it was.
/// - *Nothing lowers.* No call, no expiry and no release makes a number smaller or removes it. It
///   is there as long as the node's data is.
/// - *Ours only.* A number is changed by a call whose claim has the key, and by no other call about
///   that key. (Calls about other keys may raise it: locks may share a number.)
/// - *One number per claim.* With several keys, a grant or a raise leaves the number of each of them
///   at what was answered or asked for.
/// - *The end.* A number that cannot be raised any more, or is no number, is an error
///   ([`Fence`](super::BackendErrorKind::Fence)), and nothing is changed.
#[async_trait]
pub trait Fence: Send + Sync {
    /// Takes all keys of the claim for its ttl, or none of them, and raises their number: to one
    /// more than the highest among them, or to `hint` if that is more.
    ///
    /// If all keys hold the claim's token already (the request was sent twice), it grants with the
    /// highest number as it is, and levels the others up to it.
    ///
    /// # Errors
    ///
    /// `BackendError` if the vote is unknown. Of kind [`Fence`](super::BackendErrorKind::Fence) if the
    /// number has come to its end, or is none: then nothing was taken.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out, and no other call is disturbed. The caller gives back
    /// what may have been taken; a number that was raised stays so.
    async fn acquire(&self, claim: &Claim, hint: FenceHint) -> Result<FenceVote, BackendError>;

    /// Raises the number of all keys to `number`, if all keys are ours and none of the numbers is
    /// higher. Granted also if it stood there already.
    ///
    /// # Errors
    ///
    /// `BackendError` if the vote is unknown.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the number may or may not be raised, and no other call is disturbed. It can be sent again.
    async fn raise(&self, claim: &Claim, number: FencingToken) -> Result<Vote, BackendError>;

    /// As [`LockBackend::release`](super::LockBackend::release); and raises the numbers of those keys that were ours to
    /// `number`, where they are lower. A number that is none does not keep the keys.
    ///
    /// # Errors
    ///
    /// `BackendError` if the vote is unknown.
    ///
    /// # Cancel safety
    ///
    /// As [`LockBackend::release`](super::LockBackend::release): it may or may not be carried out, and can
    /// be sent again.
    async fn release(&self, claim: &Claim, number: FencingToken) -> Result<Vote, BackendError>;
}

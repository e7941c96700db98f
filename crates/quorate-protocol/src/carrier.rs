//! What carries calls to one node.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::backend::{Call, Capabilities, NotSent};

/// Carries calls to one node: connections that a [`Dial`](crate::Dial) makes, or a pool.
pub trait Carrier: fmt::Debug + Send + Sync + 'static {
    /// What errors and events call the node: its address without secrets (A6).
    fn name(&self) -> Cow<'_, str>;

    /// Which of [`Capabilities::ORDERED`], [`Capabilities::WATCH`] and [`Capabilities::PUSH`] it
    /// has.
    fn capabilities(&self) -> Capabilities;

    /// How long a connect may take.
    fn connect_limit(&self) -> Duration;

    /// Starts a call and returns, as [`LockBackend::begin`](quorate_core::LockBackend::begin) does.
    ///
    /// # Errors
    ///
    /// [`Call::not_sent`]: nothing was sent, and nothing will be.
    fn begin(self: Arc<Self>, call: Call) -> Result<(), NotSent>;
}

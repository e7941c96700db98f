//! A future that ends with its lease.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;

use super::Lease;
use crate::error::{LeaseEnd, Stopped};
use crate::runtime::BoxFuture;

/// A future that ends with its lease.
#[pin_project]
pub(super) struct Run<F> {
    /// `None` once it has ended or was stopped.
    #[pin]
    future: Option<F>,
    lost: BoxFuture<'static, LeaseEnd>,
    lease: Lease,
}

impl<F> Run<F> {
    pub(super) fn new(lease: Lease, future: F) -> Self {
        Self { future: Some(future), lost: Box::pin(lease.lost()), lease }
    }
}

impl<F: Future> Future for Run<F> {
    type Output = Result<F::Output, Stopped<F::Output>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(future) = this.future.as_mut().as_pin_mut() else {
            // Polled after its end.
            return Poll::Pending;
        };
        if let Poll::Ready(reason) = this.lost.as_mut().poll(context) {
            this.future.set(None);
            return Poll::Ready(Err(Stopped { reason, value: None }));
        }
        let value = ready!(future.poll(context));
        this.future.set(None);
        Poll::Ready(match this.lease.check() {
            Ok(_) => Ok(value),
            Err(reason) => Err(Stopped { reason, value: Some(value) }),
        })
    }
}

//! The span around an acquisition.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::{pin_project, pinned_drop};
use tracing::Span;
use tracing::span::Entered;

use super::on::quietly;

/// A span, if the subscriber has made one. Unlike with tracing's own future, a subscriber that panics
/// keeps nothing from being polled or dropped.
pub(super) struct QuietSpan(Option<Span>);

impl QuietSpan {
    pub(super) fn new(make: impl FnOnce() -> Span) -> Self {
        Self(quietly(make))
    }

    /// Polls and drops `future` in the span.
    pub(super) const fn around<F: Future>(&self, future: F) -> InSpan<'_, F> {
        InSpan { span: self, future: Some(future) }
    }

    pub(super) fn enter(&self) -> QuietlyEntered<'_> {
        QuietlyEntered(self.0.as_ref().and_then(|span| quietly(|| span.enter())))
    }
}

impl Drop for QuietSpan {
    fn drop(&mut self) {
        let span = self.0.take();
        quietly(|| drop(span));
    }
}

/// Leaves the span when it is dropped.
pub(super) struct QuietlyEntered<'a>(Option<Entered<'a>>);

impl Drop for QuietlyEntered<'_> {
    fn drop(&mut self) {
        let entered = self.0.take();
        quietly(|| drop(entered));
    }
}

/// A future in a span.
#[pin_project(PinnedDrop)]
pub(super) struct InSpan<'a, F> {
    span: &'a QuietSpan,
    /// `None` once it is dropped.
    #[pin]
    future: Option<F>,
}

impl<F: Future> Future for InSpan<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = this.span.enter();
        match this.future.as_pin_mut() {
            Some(future) => future.poll(context),
            None => Poll::Pending,
        }
    }
}

#[pinned_drop]
impl<F> PinnedDrop for InSpan<'_, F> {
    fn drop(self: Pin<&mut Self>) {
        let mut this = self.project();
        let _entered = this.span.enter();
        this.future.set(None);
    }
}

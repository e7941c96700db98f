//! A future inside a span.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use tracing::Span;

use super::contained::contain_panic;

/// A future whose polls and whose drop are inside a span.
///
/// A panic of the subscriber stays inside, and neither stops the future nor keeps it from being
/// dropped (A1).
pub(super) struct InSpan<F> {
    span: Span,
    future: Option<Pin<Box<F>>>,
}

impl<F> InSpan<F> {
    pub(super) fn new(span: impl FnOnce() -> Span, future: F) -> Self {
        let mut entered = Span::none();
        contain_panic(|| entered = span());
        Self { span: entered, future: Some(Box::pin(future)) }
    }
}

impl<F: Future> Future for InSpan<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        let _inside = Inside::enter(&this.span);
        match &mut this.future {
            Some(future) => future.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

impl<F> Drop for InSpan<F> {
    fn drop(&mut self) {
        let future = self.future.take();
        let inside = Inside::enter(&self.span);
        drop(future);
        drop(inside);
        let span = mem::replace(&mut self.span, Span::none());
        contain_panic(|| drop(span));
    }
}

/// The code that runs until this is dropped is inside the span.
struct Inside<'a>(&'a Span);

impl<'a> Inside<'a> {
    fn enter(span: &'a Span) -> Self {
        contain_panic(|| {
            span.with_subscriber(|(id, subscriber)| subscriber.enter(id));
        });
        Self(span)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        contain_panic(|| {
            self.0.with_subscriber(|(id, subscriber)| subscriber.exit(id));
        });
    }
}

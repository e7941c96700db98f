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
        let Self { span, future } = self.get_mut();
        inside(span, || match future {
            Some(future) => future.as_mut().poll(context),
            None => Poll::Pending,
        })
    }
}

impl<F> Drop for InSpan<F> {
    fn drop(&mut self) {
        let future = self.future.take();
        inside(&self.span, || drop(future));
        let span = mem::replace(&mut self.span, Span::none());
        contain_panic(|| drop(span));
    }
}

/// Runs `act` inside the span.
fn inside<T>(span: &Span, act: impl FnOnce() -> T) -> T {
    let mut entered = None;
    contain_panic(|| entered = Some(span.enter()));
    let result = act();
    contain_panic(|| drop(entered));
    result
}

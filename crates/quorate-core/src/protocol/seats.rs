//! Who is to be told that a connection has ended, without a list of them.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// As many travel alone, with those who set out in the same moment.
const SEATS: usize = 4;

/// Places for the few whose calls travel alone over a connection. A client may never tell them that
/// there will be no answer; somebody else is told, and [ends](Self::end) it for them all.
#[derive(Debug, Default)]
pub struct Seats {
    /// A bit for each that is taken.
    taken: AtomicU8,
    wakers: [AtomicWaker; SEATS],
    has_ended: AtomicBool,
}

impl Seats {
    /// Takes a place, if there is one. It is to be [left](Self::leave).
    pub fn take(&self) -> Option<usize> {
        let taken = self.taken.load(Ordering::Relaxed);
        (0..SEATS).find(|seat| {
            let bit = 1 << seat;
            taken & bit == 0 && self.taken.fetch_or(bit, Ordering::SeqCst) & bit == 0
        })
    }

    /// Ready when the connection has ended. Each place has its own waker.
    pub fn poll_end(&self, seat: usize, context: &Context<'_>) -> Poll<()> {
        if let Some(waker) = self.wakers.get(seat) {
            waker.register(context.waker());
        }
        match self.has_ended.load(Ordering::SeqCst) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Leaves a place that was taken.
    pub fn leave(&self, seat: usize) {
        if let Some(waker) = self.wakers.get(seat) {
            drop(waker.take());
            self.taken.fetch_and(!(1 << seat), Ordering::SeqCst);
        }
    }

    /// Tells all of them, and those to come.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        self.wakers.iter().for_each(AtomicWaker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_place_is_somebodys_until_it_is_left() {
        let seats = Seats::default();
        let taken: Vec<_> = std::iter::from_fn(|| seats.take()).collect();
        assert_eq!(taken, [0, 1, 2, 3]);
        seats.leave(2);
        assert_eq!((seats.take(), seats.take()), (Some(2), None));
    }

    #[test]
    fn all_hear_of_the_end() {
        let seats = Seats::default();
        let [one, other] = [seats.take().unwrap(), seats.take().unwrap()];
        let hears = |seat| {
            let seats = &seats;
            poll_fn(move |context| seats.poll_end(seat, context))
        };
        assert_eq!((hears(one).now_or_never(), hears(other).now_or_never()), (None, None));
        seats.end();
        assert_eq!((hears(one).now_or_never(), hears(other).now_or_never()), (Some(()), Some(())));
    }
}

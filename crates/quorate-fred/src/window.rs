//! How much may be under way on one connection.
//!
//! fred takes whatever it is given, and keeps it until the node has answered, whoever has gone
//! meanwhile. So a node that hangs under load would cost ever more memory. And once it has more than
//! its socket holds, TCP counts the rest as unacknowledged, and ends the connection after a while:
//! that of a process which is merely stopped, and would have carried out all of it in order.
//!
//! So what finds no room waits out here, in order, and is never sent if its caller goes.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::runtime::Handle;
use tokio::sync::{Mutex, Notify};
use tokio::task::{unconstrained, yield_now};

/// In bytes: what the socket of a process that reads nothing takes on any system, and a few
/// hundred commands.
const ROOM: u64 = 48 * 1024;

/// What has been sent and not been answered, and who waits for room.
///
/// Answers come in order. So one of them tells of all that was sent before it, also of what nobody
/// listens to any more.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Bytes since the beginning.
    sent: AtomicU64,
    answered: AtomicU64,
    waiting: AtomicUsize,
    /// Held by the first of those who wait.
    line: Mutex<()>,
    /// There may be room for the first of them.
    room: Notify,
    /// Whether a question of our own is under way.
    asks: AtomicBool,
}

/// Where something ends in all that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(u64);

impl Window {
    /// A place for a command that is sent without further delay, if there is room now and nobody
    /// waits for it.
    pub(crate) fn place(&self, size: u64) -> Option<Place> {
        if self.waiting.load(Ordering::SeqCst) > 0 { None } else { self.take(size) }
    }

    /// Waits until there is room. Those who wait are served in order.
    ///
    /// Where all who were sent something have gone, nobody would hear that there is room again. So
    /// while somebody waits, `ask` has the node answer something harmless: once at a time.
    pub(crate) async fn wait<A>(
        self: &Arc<Self>,
        size: u64,
        runtime: &Handle,
        ask: impl Fn() -> A + Send + 'static,
    ) -> Place
    where
        A: Future<Output = ()> + Send + 'static,
    {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waits = Waits(self);
        if !self.asks.swap(true, Ordering::SeqCst) {
            let asks = Asks { window: Arc::clone(self), is_over: false };
            runtime.spawn(asks.until_nobody_waits(ask));
        }
        // Tokio would have a task that polls many of these stand in line in another order.
        unconstrained(async {
            let _first = self.line.lock().await;
            loop {
                match self.take(size) {
                    Some(place) => return place,
                    None => self.room.notified().await,
                }
            }
        })
        .await
    }

    /// What was sent up to here has been answered, or has failed.
    pub(crate) fn answered(&self, Place(end): Place) {
        self.answered.fetch_max(end, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.room.notify_one();
        }
    }

    /// Two at once may take a little more than there is. What is larger than all the room goes by
    /// itself.
    fn take(&self, size: u64) -> Option<Place> {
        let answered = self.answered.load(Ordering::SeqCst);
        let under_way = self.sent.load(Ordering::SeqCst).saturating_sub(answered);
        let fits = under_way == 0 || under_way + size <= ROOM;
        fits.then(|| Place(self.sent.fetch_add(size, Ordering::SeqCst) + size))
    }
}

/// Somebody who waits, until this is dropped.
struct Waits<'a>(&'a Window);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The one who asks, until this is dropped: with its runtime perhaps.
struct Asks {
    window: Arc<Window>,
    is_over: bool,
}

impl Asks {
    async fn until_nobody_waits<A: Future<Output = ()>>(mut self, ask: impl Fn() -> A) {
        let window = Arc::clone(&self.window);
        loop {
            // It needs no room: there is one at a time.
            let place = Place(window.sent.load(Ordering::SeqCst));
            ask().await;
            window.answered(place);
            // Where asking fails at once, those who wait come to run all the same.
            yield_now().await;
            if window.waiting.load(Ordering::SeqCst) == 0 {
                window.asks.store(false, Ordering::SeqCst);
                // Who came just now may have left the asking to us.
                self.is_over = window.waiting.load(Ordering::SeqCst) == 0
                    || window.asks.swap(true, Ordering::SeqCst);
                if self.is_over {
                    return;
                }
            }
        }
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        if !self.is_over {
            self.window.asks.store(false, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1000;

    fn most() -> usize {
        usize::try_from(ROOM / SIZE).unwrap()
    }

    fn fill(window: &Window) -> Vec<Place> {
        std::iter::from_fn(|| window.place(SIZE)).collect()
    }

    #[test]
    fn an_answer_tells_of_all_that_was_sent_before_it_and_is_counted_once() {
        let window = Window::default();
        let places = fill(&window);
        assert_eq!(places.len(), most());
        window.answered(places[9]);
        assert_eq!(fill(&window).len(), 10);
        for place in &places[..10] {
            window.answered(*place);
        }
        assert_eq!(fill(&window).len(), 0);
        window.answered(places[10]);
        assert_eq!(fill(&window).len(), 1);
    }

    #[test]
    fn what_is_larger_than_all_the_room_goes_by_itself() {
        let window = Window::default();
        let place = window.place(2 * ROOM).unwrap();
        assert!(window.place(SIZE).is_none());
        window.answered(place);
        let place = window.place(SIZE).unwrap();
        assert!(window.place(2 * ROOM).is_none());
        window.answered(place);
        assert!(window.place(2 * ROOM).is_some());
    }

    #[tokio::test]
    async fn while_somebody_waits_one_asks_and_what_was_left_behind_is_heard_of() {
        let window = Arc::new(Window::default());
        fill(&window);
        let asked = Arc::<AtomicUsize>::default();
        let ask = || {
            let asked = Arc::clone(&asked);
            move || {
                asked.fetch_add(1, Ordering::SeqCst);
                std::future::ready(())
            }
        };
        // Nobody answers them, so that it has to be asked again for the later ones.
        let runtime = Handle::current();
        let waits = (0..100).map(|_| window.wait(SIZE, &runtime, ask()));
        futures_util::future::join_all(waits).await;
        let asked = asked.load(Ordering::SeqCst);
        assert!((100 / most()..100).contains(&asked), "{asked}");
        assert_eq!(window.waiting.load(Ordering::SeqCst), 0);
    }
}

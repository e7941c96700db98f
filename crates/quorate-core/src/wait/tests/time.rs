//! A runtime whose time passes by hand, and futures that are polled only when they were woken.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use event_listener::Event;

use crate::runtime::{BoxFuture, EntropyError, Runtime};

/// A value that arrives later.
pub(super) struct Slot<T> {
    value: Mutex<Option<T>>,
    arrived: Event,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { value: Mutex::new(None), arrived: Event::new() }
    }
}

impl<T> Slot<T> {
    pub(super) fn set(&self, value: T) {
        *self.value.lock().unwrap() = Some(value);
        self.arrived.notify(usize::MAX);
    }

    pub(super) fn take(&self) -> Option<T> {
        self.value.lock().unwrap().take()
    }

    pub(super) async fn get(&self) -> T {
        loop {
            let arrived = self.arrived.listen();
            if let Some(value) = self.take() {
                return value;
            }
            arrived.await;
        }
    }
}

/// A runtime whose time stands still until a test moves it.
pub(super) struct Time {
    now: Mutex<Instant>,
    moved: Event,
    spawned: Mutex<Vec<BoxFuture<'static, ()>>>,
    drawn: AtomicU64,
    has_entropy: bool,
}

impl Time {
    pub(super) fn new(has_entropy: bool) -> Self {
        Self {
            now: Mutex::new(Instant::now()),
            moved: Event::new(),
            spawned: Mutex::default(),
            drawn: AtomicU64::new(0),
            has_entropy,
        }
    }

    pub(super) fn advance(&self, by: Duration) {
        *self.now.lock().unwrap() += by;
        self.moved.notify(usize::MAX);
    }

    pub(super) fn take_spawned(&self) -> Vec<BoxFuture<'static, ()>> {
        std::mem::take(&mut *self.spawned.lock().unwrap())
    }
}

impl std::fmt::Debug for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Time")
    }
}

/// Hands a time to the futures of a runtime.
#[derive(Clone, Debug)]
pub(super) struct Clock(Arc<Time>);

impl Clock {
    pub(super) fn new(time: &Arc<Time>) -> Self {
        Self(Arc::clone(time))
    }
}

impl Runtime for Clock {
    fn now(&self) -> Instant {
        *self.0.now.lock().unwrap()
    }

    fn sleep_until(&self, deadline: Instant) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            loop {
                let moved = clock.0.moved.listen();
                if clock.now() >= deadline {
                    return;
                }
                moved.await;
            }
        })
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawned.lock().unwrap().push(task);
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), EntropyError> {
        if !self.0.has_entropy {
            return Err(EntropyError::new("on purpose"));
        }
        for part in bytes.chunks_mut(8) {
            let drawn = self.0.drawn.fetch_add(1, Relaxed) + 1;
            // Each number differs from all others.
            let number = drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            part.copy_from_slice(&number.to_ne_bytes()[..part.len()]);
        }
        Ok(())
    }
}

/// A future that is polled only when it was woken.
pub(super) struct Driven<F> {
    future: F,
    is_woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

impl<F: Future + Unpin> Driven<F> {
    pub(super) fn new(future: F) -> Self {
        Self { future, is_woken: Arc::new(Woken(AtomicBool::new(true))) }
    }

    pub(super) fn poll(&mut self) -> Poll<F::Output> {
        while self.is_woken.0.swap(false, Relaxed) {
            let waker = Waker::from(Arc::clone(&self.is_woken));
            let result = Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker));
            if result.is_ready() {
                return result;
            }
        }
        Poll::Pending
    }
}

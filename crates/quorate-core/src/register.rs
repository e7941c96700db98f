//! Which leases are held, so that they can all be given up together.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use event_listener::{Event, EventListener};
use slab::Slab;

use crate::lease::Tenure;

#[derive(Default)]
pub(crate) struct Register {
    held: Mutex<Slab<Weak<Tenure>>>,
    closed: AtomicBool,
    closing: Event,
}

/// A lease's place in the register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(usize);

impl Register {
    /// Enters a lease; `None` once closed.
    pub(crate) fn enter(&self, tenure: &Arc<Tenure>) -> Option<Place> {
        let mut held = self.held();
        // Looked at under the lock: what is entered before is found by `close`.
        let is_closed = self.is_closed() && !planted!("acquire_goes_on_after_close");
        (!is_closed).then(|| Place(held.insert(Arc::downgrade(tenure))))
    }

    pub(crate) fn leave(&self, place: Place) {
        self.held().try_remove(place.0);
    }

    /// Lets nothing in any more; returns what is held.
    pub(crate) fn close(&self) -> Vec<Arc<Tenure>> {
        let held = self.held();
        self.closed.store(true, Ordering::SeqCst);
        let tenures = held.iter().filter_map(|(_, tenure)| tenure.upgrade()).collect();
        drop(held);
        self.closing.notify(usize::MAX);
        tenures
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Resolves at the next [`close`](Self::close). Look at [`is_closed`](Self::is_closed) after
    /// calling this.
    pub(crate) fn closing(&self) -> EventListener {
        self.closing.listen()
    }

    fn held(&self) -> MutexGuard<'_, Slab<Weak<Tenure>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shows how many are held.
impl fmt::Debug for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Register")
            .field("held", &self.held().len())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

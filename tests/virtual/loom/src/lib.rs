//! The lock of an attempt under loom: every interleaving of a few threads.
//!
//! `late.rs` of the core is compiled here with loom's mutexes and atomics in place of those of `std`.

#![allow(dead_code, reason = "the rest of the core uses it")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../../../../crates/quorate-core/src/cluster/shell/late.rs"]
mod late;

/// Stands for the core's module of this name.
mod seam {
    /// Stands for the core's module of this name.
    pub(crate) mod runtime {
        /// Stands for the core's module of this name.
        ///
        /// Loom's own mutex lets a `try_lock` wait until the mutex is free, so it never shows one that fails. This one is
        /// a flag with the orderings of a mutex, and the value behind it.
        pub(crate) mod sync {
            use std::ops::{Deref, DerefMut};
            use std::sync::{Mutex as Value, MutexGuard as ValueGuard};

            pub(crate) use loom::sync::atomic::{AtomicBool, Ordering, fence};

            pub(crate) struct Mutex<T> {
                is_locked: AtomicBool,
                value: Value<T>,
            }

            impl<T> Mutex<T> {
                pub(crate) fn new(value: T) -> Self {
                    Self { is_locked: AtomicBool::new(false), value: Value::new(value) }
                }
            }

            pub(crate) struct MutexGuard<'a, T> {
                mutex: &'a Mutex<T>,
                value: Option<ValueGuard<'a, T>>,
            }

            impl<T> Deref for MutexGuard<'_, T> {
                type Target = T;

                fn deref(&self) -> &T {
                    self.value.as_ref().unwrap()
                }
            }

            impl<T> DerefMut for MutexGuard<'_, T> {
                fn deref_mut(&mut self) -> &mut T {
                    self.value.as_mut().unwrap()
                }
            }

            impl<T> Drop for MutexGuard<'_, T> {
                fn drop(&mut self) {
                    self.value = None;
                    self.mutex.is_locked.store(false, Ordering::Release);
                }
            }

            pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
                let free = mutex.is_locked.compare_exchange(
                    false,
                    true,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                free.ok()?;
                Some(MutexGuard { mutex, value: Some(mutex.value.try_lock().unwrap()) })
            }

            pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
                loop {
                    if let Some(guard) = try_lock(mutex) {
                        return guard;
                    }
                    loom::thread::yield_now();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use loom::sync::atomic::{AtomicUsize, Ordering};

    use crate::late::{LateLock, LateState};

    /// Keeps the inputs in the order in which it has handled them.
    struct Recording(Vec<u8>);

    struct Recorder(LateLock<Recording>);

    impl LateState for Recording {
        type Input = u8;
        type Effects = ();
        type Owner = Arc<Recorder>;

        fn handle(&mut self, _: &Arc<Recorder>, input: u8, (): &mut ()) {
            self.0.push(input);
        }

        fn perform(_: &Arc<Recorder>, (): ()) {}
    }

    /// A node answers twice, while another thread has the mutex at any moment.
    #[test]
    fn t5_what_came_first_is_handled_first() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let recorder = Arc::new(Recorder(LateLock::new(Recording(Vec::new()))));
            let node = Arc::clone(&recorder);
            let thread = loom::thread::spawn(move || {
                node.0.put(&node, 1);
                node.0.put(&node, 2);
            });
            recorder.0.with(&recorder, |_, ()| ());
            thread.join().unwrap();
            let handled = recorder.0.with(&recorder, |recording, ()| recording.0.clone());
            assert_eq!(handled, [1, 2]);
        });
    }

    /// An input of two brings another one while it is handled, and one while its effects are
    /// performed, as a backend may that answers inside `begin`.
    struct Counting;

    struct Owner {
        lock: LateLock<Counting>,
        performed: AtomicUsize,
    }

    impl LateState for Counting {
        type Input = usize;
        type Effects = Vec<usize>;
        type Owner = Arc<Owner>;

        fn handle(&mut self, owner: &Arc<Owner>, input: usize, effects: &mut Vec<usize>) {
            if input == 2 {
                owner.lock.put(owner, 1);
            }
            effects.push(input);
        }

        fn perform(owner: &Arc<Owner>, effects: Vec<usize>) {
            for input in effects {
                owner.performed.fetch_add(1, Ordering::Relaxed);
                if input == 2 {
                    owner.lock.put(owner, 1);
                }
            }
        }
    }

    /// One thread brings an input, which may bring others on the same stack, and the other one has the
    /// mutex. None is left, whichever was last.
    #[test]
    fn no_input_is_left_in_the_list_of_late_arrivals() {
        for (input, performed, preemption_bound) in [(1, 1, None), (2, 3, Some(3))] {
            let mut model = loom::model::Builder::new();
            model.preemption_bound = preemption_bound;
            model.check(move || {
                let lock = LateLock::new(Counting);
                let owner = Arc::new(Owner { lock, performed: AtomicUsize::new(0) });
                let other = Arc::clone(&owner);
                let thread = loom::thread::spawn(move || other.lock.put(&other, input));
                owner.lock.with(&owner, |_, _| ());
                thread.join().unwrap();
                assert_eq!(owner.performed.load(Ordering::Relaxed), performed);
            });
        }
    }
}

//! The terms of processes that lead: no two at a time, and none whose lease has ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quorate_core::{FencingToken, Lease, LockError, LockRequest};
use quorate_memory::{Sim, SimClient};

use crate::waiting::processes::{Process, Scene};
use crate::world::{MS, SECOND};

/// The terms of all processes, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms(Arc<Mutex<Vec<Term>>>);

/// The leader of a term, and the begin and end of its body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) process: usize,
    pub(super) from: Duration,
    pub(super) until: Option<Duration>,
    token: Option<FencingToken>,
}

impl Terms {
    /// Leads in the background. A body works every 10 ms, and never returns.
    pub(super) fn lead(&self, scene: &Scene, process: &Process, request: LockRequest) {
        let (terms, sim, client) = (self.clone(), scene.sim.clone(), process.client.clone());
        process.spawn(async move {
            let led: Result<Option<()>, LockError> = request
                .lead(async |lease| {
                    let term = terms.begin(&sim, &client, lease);
                    loop {
                        term.works();
                        client.sleep(10 * MS).await;
                    }
                })
                .await;
            assert!(matches!(led, Ok(None)), "{led:?}");
        });
    }

    fn begin(&self, sim: &Sim, client: &SimClient, lease: Lease) -> Working {
        let mut terms = self.all_mut();
        assert!(terms.iter().all(|term| term.until.is_some()), "two lead: {terms:?}");
        let (process, from, token) = (client.id(), sim.elapsed(), lease.fencing_token());
        assert!(terms.iter().all(|term| term.token < token), "{terms:?}, then {token:?}");
        terms.push(Term { process, from, until: None, token });
        Working { terms: self.clone(), number: terms.len() - 1, lease, sim: sim.clone() }
    }

    /// The open term is over: its body was dropped, or its process does not run any more.
    pub(super) fn end(&self, number: usize, sim: &Sim) {
        self.all_mut()[number].until.get_or_insert_with(|| sim.elapsed());
    }

    pub(super) fn all(&self) -> Vec<Term> {
        self.all_mut().clone()
    }

    /// A body that is dropped by a panic notes its end as well.
    fn all_mut(&self) -> MutexGuard<'_, Vec<Term>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body.
struct Working {
    terms: Terms,
    number: usize,
    lease: Lease,
    sim: Sim,
}

impl Working {
    fn works(&self) {
        let terms = self.terms.all();
        let is_last = self.number + 1 == terms.len();
        assert!(is_last && self.lease.is_valid(), "it works on: {terms:?}");
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.terms.end(self.number, &self.sim);
    }
}

/// Two candidates, of which the first one leads.
pub(super) fn two_candidates() -> (Scene, Terms, [Process; 2]) {
    let (scene, terms) = (Scene::new(3), Terms::default());
    let processes = [scene.process(), scene.process()];
    for process in &processes {
        terms.lead(&scene, process, process.locks.lock("r").fenced());
        scene.advance(4 * SECOND);
    }
    assert_eq!(terms.all().len(), 1);
    (scene, terms, processes)
}

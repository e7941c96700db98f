//! One of several names, and permits.

mod answers;
mod costs;
mod hand_over;
mod holders;
mod several;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use quorate_core::{LockGuard, LockRequest, Runtime};

use crate::waiting::processes::{Process, Scene};
use crate::world::{Ended, HOUR, SECOND, spawned};

/// The one name of a guard.
fn name_of(guard: &LockGuard) -> String {
    let [key] = guard.keys() else { panic!("{:?}", guard.keys()) };
    key.to_string()
}

/// A request in the background: its guard, and when it had it.
type Waits = Ended<(LockGuard, Instant)>;

impl Process {
    fn permit(&self, permits: u16) -> LockRequest {
        self.locks.permit("p", permits.into()).ttl(HOUR).timeout(HOUR)
    }

    fn waits(&self, permits: u16) -> Waits {
        let (client, request) = (self.client.clone(), self.permit(permits));
        spawned(&self.client, async move { (request.await.unwrap(), client.now()) })
    }
}

/// Releases, and waits. Returns the name that the other has then, and how long that took.
fn hand_over(scene: &Scene, guard: LockGuard, waits: &Waits) -> (String, Duration) {
    assert!(waits.lock().unwrap().is_none());
    let from = scene.sim.now();
    scene.sim.spawn(Box::pin(guard.release().map(|released| released.unwrap())));
    scene.advance(5 * SECOND);
    let (guard, at) = waits.lock().unwrap().take().expect("it has a permit");
    let name = name_of(&guard);
    std::mem::forget(guard);
    (name, at - from)
}

/// The holder of each name.
#[derive(Clone, Default)]
struct Board(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    holders: BTreeMap<String, usize>,
    /// The most at a time, and all in all by process.
    most: usize,
    had: BTreeMap<usize, usize>,
    wrong: Vec<String>,
}

impl Board {
    /// Uses a request `times` times, in the background.
    fn use_again(
        &self,
        process: &Process,
        request: impl Fn(&Process) -> LockRequest + Send + Sync + 'static,
        times: usize,
        hold: impl Fn(usize) -> Duration + Send + Sync + 'static,
    ) {
        let (board, process) = (self.clone(), process.clone());
        let (client, id) = (process.client.clone(), process.client.id());
        process.clone().spawn(async move {
            for time in 0..times {
                let guard = request(&process).await.unwrap();
                let name = name_of(&guard);
                {
                    let mut seen = board.0.lock().unwrap();
                    if let Some(other) = seen.holders.insert(name.clone(), id) {
                        seen.wrong.push(format!("{other} and {id} both have {name}"));
                    }
                    seen.most = seen.most.max(seen.holders.len());
                    *seen.had.entry(id).or_default() += 1;
                }
                client.sleep(hold(time)).await;
                board.0.lock().unwrap().holders.remove(&name);
                guard.release().await.unwrap();
            }
        });
    }

    /// All have had what they wanted, no name had two holders, and at most, and at some time, so many were held.
    fn check(&self, most: usize, had: usize, story: &str) {
        let seen = self.0.lock().unwrap();
        assert!(seen.wrong.is_empty(), "{story}: {:?}", seen.wrong);
        assert_eq!(seen.most, most, "{story}");
        assert_eq!(seen.had.values().sum::<usize>(), had, "{story}: {:?}", seen.had);
    }
}

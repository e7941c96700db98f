//! Why a request for one of several names ends without one.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use quorate_core::LockError;
use quorate_memory::{Effect, Operation, Rule};

use crate::waiting::processes::Scene;
use crate::world::{HOUR, MS, SECOND};

/// Two tasks have each lost a round to another process. One waits at the gate, the other behind it.
#[test]
fn each_task_that_waits_for_one_of_several_names_hears_of_a_close() {
    let scene = Scene::new(3);
    let (process, other) = (scene.process(), scene.process());
    let [released, _held] =
        ["a", "b"].map(|name| scene.run(process.locks.lock(name).ttl(HOUR)).unwrap());
    let errors = Arc::<Mutex<Vec<LockError>>>::default();
    for _ in 0..2 {
        let request = process.locks.lock_any(["a", "b"]).timeout(HOUR).into_future();
        let errors = Arc::clone(&errors);
        process.spawn(request.map(move |lost| errors.lock().unwrap().extend(lost.err())));
    }
    scene.advance(SECOND);
    for node in &scene.nodes {
        let late = Rule::new(Effect::Delay { least: 50 * MS, most: 50 * MS });
        node.add_rule(late.on(Operation::Acquire).client(&process.client));
    }
    drop(released);
    let _kept = other.hold_once("a", HOUR);
    scene.advance(5 * SECOND);
    assert!(errors.lock().unwrap().is_empty(), "both wait");
    let locks = process.locks.clone();
    process.spawn(async move { drop(locks.close(SECOND).await) });
    scene.advance(SECOND);
    let errors = errors.lock().unwrap();
    assert_eq!(errors.len(), 2);
    assert!(errors.iter().all(LockError::is_closed), "{errors:?}");
}

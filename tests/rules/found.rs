//! What the seeded world found, each as small as it can be told.

use std::sync::{Arc, Mutex};

use quorate_core::{AdoptError, LockError, LockManager, LockManagerBuilder};

use crate::world::{MS, Paused, PausesClient, SECOND, World};

fn pausing(world: &World, pause: &Arc<Mutex<std::time::Duration>>) -> LockManagerBuilder {
    let client = Paused::new(&world.sim);
    let nodes: Vec<_> = world
        .nodes
        .iter()
        .map(|node| PausesClient {
            node: node.clone(),
            client: client.clone(),
            pause: Arc::clone(pause),
        })
        .collect();
    LockManager::builder(client, nodes).hold_limit(2 * SECOND)
}

/// The hold limit counts from the start of the round, as the validity does.
#[test]
fn t2_a_win_beyond_the_hold_limit_is_a_loss() {
    let world = World::new(3);
    let pause = Arc::new(Mutex::new(SECOND));
    let manager = pausing(&world, &pause).build().unwrap();
    let locked = world.sim.block_on(manager.try_lock("r"));
    assert!(matches!(locked, Err(LockError::Expired { .. })), "{locked:?}");
    world.catch_up();
    assert_eq!(world.keys_left(), 0);

    *pause.lock().unwrap() = 500 * MS;
    let guard = world.sim.block_on(manager.try_lock("r")).unwrap();
    assert!(guard.is_valid());
    let record = guard.hand_over();
    *pause.lock().unwrap() = SECOND;
    let adopted = world.sim.block_on(manager.adopt(&record));
    assert!(matches!(adopted, Err(AdoptError::Expired { .. })), "{adopted:?}");
}

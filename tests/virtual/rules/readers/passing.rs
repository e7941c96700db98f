//! A writer waits, and readers come and go: none of them goes first.

use quorate_core::Runtime;

use super::read;
use crate::waiting::processes::{Scene, from};
use crate::world::{MS, SECOND, slow};

/// Its attempt reaches the nodes 60 ms after the push. Readers that come find a free lock until then.
/// Rule RW1.
#[test]
fn a_writer_that_is_slow_is_not_passed() {
    let (scene, [first, writer, second]) = Scene::new(3).and_processes();
    let reading = scene.run(read(&first)).unwrap();
    let written = writer.hold_once("r", MS);
    scene.advance(100 * MS);
    scene.add_rule(.., slow(60 * MS).client(&writer.client));
    scene.run(reading.release()).unwrap();
    let reading = scene.run(read(&second)).unwrap();
    let at = second.client.now();
    scene.run(reading.release()).unwrap();
    scene.advance(SECOND);
    assert!(from(&written) < at, "the writer was first");
}

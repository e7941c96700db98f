//! What a revoke and a delete say about each node.

use super::*;

/// What each of three nodes keeps, and what a revoke and a delete say about it. A node that hangs costs one node
/// timeout.
#[test]
fn a_revocation_tells_what_each_node_kept() {
    let all = |world: &World| drop(world.detached());
    type Kept<'a> = &'a dyn Fn(&World);
    let scenes: [(Kept<'_>, bool, &str); 9] = [
        (&all, true, "revoked: done on 3 of 3 nodes, 2 needed, free in 10.0s"),
        (
            &|world| {
                all(world);
                world.nodes[1].expire("r");
            },
            true,
            "revoked: done on 2 of 3 nodes, 2 needed, free in 10.0s; memory-2: free",
        ),
        (
            &|world| {
                all(world);
                [0, 2].into_iter().for_each(|at| world.nodes[at].expire("r"));
            },
            false,
            "not revoked: done on 1 of 3 nodes, 2 needed, free in 10.0s; memory-1: free; memory-3: free",
        ),
        (
            &|_| {},
            false,
            "not revoked: done on 0 of 3 nodes, 2 needed; memory-1: free; memory-2: free; memory-3: free",
        ),
        (
            &|world| world.occupy(..),
            false,
            "not revoked: done on 0 of 3 nodes, 2 needed; memory-1: held, without a ttl, left alone; \
             memory-2: held, without a ttl, left alone; memory-3: held, without a ttl, left alone",
        ),
        (
            &|world| {
                all(world);
                world.occupy(1..2);
            },
            true,
            "revoked: done on 2 of 3 nodes, 2 needed, free in 10.0s; \
             memory-2: held, without a ttl, left alone",
        ),
        (
            &|world| {
                all(world);
                world.inject(..1, Fault::Dead);
                world.inject(2.., Fault::Hung);
            },
            false,
            "not revoked: done on 1 of 3 nodes, 2 needed, free in 9.5s; \
             memory-1: connection refused; memory-3: no reply within 500.0ms",
        ),
        (
            &|world| world.nodes.iter().for_each(|it| it.put("r", Value::OrderedSet([].into()))),
            false,
            "not revoked: done on 0 of 3 nodes, 2 needed; memory-1: WRONGTYPE the key is not a lock of quorate",
        ),
        (
            &|world| world.nodes.iter().for_each(|node| node.put("r", Value::List)),
            false,
            "not revoked: done on 0 of 3 nodes, 2 needed; memory-1: WRONGTYPE",
        ),
    ];
    for (kept, is_effective, line) in scenes {
        for deletes in [false, true] {
            let world = World::new(3);
            kept(&world);
            let before = values(&world);
            let found = world.run(take(world.manager(), "r", deletes));
            let line = match deletes {
                false => line.to_owned(),
                true => line
                    .replace("revoked:", "deleted:")
                    .replace(", free in 10.0s", "")
                    .replace(", free in 9.5s", ""),
            };
            assert!(found.to_string().starts_with(&line), "{found}\n{line}");
            assert_eq!(found.is_effective(), is_effective, "{found}");
            let silent = if line.contains("no reply") { 500 * MS } else { Duration::ZERO };
            assert_eq!(world.sim.elapsed(), silent, "{found}");
            for ((node, before), view) in world.nodes.iter().zip(before).zip(found.found().nodes())
            {
                let is_done = matches!(view.state, KeyState::Held { time_left: Some(_), .. });
                assert_eq!(node.get("r") != before, is_done, "{found}");
                assert_eq!(node.get("r").is_none(), deletes && is_done || before.is_none());
                let is_foreign = matches!(before, Some(Value::List | Value::OrderedSet(_)));
                let is_told = matches!(&view.state, KeyState::Failed(error) if error.kind() == BackendErrorKind::WrongType);
                assert_eq!(is_told, is_foreign, "{found}");
            }
        }
    }
    assert_eq!(revoke(&World::new(3), "free").found().state(), LockState::Free);
}

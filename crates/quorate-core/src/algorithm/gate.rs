//! The order of the nodes as gates of a key, the same in every process.
//!
//! The gate is the node that keeps the wait queue of a key. All processes need the same one,
//! whatever order they list their nodes in. So the nodes are ranked by a hash of server id and key
//! (rendezvous hashing): each key has its own order, many keys spread evenly, and without a node
//! the other ranks stay.
//!
//! The hash is part of the protocol between versions: FNV-1a (64 bits) over the id, a zero byte and
//! the key, then the finalizer of MurmurHash3.

use std::cmp::Reverse;

use super::quorum::NodeId;

/// Ranks the nodes as gates of `key`, the best one first.
///
/// Each node comes with its server id, if that is known, and its configured name. Nodes whose
/// server id is not known come after all others, ranked by their names.
pub fn rank<'a>(
    key: &[u8],
    nodes: impl Iterator<Item = (NodeId, Option<&'a str>, &'a str)>,
) -> Vec<NodeId> {
    let mut ranked: Vec<_> = nodes
        .map(|(node, server, name)| {
            let id = server.unwrap_or(name);
            (server.is_none(), Reverse(weight(id.as_bytes(), key)), id, node)
        })
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(.., node)| node).collect()
}

fn weight(id: &[u8], key: &[u8]) -> u64 {
    let bytes = id.iter().chain(&[0]).chain(key);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mix = |hash: u64, factor| (hash ^ (hash >> 33)).wrapping_mul(factor);
    let hash = mix(mix(hash, 0xff51_afd7_ed55_8ccd), 0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::super::quorum::NodeCount;
    use super::*;

    const IDS: [&str; 5] = [
        "0000000000000000000000001234567890abcdef",
        "0000000000000000000000002468acf121579bde",
        "000000000000000000000000369d0369b20369cd",
        "00000000000000000000000048d159e242af37bc",
        "0000000000000000000000005b05b05ad35b05ab",
    ];
    const NAMES: [&str; 5] =
        ["10.0.0.1:6379", "10.0.0.2:6379", "10.0.0.3:6379", "10.0.0.4:6379", "10.0.0.5:6379"];
    const KEYS: [&str; 3] = ["orders:42", "a", "invoice/7"];

    /// Ranks the nodes of a manager that lists them in this order. `knows`: whether a server id is
    /// known.
    fn ranked(key: &str, listed: [usize; 5], knows: impl Fn(usize) -> bool) -> Vec<usize> {
        let nodes = NodeCount::new(5).expect("in range").ids().zip(listed);
        let nodes = nodes.map(|(id, at)| (id, knows(at).then_some(IDS[at]), NAMES[at]));
        rank(key.as_bytes(), nodes).into_iter().map(|id| listed[id.index()]).collect()
    }

    /// The values of the model of the wait queue. Another version has to have the same.
    #[test]
    fn ranks_are_fixed_for_all_versions() {
        assert_eq!(weight(b"", b""), 0xb903_4ad3_7056_f5fb);
        assert_eq!(weight(b"a", b"orders:42"), 0xb186_681c_70e3_1db8);
        let id = b"c3e0a7f2b1d4958660718293a4b5c6d7e8f90123";
        assert_eq!(weight(id, b"orders:42"), 0x6df4_28c0_81df_cf47);
        assert_eq!(weight("é".as_bytes(), "日".as_bytes()), 0xddd5_2f3a_f224_4db1);
        let all = |knows: bool| KEYS.map(|key| ranked(key, [0, 1, 2, 3, 4], |_| knows));
        assert_eq!(all(true), [[3, 1, 4, 0, 2], [3, 0, 4, 2, 1], [3, 4, 0, 1, 2]]);
        assert_eq!(all(false), [[3, 0, 1, 4, 2], [1, 3, 4, 0, 2], [0, 3, 1, 4, 2]]);
    }

    #[test]
    fn the_order_in_which_nodes_are_listed_changes_nothing() {
        for key in (0..200).map(|n| format!("orders:{n}")) {
            for knows in 0..32 {
                let knows = |at: usize| knows >> at & 1 == 1;
                let one = ranked(&key, [0, 1, 2, 3, 4], knows);
                assert_eq!(one, ranked(&key, [3, 1, 4, 0, 2], knows), "{key}");
                assert!(one.is_sorted_by_key(|at| !knows(*at)), "unknown ids come last: {one:?}");
            }
        }
    }

    /// A manager that knows the gate and not all other nodes has the same gate.
    #[test]
    fn an_unknown_node_behind_the_gate_moves_no_gate() {
        for key in (0..200).map(|n| format!("orders:{n}")) {
            let all = ranked(&key, [0, 1, 2, 3, 4], |_| true);
            for unknown in &all[1..] {
                assert_eq!(ranked(&key, [0, 1, 2, 3, 4], |at| at != *unknown)[0], all[0], "{key}");
            }
        }
    }

    #[test]
    fn the_gates_of_many_keys_are_spread_evenly() {
        for is_known in [true, false] {
            let mut gates = [0; 5];
            for key in (0..20_000).map(|n| format!("orders:{n}")) {
                gates[ranked(&key, [0, 1, 2, 3, 4], |_| is_known)[0]] += 1;
            }
            assert!(gates.iter().all(|count| (3_800..4_200).contains(count)), "{gates:?}");
        }
    }
}

//! A world whose chaos is over, for the checks that follow.

use std::time::Instant;

use quorate_core::{LockManager, Runtime};
use quorate_memory::{Effect, MemoryNode, Rule, Sim};

use crate::dice::Dice;
use crate::oracle::Violation;
use crate::plan::Plan;
use crate::process::Process;
use crate::worker::lock_keys;

/// What a check uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage<'a> {
    /// The world.
    pub(crate) sim: &'a Sim,
    /// The draws.
    pub(crate) dice: &'a Dice,
    /// What the world is like.
    pub(crate) plan: &'a Plan,
    /// The nodes.
    pub(crate) nodes: &'a [MemoryNode],
    /// The processes.
    pub(crate) processes: &'a [Process],
    /// The manager of each of them.
    pub(crate) managers: &'a [LockManager],
}

impl<'a> Stage<'a> {
    /// Something that is wrong now.
    pub(crate) fn wrong(&self, what: impl Into<String>) -> Violation {
        Violation::other(self.sim, what)
    }

    /// A key of a lock on a node that may have none.
    pub(crate) fn keys_left(&self, when: &str) -> Vec<Violation> {
        let of_node = |node: &MemoryNode| {
            let (keys, name) = (lock_keys(node).into_iter(), node.name().to_owned());
            let left = move |key: Vec<u8>| {
                let key = String::from_utf8_lossy(&key);
                self.wrong(format!("{key} is left on {name} {when}"))
            };
            keys.map(left).collect::<Vec<_>>()
        };
        self.nodes.iter().flat_map(of_node).collect()
    }

    /// No message of a node is lost or late any more.
    pub(crate) fn calm(&self, node: &MemoryNode) {
        node.clear_rules();
        let most = self.plan.latency;
        node.add_rule(Rule::new(Effect::Delay { least: most / 10, most }));
    }

    /// All nodes are well.
    pub(crate) fn heal(&self) {
        self.nodes.iter().for_each(MemoryNode::heal);
    }

    /// A node is well again at that moment.
    pub(crate) fn heals(&self, node: &MemoryNode, at: Instant) {
        let (node, world) = (node.clone(), self.sim.clone());
        self.sim.spawn(Box::pin(async move {
            world.sleep_until(at).await;
            node.heal();
        }));
    }

    /// So many nodes as can fail.
    pub(crate) fn spare(&self) -> usize {
        (self.nodes.len() - 1) / 2
    }

    /// Any nodes, so many.
    pub(crate) fn some_nodes(&self, count: usize) -> Vec<&'a MemoryNode> {
        let mut nodes: Vec<&MemoryNode> = self.nodes.iter().collect();
        while nodes.len() > count {
            nodes.swap_remove(self.dice.below(nodes.len()));
        }
        nodes
    }
}

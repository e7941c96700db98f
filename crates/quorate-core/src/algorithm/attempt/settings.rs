//! What one attempt is given: the nodes, and every duration.

use std::time::{Duration, Instant};

use super::super::lease::{Drift, SafetyMargin, Ttl};
use super::super::node_set::NodeSet;
use super::super::quorum::{NodeCount, NodeId};

/// The settings of one attempt.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many nodes are configured.
    pub nodes: NodeCount,
    /// How long a node keeps the key. An extension may ask for another ttl.
    pub ttl: Ttl,
    /// The allowance for clocks that run at different rates.
    pub drift: Drift,
    /// How long before the keys may expire the lease ends (H4).
    pub safety_margin: SafetyMargin,
    /// How long one call to a node may count for its round (Q5). More than zero.
    pub node_timeout: Duration,
    /// Until when the caller waits for the first round, if it does not wait for the node timeout.
    pub deadline: Option<Instant>,
    /// How long cleanup may go on. `None`: for the longest ttl that was asked for.
    pub cleanup_bound: Option<Duration>,
    /// How long the lease may be held, from the moment at which the attempt handles its win (H7).
    pub hold_limit: Option<Duration>,
    /// How long the first round goes on at least, once a quorum has granted or refused it and a
    /// node has refused it. By then another client has or wants the keys (O8). [`Duration::MAX`]:
    /// it waits for slow nodes.
    pub haste: Duration,
    /// Whether acquires bring a number, of which a fencing token is made.
    pub fencing: bool,
    /// The *ordered* nodes: their calls take effect in the order in which they begin, and a call
    /// that did not leave before its connection ended never leaves.
    pub ordered: NodeSet,
    /// The ordered nodes that *push*: once one has been extended or looked at, it says when the
    /// keys are written.
    pub pushing: NodeSet,
    /// The nodes that are *connecting*: they have never answered, and until the attempt is a node
    /// timeout and the connect limit old, their votes stay open. Those of the other nodes do not.
    pub connecting: NodeSet,
    /// The longest time that one of these may take to connect.
    pub connect_limit: Duration,
}

impl Settings {
    /// Settings without fencing, with the default drift and margin, and nodes that are pools.
    pub fn new(nodes: NodeCount, ttl: Ttl, node_timeout: Duration) -> Self {
        Self {
            nodes,
            ttl,
            drift: Drift::default(),
            safety_margin: SafetyMargin::default(),
            node_timeout,
            deadline: None,
            cleanup_bound: None,
            hold_limit: None,
            haste: Duration::MAX,
            fencing: false,
            ordered: NodeSet::default(),
            pushing: NodeSet::default(),
            connecting: NodeSet::default(),
            connect_limit: Duration::ZERO,
        }
    }

    /// How long a call to a node may count: the node timeout, and the connect limit of one that is
    /// connecting.
    pub fn call_limit(&self, node: NodeId) -> Duration {
        match self.connecting.contains(node) {
            true => self.node_timeout.saturating_add(self.connect_limit),
            false => self.node_timeout,
        }
    }

    /// Until when a node promises to keep the keys that grants a call which leaves after `start`
    /// (T1, T2). Where that cannot be represented it promises nothing.
    pub fn promise(&self, start: Instant, ttl: Ttl) -> Instant {
        start.checked_add(self.safety_margin.validity(self.drift, ttl)).unwrap_or(start)
    }
}

//! Several independent nodes.

use std::ops::{Deref, DerefMut};
use std::thread;

use super::{Builder, RedisServer};

/// N nodes that know nothing of each other; a slice of [`RedisServer`]s otherwise.
#[derive(Debug)]
pub struct Nodes(Vec<RedisServer>);

impl Nodes {
    /// Starts `count` nodes with default settings.
    pub fn start(count: usize) -> Self {
        Self::start_with(count, &RedisServer::builder())
    }

    /// Starts `count` nodes, all with the same settings.
    pub fn start_with(count: usize, builder: &Builder) -> Self {
        thread::scope(|scope| {
            let start = |_| scope.spawn(|| builder.clone().start());
            let starts: Vec<_> = (0..count).map(start).collect();
            Self(starts.into_iter().map(|start| start.join().expect("a node")).collect())
        })
    }

    /// The URL of each.
    pub fn addresses(&self) -> Vec<String> {
        self.iter().map(RedisServer::address).collect()
    }

    /// The keys on all nodes that run, as `(node, key)`, sorted.
    pub fn keys_left(&self) -> Vec<(usize, String)> {
        let running = self.iter().enumerate().filter(|(_, node)| node.is_running());
        running.flat_map(|(at, node)| node.keys().into_iter().map(move |key| (at, key))).collect()
    }
}

impl Deref for Nodes {
    type Target = [RedisServer];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Nodes {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

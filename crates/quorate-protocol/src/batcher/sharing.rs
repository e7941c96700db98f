//! Which calls of a pipeline share a script.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use quorate_core::backend::Operation;

use crate::features::Features;
use crate::operation::sharing;

/// Which calls of a pipeline share a script.
///
/// A call joins the last script of its kind, unless that or a command behind it has one of its
/// keys. So calls with a key in common take effect in the order of their begins (C3, H6).
#[derive(Default)]
pub(super) struct Sharing {
    /// The last command of each key. By its hash: two keys with one hash keep their order for
    /// nothing.
    last: HashMap<u64, usize>,
    hashes: RandomState,
    /// Those of the keys of one call.
    keys: Vec<u64>,
    /// The last script of releases, and of extensions.
    scripts: [Script; 2],
}

/// A script that calls may join. Without keys there is none.
#[derive(Clone, Copy, Default)]
struct Script {
    command: usize,
    keys: usize,
}

impl Sharing {
    /// Begins a pipeline.
    pub(super) fn clear(&mut self) {
        self.last.clear();
        self.scripts = Default::default();
    }

    /// The number of the script that carries this operation out, if there is one that it may join.
    pub(super) fn join(&mut self, operation: &Operation, features: &Features) -> Option<usize> {
        self.keys.clear();
        self.keys.extend(operation.keys().map(|key| self.hashes.hash_one(key.as_bytes())));
        let script = &mut self.scripts[kind(operation)];
        let is_before = |key| self.last.get(key).is_none_or(|last| *last < script.command);
        let has_room = script.keys > 0 && script.keys + self.keys.len() <= MAX_KEYS;
        if !has_room || !sharing(operation, features) || !self.keys.iter().all(is_before) {
            return None;
        }
        script.keys += self.keys.len();
        let command = script.command;
        self.note(command);
        Some(command)
    }

    /// The operation that has just joined no script is this command, which others may join.
    pub(super) fn begin(&mut self, operation: &Operation, features: &Features, command: usize) {
        if sharing(operation, features) {
            self.scripts[kind(operation)] = Script { command, keys: self.keys.len() };
        }
        self.note(command);
    }

    fn note(&mut self, command: usize) {
        self.last.extend(self.keys.iter().map(|key| (*key, command)));
    }
}

/// The place of its kind among the scripts.
fn kind(operation: &Operation) -> usize {
    usize::from(matches!(operation, Operation::Extend(..)))
}

/// Keys of a script, and so its calls. A server is busy with it for about 0.1 ms.
const MAX_KEYS: usize = 64;

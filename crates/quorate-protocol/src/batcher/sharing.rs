//! Which calls of a pipeline share a script.

use quorate_core::backend::Operation;

use crate::features::Features;
use crate::operation::sharing;

/// Which calls of a pipeline share a script.
///
/// A call joins the last script of its kind, unless that or a command behind it has one of its
/// keys. So calls with a key in common take effect in the order of their begins (C3, H6).
#[derive(Default)]
pub(super) struct Sharing {
    /// The hashes of the keys of one call.
    keys: Vec<u64>,
    /// Of its keys.
    bytes: usize,
    /// The last script of releases, and of extensions.
    scripts: [Script; 2],
}

/// A script that calls may join. Without keys there is none.
#[derive(Default)]
struct Script {
    command: usize,
    keys: usize,
    bytes: usize,
    /// The hashes of its keys, and of those of the calls that were sent since it began. Two keys
    /// with one hash keep their order for nothing.
    taken: Vec<u64>,
}

impl Sharing {
    /// Begins a pipeline.
    pub(super) fn clear(&mut self) {
        self.scripts.iter_mut().for_each(|script| script.keys = 0);
    }

    /// The number of the script that carries this operation out, if there is one that it may join.
    pub(super) fn join(&mut self, operation: &Operation, features: &Features) -> Option<usize> {
        self.keys.clear();
        let shares = sharing(operation, features);
        if !shares && self.scripts.iter().all(|script| script.keys == 0) {
            return None;
        }
        self.keys.extend(operation.keys().map(|key| hash(key.as_bytes())));
        self.bytes = operation.keys().map(|key| key.as_bytes().len()).sum();
        let script = &mut self.scripts[kind(operation)];
        let (keys, bytes) = (script.keys + self.keys.len(), script.bytes + self.bytes);
        let has_room = script.keys > 0 && keys <= MAX_KEYS && bytes <= MAX_BYTES;
        let joins = shares && has_room && !self.keys.iter().any(|key| script.taken.contains(key));
        if joins {
            (script.keys, script.bytes) = (keys, bytes);
        }
        let command = script.command;
        self.note();
        joins.then_some(command)
    }

    /// The operation that has just joined no script is this command, which others may join.
    pub(super) fn begin(&mut self, operation: &Operation, features: &Features, command: usize) {
        if sharing(operation, features) {
            let script = &mut self.scripts[kind(operation)];
            (script.command, script.keys, script.bytes) = (command, self.keys.len(), self.bytes);
            script.taken.clear();
            script.taken.extend(&self.keys);
        }
    }

    /// No script that there is may take a later call with one of these keys.
    fn note(&mut self) {
        for script in self.scripts.iter_mut().filter(|script| script.keys > 0) {
            script.taken.extend(&self.keys);
        }
    }
}

/// As FNV-1a, of eight bytes at a time: quick, and good enough where a collision costs a command.
fn hash(key: &[u8]) -> u64 {
    let (words, rest) = key.as_chunks();
    let words = words.iter().map(|word| u64::from_le_bytes(*word));
    let parts = words.chain(rest.iter().map(|byte| u64::from(*byte)));
    let next = |hash: u64, part: u64| (hash ^ part).wrapping_mul(0x100_0000_01b3);
    parts.fold(0xcbf2_9ce4_8422_2325, next)
}

/// The place of its kind among the scripts.
fn kind(operation: &Operation) -> usize {
    usize::from(matches!(operation, Operation::Extend(..)))
}

/// Keys of a script, and so its calls. A server is busy with it for about 0.1 ms.
const MAX_KEYS: usize = 64;

/// Bytes of the keys of a script. A longer name has a command of its own.
const MAX_BYTES: usize = 64 << 10;

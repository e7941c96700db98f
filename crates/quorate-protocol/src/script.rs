//! A Lua script and its SHA-1.

use std::sync::OnceLock;

use quorate_core::backend::Claim;
use quorate_core::resource::Key;

use crate::command::Command;

/// A Lua script, and the SHA-1 by which a server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    text: &'static str,
    sha1: OnceLock<String>,
}

/// How a script is named in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// `EVALSHA`, which needs a script that the server has loaded.
    Sha,
    /// `EVAL`, which carries the text and loads it.
    Text,
}

/// The script that these files are, one behind the other.
macro_rules! script {
    ($($file:literal),+) => {
        $crate::script::Script::new(concat!(
            $(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/", $file, ".lua"))),+
        ))
    };
}

pub(crate) use script;

impl Script {
    pub(crate) const fn new(text: &'static str) -> Self {
        Self { text, sha1: OnceLock::new() }
    }

    /// The command without its keys and arguments. `size`: the bytes of those.
    pub(crate) fn run<C: Command>(&self, by: By, keys: usize, size: usize) -> C {
        let (name, script) = match by {
            By::Sha => ("EVALSHA", self.sha1()),
            By::Text => ("EVAL", self.text),
        };
        C::new(name, script.len() + size + 4).arg(script).number(keys as u64)
    }

    /// The command with the keys and the token of a claim.
    pub(crate) fn of_claim<C: Command>(&self, by: By, claim: &Claim) -> C {
        let (keys, token) = (claim.keys(), claim.token().as_bytes());
        self.run::<C>(by, keys.len(), size_of(keys) + token.len() + 16).keys(keys).arg(token)
    }

    /// The command that loads the script.
    pub(crate) fn load<C: Command>(&self) -> C {
        C::new("SCRIPT", self.text.len() + 4).arg("LOAD").arg(self.text)
    }

    fn sha1(&self) -> &str {
        self.sha1.get_or_init(|| sha1(self.text.as_bytes()))
    }
}

/// The SHA-1 of bytes, as Lua's `redis.sha1hex` gives it.
pub(crate) fn sha1(bytes: &[u8]) -> String {
    sha1_smol::Sha1::from(bytes).digest().to_string()
}

/// Arguments that are keys.
pub(crate) trait Keys: Command {
    /// Appends keys.
    fn keys(self, keys: &[Key]) -> Self {
        keys.iter().fold(self, |command, key| command.arg(key.as_bytes()))
    }
}

impl<C: Command> Keys for C {}

/// The bytes of keys in a command.
pub(crate) fn size_of(keys: &[Key]) -> usize {
    keys.iter().map(|key| key.as_bytes().len() + 4).sum()
}

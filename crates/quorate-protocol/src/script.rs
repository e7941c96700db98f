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

    /// The command without its keys and arguments.
    pub(crate) fn run<C: Command>(&self, by: By, keys: usize) -> C {
        let (name, script) = match by {
            By::Sha => ("EVALSHA", self.sha1()),
            By::Text => ("EVAL", self.text),
        };
        C::new(name).arg(script).number(keys as u64)
    }

    /// The command with the keys and the token of a claim.
    pub(crate) fn of_claim<C: Command>(&self, by: By, claim: &Claim) -> C {
        self.about(by, claim, &[], &[], |command| command)
    }

    /// The same with the keys `others`, and with these arguments behind the token. If it asks about
    /// wait queues, their keys are the last ones, and the number of its own keys is the last
    /// argument.
    pub(crate) fn about<C: Command>(
        &self,
        by: By,
        claim: &Claim,
        others: &[Vec<u8>],
        asked: &[Vec<u8>],
        arguments: impl FnOnce(C) -> C,
    ) -> C {
        let own = claim.keys().len() + others.len();
        let command = self.run::<C>(by, own + asked.len()).keys(claim.keys());
        let command = others.iter().chain(asked).fold(command, C::arg);
        let command = arguments(command.arg(claim.token().as_bytes()));
        if asked.is_empty() { command } else { command.number(own as u64) }
    }

    /// The command that loads the script.
    pub(crate) fn load<C: Command>(&self) -> C {
        C::new("SCRIPT").arg("LOAD").arg(self.text)
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

//! A Lua script and its SHA-1.

use std::sync::OnceLock;

use quorate_core::BackendError;

use crate::command::Command;
use crate::reply::{Reply, read};
use crate::transport::{Admission, Transport};

/// A Lua script, and the SHA-1 by which a server knows it.
#[derive(Debug)]
pub(crate) struct Script {
    text: &'static str,
    sha1: OnceLock<String>,
}

impl Script {
    pub(crate) const fn new(text: &'static str) -> Self {
        Self { text, sha1: OnceLock::new() }
    }

    /// The command that carries the whole text.
    fn eval(&self, keys: &[&[u8]], arguments: &[&[u8]]) -> Command {
        invocation("EVAL", self.text, keys, arguments)
    }

    /// The command that names the script.
    fn evalsha(&self, keys: &[&[u8]], arguments: &[&[u8]]) -> Command {
        invocation("EVALSHA", self.sha1(), keys, arguments)
    }

    /// Sends `EVALSHA`, and `EVAL` to a server that does not know the script (A5).
    ///
    /// Only for a script that sets nothing new: the `EVAL` may arrive after a command that was sent
    /// later. So neither an acquire nor a refresh is sent this way (C3, W3).
    ///
    /// # Errors
    ///
    /// The server replied with an error or not at all, or it runs no scripts and nothing was sent.
    ///
    /// # Cancel safety
    ///
    /// As that of [`Transport::call`].
    pub(crate) async fn run<T: Transport>(
        &self,
        transport: &T,
        admission: Admission,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<Reply, BackendError> {
        transport.features().scripts.map_err(BackendError::not_sent)?;
        match transport.call(self.evalsha(keys, arguments), admission).await {
            Ok(Reply::Error(text)) if text.starts_with("NOSCRIPT") => {
                read(transport.call(self.eval(keys, arguments), admission).await)
            }
            reply => read(reply),
        }
    }

    /// Sends `EVAL`: one command, which nothing follows (C3).
    ///
    /// # Errors
    ///
    /// As those of [`run`](Self::run).
    ///
    /// # Cancel safety
    ///
    /// As that of [`Transport::call`].
    pub(crate) async fn run_once<T: Transport>(
        &self,
        transport: &T,
        admission: Admission,
        keys: &[&[u8]],
        arguments: &[&[u8]],
    ) -> Result<Reply, BackendError> {
        transport.features().scripts.map_err(BackendError::not_sent)?;
        read(transport.call(self.eval(keys, arguments), admission).await)
    }

    fn sha1(&self) -> &str {
        self.sha1.get_or_init(|| sha1_smol::Sha1::from(self.text).digest().to_string())
    }
}

fn invocation(name: &str, script: &str, keys: &[&[u8]], arguments: &[&[u8]]) -> Command {
    let parts = || keys.iter().chain(arguments);
    let size = script.len() + parts().map(|part| part.len() + 4).sum::<usize>();
    let command = Command::new(name, size).arg(script).number(keys.len() as u64);
    parts().fold(command, Command::arg)
}

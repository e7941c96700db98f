//! What a server has and allows, asked when a connection was made.

use quorate_core::{BackendError, BackendErrorKind};

use crate::command::Command;
use crate::connection::Connection;
use crate::reply::{Failure, Reply, read};

/// What a server has and allows.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Features {
    /// The command that deletes a key if it has a given value.
    pub compare_and_delete: Option<CompareAndDelete>,
    /// Whether scripts may run, and if not, the server's reason.
    pub scripts: Result<(), BackendError>,
}

impl Default for Features {
    fn default() -> Self {
        Self { compare_and_delete: None, scripts: Ok(()) }
    }
}

/// A command that deletes a key if it has a given value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompareAndDelete {
    /// `DELIFEQ key value` of Valkey 9.
    DelIfEq,
    /// `DELEX key IFEQ value` of Redis 8.4.
    DelEx,
}

impl CompareAndDelete {
    /// Deletes `key` if it has this value.
    pub(crate) fn command(self, key: &[u8], value: &[u8]) -> Command {
        let size = key.len() + value.len() + 4;
        let command = match self {
            Self::DelIfEq => Command::new("DELIFEQ", size).arg(key),
            Self::DelEx => Command::new("DELEX", size).arg(key).arg("IFEQ"),
        };
        command.arg(value)
    }
}

/// What a connection is for, which decides what the server is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a node has no other connections")]
pub enum Purpose {
    /// All commands.
    Commands,
    /// Watches only, with client tracking.
    Watches,
}

impl Purpose {
    /// Asks the server of a new connection what it has and allows.
    ///
    /// # Errors
    ///
    /// The connection is of no use: no user is logged in, keys could be set and never released, or
    /// keys cannot be watched. The error says which permission is missing. Or the connection ended, or
    /// the server replied with something else.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time: nothing is changed.
    pub async fn ask(self, connection: &impl Connection) -> Result<Features, BackendError> {
        if self == Self::Watches && !connection.receives_pushes() {
            return Err(BackendError::unsupported("nothing can be watched without RESP3"));
        }
        let features = self.read(connection.send(self.questions()).await)?;
        let (Err(missing), Some(how)) = (&features.scripts, features.compare_and_delete) else {
            return Ok(features);
        };
        // `COMMAND LIST` does not say what the user may run. The key does not exist.
        let replies = connection.send(vec![how.command(PROBE, PROBE)]).await;
        for reply in replies {
            if read(Ok(reply?)).is_err_and(|error| is_forbidden(&error)) {
                return Err(missing.clone());
            }
        }
        Ok(features)
    }

    /// What is sent as the first pipeline of a connection.
    fn questions(self) -> Vec<Command> {
        match self {
            Self::Commands => vec![
                Command::new("EVAL", 16).arg("return 1").number(0),
                // Not `COMMAND INFO`: fred cannot read a reply with a set of maps.
                Command::new("COMMAND", 32).arg("LIST").arg("FILTERBY").arg("PATTERN").arg("del*"),
            ],
            Self::Watches => vec![Command::new("CLIENT", 16).arg("TRACKING").arg("ON")],
        }
    }

    /// Reads what came back for [`questions`](Self::questions).
    fn read(self, replies: Vec<Result<Reply, Failure>>) -> Result<Features, BackendError> {
        let mut replies = replies.into_iter();
        let mut next = || replies.next().unwrap_or_else(|| Err(Failure::lost("no reply")));
        if self == Self::Watches {
            return match read(next()) {
                Ok(_) => Ok(Features::default()),
                Err(error) => Err(because("this node cannot watch keys", &error)),
            };
        }
        let scripts = scripts(next()?)?;
        let compare_and_delete = match next()? {
            Reply::List(names) => compare_and_delete(&names),
            // The user may not ask.
            _ => None,
        };
        match scripts {
            Err(error) if compare_and_delete.is_none() => Err(error),
            scripts => Ok(Features { compare_and_delete, scripts }),
        }
    }
}

/// Whether scripts may run. A reply that proves neither, such as `LOADING`, counts as yes.
fn scripts(reply: Reply) -> Result<Result<(), BackendError>, BackendError> {
    let error = match read(Ok(reply)) {
        Ok(Reply::Int(1)) => return Ok(Ok(())),
        Ok(reply) => return Err(reply.unexpected("EVAL")),
        Err(error) => error,
    };
    match error.kind() {
        BackendErrorKind::Auth => Err(error),
        BackendErrorKind::Permission | BackendErrorKind::Script => {
            Ok(Err(because("this node runs no scripts", &error)))
        }
        _ => Ok(Ok(())),
    }
}

/// Reads the names of the commands that there are.
fn compare_and_delete(names: &[Reply]) -> Option<CompareAndDelete> {
    let has = |name: &[u8]| {
        let is_it =
            |found: &Reply| matches!(found, Reply::Text(text) if text.eq_ignore_ascii_case(name));
        names.iter().any(is_it)
    };
    if has(b"DELIFEQ") {
        Some(CompareAndDelete::DelIfEq)
    } else if has(b"DELEX") {
        Some(CompareAndDelete::DelEx)
    } else {
        None
    }
}

/// Whether the user may not run the command, or the server does not know it. An error about the key is
/// neither.
fn is_forbidden(error: &BackendError) -> bool {
    match error.kind() {
        BackendErrorKind::Script => true,
        BackendErrorKind::Permission => !error.to_string().contains(" key"),
        _ => false,
    }
}

/// A key that does not exist, and its value.
const PROBE: &[u8] = b"quorate:probe";

fn because(what: &str, error: &BackendError) -> BackendError {
    BackendError::new(error.kind(), format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Result<Reply, Failure> {
        Ok(Reply::Error(text.into()))
    }

    fn names(others: &[&str]) -> Result<Reply, Failure> {
        let name = |name: &str| Reply::Text(name.as_bytes().to_vec());
        Ok(Reply::List([&["del"], others].concat().into_iter().map(name).collect()))
    }

    const NOPERM: &str = "NOPERM this user has no permissions to run the 'eval' command";

    #[test]
    fn a_server_is_asked_for_its_compare_and_delete() {
        for (reply, found) in [
            (names(&["delifeq"]), Some(CompareAndDelete::DelIfEq)),
            (names(&["delex"]), Some(CompareAndDelete::DelEx)),
            (names(&[]), None),
            (Ok(Reply::List(vec![Reply::Nil])), None),
            (error("ERR unknown subcommand 'LIST'"), None),
            (error("NOPERM this user may not run 'command|list'"), None),
        ] {
            let features = Purpose::Commands.read(vec![Ok(Reply::Int(1)), reply]).unwrap();
            assert_eq!(features.compare_and_delete, found);
            assert!(features.scripts.is_ok());
        }
    }

    #[test]
    fn scripts_are_needed_only_where_the_server_has_no_compare_and_delete() {
        let features = Purpose::Commands.read(vec![error(NOPERM), names(&["delifeq"])]).unwrap();
        assert_eq!(features.scripts.unwrap_err().kind(), BackendErrorKind::Permission);
        let refused = Purpose::Commands.read(vec![error(NOPERM), names(&[])]).unwrap_err();
        assert_eq!(refused.kind(), BackendErrorKind::Permission);
        assert_eq!(refused.to_string(), format!("this node runs no scripts: {NOPERM}"));
        let renamed = vec![error("ERR unknown command 'EVAL'"), names(&[])];
        assert_eq!(Purpose::Commands.read(renamed).unwrap_err().kind(), BackendErrorKind::Script);
        // The node will report it itself when it is asked for a lock.
        let loading = vec![error("LOADING the dataset"), names(&[])];
        assert!(Purpose::Commands.read(loading).unwrap().scripts.is_ok());
    }

    #[test]
    fn a_connection_that_is_not_logged_in_is_none() {
        let replies = vec![error("NOAUTH Authentication required."), error("NOAUTH")];
        assert_eq!(Purpose::Commands.read(replies).unwrap_err().kind(), BackendErrorKind::Auth);
        let lost = vec![Ok(Reply::Int(1)), Err(Failure::lost("reset"))];
        assert_eq!(Purpose::Commands.read(lost).unwrap_err().kind(), BackendErrorKind::Connection);
        let garbage = vec![Ok(Reply::Nil), names(&[])];
        assert_eq!(Purpose::Commands.read(garbage).unwrap_err().kind(), BackendErrorKind::Protocol);
    }

    #[test]
    fn a_connection_that_cannot_track_keys_is_none_for_watches() {
        assert!(Purpose::Watches.read(vec![Ok(Reply::Text(b"OK".to_vec()))]).is_ok());
        let refused = Purpose::Watches.read(vec![error(NOPERM)]).unwrap_err();
        assert_eq!(refused.kind(), BackendErrorKind::Permission);
    }
}

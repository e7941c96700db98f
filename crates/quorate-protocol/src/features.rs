//! What is known of the server at the other end of a connection.

use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use quorate_core::backend::{Call, ListTask, Membership, Operation};
use quorate_core::{BackendError, BackendErrorKind};

use crate::command::Command;
use crate::error_reply::error_of_reply;
use crate::group::NodeGroup;
use crate::script::By;
use crate::value::Value;

/// What a server has and allows, as the handshake of a connection found out.
///
/// What the user may not run, or the server does not have, is not asked again on this connection.
#[derive(Clone, Debug)]
pub struct Features {
    pub(crate) compare_and_delete: Option<CompareAndDelete>,
    /// How scripts are run, or which permission is missing.
    pub(crate) scripts: Result<By, BackendError>,
    /// The server id; `None` if the server has none, or does not say.
    pub(crate) server: Option<Arc<str>>,
    /// Whether a `SET` that sets nothing replies with the value that is there: the handshake has
    /// seen it.
    pub(crate) names_holder: bool,
    /// Why the node has no vote: it is a replica that accepts writes (one that does not says so at
    /// each write), or cannot be of its group.
    pub(crate) no_vote: Option<BackendError>,
    /// What the node says of its group.
    pub(crate) membership: Option<Arc<Membership>>,
    /// Whether the server has loaded the scripts that run while its memory is full.
    pub(crate) runs_when_full: bool,
    /// Whether the connection has client tracking, so that the server pushes changes of keys that
    /// were read.
    pub(crate) tracks: bool,
    /// Whether it does so for a command behind `CLIENT CACHING YES` alone.
    pub(crate) opts_in: bool,
    /// Whether a call may ask whether others wait: the user has not been refused it.
    pub(crate) may_ask: bool,
    /// The server has lost a script. All are loaded again in front of the next commands.
    pub(crate) must_load: bool,
    /// When the server writes its log to the disk, by its last description.
    pub(crate) fsync: Option<Arc<str>>,
    lacks: Vec<(Discriminant<Operation>, BackendError)>,
    /// The operations that share no script here, since that has failed.
    pub(crate) alone: Vec<Discriminant<Operation>>,
    /// Why a release or an extension was refused that the handshake had proven.
    denied: Option<BackendError>,
}

impl Features {
    pub(crate) const fn new(scripts: Result<By, BackendError>) -> Self {
        Self {
            compare_and_delete: None,
            scripts,
            server: None,
            no_vote: None,
            membership: None,
            names_holder: false,
            runs_when_full: false,
            tracks: false,
            opts_in: false,
            may_ask: true,
            must_load: false,
            fsync: None,
            lacks: Vec::new(),
            alone: Vec::new(),
            denied: None,
        }
    }

    /// Whether the user may not release or extend any more. The connection is of no use then: the
    /// next handshake says what the user may do.
    #[must_use]
    pub const fn is_denied(&self) -> bool {
        self.denied.is_some()
    }

    /// Notes what the node `name` has answered to the commands of its group.
    pub(crate) fn note_group(
        &mut self,
        group: &NodeGroup,
        name: &str,
        answers: Vec<Result<Value, BackendError>>,
        task: &ListTask,
    ) {
        match group.said(name, answers, task) {
            Ok(says) => self.membership = Some(says),
            Err(error) => self.no_vote = Some(error.particular()),
        }
    }

    /// Reports to the sender of a call what the node has said of its group.
    pub(crate) fn report_group(&self, call: &Call) {
        if let Some(says) = &self.membership {
            call.note_membership(says);
        }
    }

    /// Why this server cannot carry an operation out, if that is known.
    pub(crate) fn lack_of(&self, operation: &Operation) -> Option<&BackendError> {
        if let (
            Operation::Acquire(..) | Operation::Extend(..) | Operation::Raise(..),
            Some(error),
        ) = (operation, &self.no_vote)
        {
            return Some(error);
        }
        if let (Operation::Acquire(..), Some(denied)) = (operation, &self.denied) {
            return Some(denied);
        }
        let kind = discriminant(operation);
        self.lacks.iter().find(|(lacking, _)| *lacking == kind).map(|(_, error)| error)
    }

    /// Remembers a lack, but for operations of a lease: a permission that is granted again has to
    /// be noticed while a lock is held. Without that permission nothing is acquired.
    pub(crate) fn note_lack(&mut self, operation: &Operation, error: &BackendError) {
        let frees = matches!(operation, Operation::Release(..) | Operation::Extend(..));
        if frees && error.is_lack() {
            self.denied = Some(error.clone());
        }
        let is_optional = matches!(
            operation,
            Operation::Refresh { .. }
                | Operation::Watch { .. }
                | Operation::Inspect { .. }
                | Operation::Look(_)
                | Operation::ServerId
        );
        if is_optional && error.is_lack() && self.lack_of(operation).is_none() {
            self.lacks.push((discriminant(operation), error.clone()));
        }
    }

    /// A script of several such operations has failed. Unless that is about one key, or passes,
    /// they share none any more.
    pub(crate) fn note_failed_script(&mut self, operation: &Operation, reply: &Value) {
        let Value::Error(text) = reply else { return };
        let error = error_of_reply(text);
        if text.starts_with("NOSCRIPT") {
            self.must_load = true;
        } else if error.is_lack()
            || matches!(error.kind(), BackendErrorKind::CrossSlot | BackendErrorKind::Other)
        {
            self.alone.push(discriminant(operation));
        }
    }
}

/// A command that deletes a key if it has a given value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompareAndDelete {
    /// `DELIFEQ key value` of Valkey 9.
    DelIfEq,
    /// `DELEX key IFEQ value` of Redis 8.4.
    DelEx,
}

impl CompareAndDelete {
    /// Deletes `key` if it has this value.
    pub(crate) fn command<C: Command>(self, key: &[u8], value: &[u8]) -> C {
        let command = match self {
            Self::DelIfEq => C::new("DELIFEQ").arg(key),
            Self::DelEx => C::new("DELEX").arg(key).arg("IFEQ"),
        };
        command.arg(value)
    }
}

/// A section of `INFO`.
pub(crate) fn info<C: Command>(section: &str) -> C {
    C::new("INFO").arg(section)
}

/// The `run_id` in the reply to `INFO server`; `None` if there is none (Q6).
pub(crate) fn server_id(reply: &Value) -> Result<Option<Arc<str>>, BackendError> {
    let Value::Text(info) = reply else { return Err(reply.unexpected("INFO")) };
    Ok(field(info, "run_id").map(Arc::from))
}

/// Why a server has no vote, by the reply to `INFO replication`: it is a replica, and accepts
/// writes (`replica-read-only no`), which the next sync with its primary undoes.
pub(crate) fn writable_replica(reply: &Value) -> Option<BackendError> {
    let Value::Text(info) = reply else { return None };
    let accepts_writes = field(info, "slave_read_only") != Some("1");
    (field(info, "role") == Some("slave") && accepts_writes).then(|| {
        let text = "READONLY it is a replica with replica-read-only no, which has no vote";
        BackendError::new(BackendErrorKind::ReadOnly, text)
    })
}

/// Whether the reply to `INFO server` is that of a server with `SET … NX … GET`: Redis 7 and
/// Valkey.
pub(crate) fn has_set_nx_get(reply: &Value) -> bool {
    let Value::Text(info) = reply else { return false };
    let version = field(info, "redis_version").and_then(|version| version.split('.').next());
    version.and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major >= 7)
}

/// Whether the reply to `INFO server` names no other product than Redis and Valkey, as that of many
/// a compatible server does.
pub(crate) fn is_redis_or_valkey(reply: &Value) -> bool {
    let Value::Text(info) = reply else { return false };
    let lines = info.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter_map(|line| line.split_once(':')).all(|(name, value)| match name {
        "server_name" => ["redis", "valkey"].contains(&value.trim()),
        "redis_version" | "valkey_version" | "gcc_version" => true,
        name => !name.ends_with("_version"),
    })
}

/// A field in the reply to `INFO`.
pub(crate) fn field<'a>(info: &'a [u8], name: &str) -> Option<&'a str> {
    let lines = info.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    let value = fields.find_map(|(found, value)| (found == name).then_some(value.trim()));
    value.filter(|value| !value.is_empty())
}

//! A group of clients that must have the same nodes: how a node keeps the list of them (N1 to N5).
//!
//! Each node keeps an id of its data in `quorate:node:id`, which is random, and in
//! `quorate:group:NAME` the list of the ids of all nodes of the group. The first pipeline of a
//! connection reads both. `quorate-core` compares the nodes with each other, and its calls say when
//! a list is to be read again or to be written.

use std::sync::Arc;

use quorate_core::backend::{ListTask, Listed, Membership};
use quorate_core::runtime::os_random;
use quorate_core::telemetry::node_list_changed;
use quorate_core::{BackendError, BackendErrorKind};

use crate::command::Command;
use crate::error_reply::because;
use crate::script::{By, Script, script};
use crate::value::{Value, no_reply, read};

/// A group of clients that must have the same nodes.
#[derive(Clone, Debug)]
pub struct NodeGroup {
    name: Arc<str>,
    /// The nodes of this client become those of the group, whatever they were.
    is_new_list: bool,
}

/// The answers to the commands of a group.
type Answers = Vec<Result<Value, BackendError>>;

impl NodeGroup {
    /// The group of this name. With `is_new_list`, its nodes are those of this client from now on.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, is_new_list: bool) -> Self {
        Self { name: name.into(), is_new_list }
    }

    fn key(&self) -> String {
        format!("quorate:group:{}", self.name)
    }

    /// The commands that read the id of the data, which is set if there is none, and the list.
    pub(crate) fn read<C: Command>(&self) -> Vec<C> {
        let mut random = [0; 16];
        // Without random bytes no lock has a token either.
        let id = os_random(&mut random).map(|()| u128::from_le_bytes(random));
        let set = id.map(|id| C::new("SET").arg(ID).arg(format!("{id:032x}")).arg("NX"));
        let get = |key: &str| C::new("GET").arg(key);
        vec![set.unwrap_or_else(|_| get(ID)), get(ID), get(&self.key())]
    }

    /// The commands of a task: none; or those that read; or in front of them one that has the node
    /// keep a list, if it stores what it has said still.
    ///
    /// `compares`: the server has commands that compare and delete, and that compare and set.
    pub(crate) fn commands<C: Command>(&self, task: &ListTask, compares: bool) -> Vec<C> {
        match task {
            ListTask::Read => self.read(),
            ListTask::Keep { list, gone, before } => {
                let text = text_of(list, gone);
                let keep = std::iter::once(self.keep(&text, before, compares));
                keep.chain(self.read()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Replies nil where something else is stored by now.
    fn keep<C: Command>(&self, text: &str, before: &Membership, compares: bool) -> C {
        let set = || C::new("SET").arg(self.key()).arg(text);
        match &before.stored {
            None => set().arg("NX"),
            Some(stored) if compares => set().arg("IFEQ").arg(stored),
            Some(stored) => KEEP.run::<C>(By::Text, 1).arg(self.key()).arg(stored).arg(text),
        }
    }

    /// What the node `name` says of the group, by the answers to its commands.
    ///
    /// # Errors
    ///
    /// The node cannot be of a group: it forbids that, or what it keeps is no list.
    pub(crate) fn said(
        &self,
        name: &str,
        answers: Answers,
        task: &ListTask,
    ) -> Result<Arc<Membership>, BackendError> {
        let mut answers = answers.into_iter().map(read);
        let mut next = || answers.next().unwrap_or_else(no_reply);
        let kept = matches!(task, ListTask::Keep { .. }).then(&mut next);
        let set = next().map_err(|error| because("this node cannot be of a group", &error));
        let Value::Text(id) = of_ours(ID, next())? else {
            return Err(set.map_or_else(|error| error, |reply| reply.unexpected("SET")));
        };
        let id = String::from_utf8_lossy(&id);
        if id.is_empty() || id.starts_with('-') || id.contains(char::is_whitespace) {
            return Err(foreign("id of a node", ID, ""));
        }
        let stored = match of_ours(&self.key(), next())? {
            Value::Text(text) => Some(text.into()),
            _ => None,
        };
        let lists = stored.as_deref().map_or_else(|| Some(Default::default()), parse);
        let lists = lists.or_else(|| self.is_new_list.then(Default::default));
        let or = ", or accept the list of this client";
        let (list, gone) = lists.ok_or_else(|| foreign("list of nodes", &self.key(), or))?;
        if let (ListTask::Keep { list, before, .. }, Some(Ok(kept))) = (task, kept)
            && before.stored.is_some()
            && kept != Value::Nil
        {
            node_list_changed(&self.name, name, &before.list, list);
        }
        Ok(Arc::new(Membership {
            group: Arc::clone(&self.name),
            id: id.into(),
            list,
            gone,
            stored,
            is_new_list: self.is_new_list,
        }))
    }
}

/// The reply to a GET of a key of ours. Another program may have stored something there.
fn of_ours(key: &str, reply: Result<Value, BackendError>) -> Result<Value, BackendError> {
    reply.map_err(|error| match error.kind() {
        BackendErrorKind::WrongType => foreign("text", key, ""),
        _ => error,
    })
}

/// The error of a key of ours whose value is not ours.
fn foreign(what: &str, key: &str, or: &str) -> BackendError {
    let text = format!("no {what} at {key}: delete the key{or}");
    BackendError::new(BackendErrorKind::Stranger, text)
}

/// A line for each node of a list: its id and its name. In front of the id of one that it has no
/// more stands `-`.
fn text_of(list: &[Listed], gone: &[Listed]) -> String {
    let lines = list.iter().map(|node| ("", node)).chain(gone.iter().map(|node| ("-", node)));
    lines.map(|(sign, node)| format!("{sign}{} {}\n", node.id, node.name)).collect()
}

/// The nodes of the list that a text is, and those that it has no more; `None` if it is none.
fn parse(text: &[u8]) -> Option<(Vec<Listed>, Vec<Listed>)> {
    let (mut list, mut gone) = (Vec::new(), Vec::new());
    for line in str::from_utf8(text).ok()?.lines() {
        let (id, name) = line.split_once(' ')?;
        let (nodes, id) = id.strip_prefix('-').map_or((&mut list, id), |id| (&mut gone, id));
        nodes.push(Listed { id: id.into(), name: name.into() });
    }
    (!list.is_empty()).then_some((list, gone))
}

/// Sets a key to `ARGV[2]` if it holds `ARGV[1]`; nil if it does not.
static KEEP: Script = script!("keep_list");

/// The key of the id of a node's data.
const ID: &str = "quorate:node:id";

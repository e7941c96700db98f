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
        let set = id.map(|id| C::new("SET", 64).arg(ID).arg(format!("{id:032x}")).arg("NX"));
        let get = |key: &str| C::new("GET", 64).arg(key);
        vec![set.unwrap_or_else(|_| get(ID)), get(ID), get(&self.key())]
    }

    /// The commands of a task: none; or those that read; or in front of them two that have the node
    /// keep a list, where it had none only if it still has none.
    pub(crate) fn commands<C: Command>(
        &self,
        task: &ListTask,
        says: Option<&Membership>,
    ) -> Vec<C> {
        let ListTask::Keep(list) = task else {
            let reads = matches!(task, ListTask::Read);
            return if reads { self.read() } else { Vec::new() };
        };
        let text: String = list.iter().map(|node| format!("{} {}\n", node.id, node.name)).collect();
        let set = C::new("SET", 64 + text.len()).arg(self.key()).arg(text);
        let has_none = says.is_none_or(|says| says.list.is_empty()) && !self.is_new_list;
        let set = if has_none { set.arg("NX") } else { set };
        let mut commands = vec![C::new("GET", 64).arg(self.key()), set];
        commands.extend(self.read());
        commands
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
        let before = match task {
            ListTask::Keep(_) => Some((next(), next())),
            _ => None,
        };
        let set = next().map_err(|error| because("this node cannot be of a group", &error));
        let Value::Text(id) = next()? else {
            return Err(set.map_or_else(|error| error, |reply| reply.unexpected("SET")));
        };
        let list = match next()? {
            Value::Text(text) => parse(&text),
            _ => Some(Vec::new()),
        };
        let list = list.or_else(|| self.is_new_list.then(Vec::new)).ok_or_else(|| {
            let text = format!(
                "no list of nodes at {}: delete the key, or accept the list of this client",
                self.key()
            );
            BackendError::new(BackendErrorKind::Stranger, text)
        })?;
        if let (ListTask::Keep(new), Some((Ok(Value::Text(before)), Ok(set)))) = (task, before)
            && set != Value::Nil
        {
            let before = parse(&before).unwrap_or_default();
            let names = |list: &[Listed]| {
                let mut names: Vec<&str> = list.iter().map(|node| &*node.name).collect();
                names.sort_unstable();
                names.join(", ")
            };
            // Another client of the same nodes may have been first.
            if !before.iter().map(|node| &node.id).eq(new.iter().map(|node| &node.id)) {
                node_list_changed(&self.name, name, &names(&before), &names(new));
            }
        }
        Ok(Arc::new(Membership {
            group: Arc::clone(&self.name),
            id: String::from_utf8_lossy(&id).into(),
            list,
            is_new_list: self.is_new_list,
        }))
    }
}

/// The list that a node keeps; `None` if the text is none. A text that counted as no list would be
/// kept by `NX` for ever.
fn parse(text: &[u8]) -> Option<Vec<Listed>> {
    let line = |line: &str| {
        let (id, name) = line.split_once(' ')?;
        Some(Listed { id: id.into(), name: name.into() })
    };
    let list = str::from_utf8(text).ok()?.lines().map(line).collect::<Option<Vec<Listed>>>();
    list.filter(|list| !list.is_empty())
}

/// The key of the id of a node's data.
const ID: &str = "quorate:node:id";

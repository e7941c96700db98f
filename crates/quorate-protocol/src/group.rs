//! Clients that must have the same nodes: a group, and how a client with other ones is noticed (N1 to N5).
//!
//! Two locks exclude each other only if their majorities have a node in common. So each node keeps an id of its data in
//! `quorate:node:id`, which is random, and in `quorate:group:NAME` the ids of all nodes of the group. Both are compared at
//! each new connection: a lock costs no command more.
//!
//! A node that the list of another node does not name is a *stranger*: it has no vote. A list may grow or shrink by one
//! node at a time, after which any two majorities still meet. Lists that never shared a node in this client, and another list
//! during a step, are not noticed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quorate_core::runtime::os_random;
use quorate_core::telemetry::node_list_changed;
use quorate_core::{BackendError, BackendErrorKind};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::command::Command;
use crate::connection::Connection;
use crate::error_reply::because;
use crate::value::{Value, no_reply, read};

/// The nodes of one client in a group of clients that must have the same ones.
///
/// Clones are the same nodes.
#[derive(Clone)]
pub struct NodeGroup(Arc<Nodes>);

struct Nodes {
    name: String,
    /// The nodes of this client become those of the group, whatever they were.
    is_new_list: bool,
    members: Mutex<Vec<Seen>>,
    change: Notify,
}

/// What is known of a node.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: String,
    /// The id of its data, once it is known.
    id: Option<String>,
    /// The list that it keeps. Empty: none.
    list: List,
    /// Its id is known, or it could not be reached.
    is_settled: bool,
    /// It keeps the list, or will not.
    has_joined: bool,
    /// How often its connections were to be admitted again.
    age: u32,
}

/// Ids of nodes, each with the name that a client has for it, in the order of the ids.
type List = Vec<(String, String)>;

impl NodeGroup {
    /// The group of this name. With `is_new_list`, its nodes are those of this client from now on.
    #[must_use]
    pub fn new(name: impl Into<String>, is_new_list: bool) -> Self {
        let (members, change) = Default::default();
        Self(Arc::new(Nodes { name: name.into(), is_new_list, members, change }))
    }

    /// One of the nodes, by its name. A connection to it waits until each node was asked, for at most half of its `limit`.
    #[must_use]
    pub fn member(&self, name: &str, limit: Duration) -> Member {
        let mut members = self.lock();
        let known = members.iter().position(|member| member.name == name);
        let at = known.unwrap_or_else(|| {
            members.push(Seen { name: name.to_owned(), ..Seen::default() });
            members.len() - 1
        });
        drop(members);
        Member { group: self.clone(), at, patience: limit / 2 }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.0.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for NodeGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeGroup").field(&self.0.name).finish()
    }
}

/// A node of a [`NodeGroup`].
#[derive(Clone, Debug)]
pub struct Member {
    group: NodeGroup,
    at: usize,
    patience: Duration,
}

/// That a connection leads to a node of the group.
#[derive(Clone, Debug)]
pub struct Admission {
    member: Member,
    age: u32,
}

impl Admission {
    /// Whether the lists have changed since, so that the connection is of no use.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.member.group.lock()[self.member.at].age != self.age
    }
}

impl Member {
    /// The connection that `connecting` makes, if it leads to a node of the group.
    ///
    /// # Errors
    ///
    /// Those of `connecting`, and [`BackendErrorKind::Stranger`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the one in it.
    pub async fn admit<C: Connection>(
        &self,
        connecting: impl Future<Output = Result<C, BackendError>>,
    ) -> Result<(C, Admission), BackendError> {
        let joining = Joining(self);
        let connection = connecting.await?;
        let end = Instant::now() + self.patience;
        loop {
            let (id, list) = self.ask(&connection).await?;
            self.note(id, list);
            // A list that is not complete is compared as far as it is known (N4).
            let _ = timeout_at(end, self.all(|member| member.is_settled)).await;
            let Some(list) = self.verdict()?.0 else { break };
            if self.keep(&connection, list).await? {
                break;
            }
        }
        drop(joining);
        // Of clients that begin at once, one is the first at each node, and the others see its list.
        let _ = timeout_at(end, self.all(|member| member.has_joined)).await;
        let (_, age) = self.verdict()?;
        Ok((connection, Admission { member: self.clone(), age }))
    }

    /// Has the node keep the list. False if it had none, and another client was first.
    async fn keep<C: Connection>(&self, connection: &C, list: List) -> Result<bool, BackendError> {
        let text = list.iter().map(|(id, name)| format!("{id} {name}\n")).collect::<String>();
        let command = C::Command::new("SET", 64).arg(self.key()).arg(text);
        let group = &self.group.0;
        // A new list may take the place of a text that is none.
        let is_first = self.group.lock()[self.at].list.is_empty() && !group.is_new_list;
        let reply = connection.ask(if is_first { command.arg("NX") } else { command }).await?;
        if reply == Value::Nil {
            return Ok(false);
        }
        let (name, before) = {
            let own = &mut self.group.lock()[self.at];
            (own.name.clone(), std::mem::replace(&mut own.list, list.clone()))
        };
        // Another connection of this client may have had the node keep it.
        if !before.is_empty() && !is_same(&before, &list) {
            node_list_changed(&group.name, &name, &names(&before), &names(&list));
        }
        Ok(true)
    }

    fn key(&self) -> String {
        format!("quorate:group:{}", self.group.0.name)
    }

    /// Asks for the id of the data, which is set if there is none, and for the list.
    async fn ask<C: Connection>(&self, connection: &C) -> Result<(String, List), BackendError> {
        let mut random = [0; 16];
        let unable = |error| BackendError::new(BackendErrorKind::Other, format!("{error}"));
        os_random(&mut random).map_err(unable)?;
        let id = format!("{:032x}", u128::from_le_bytes(random));
        let get = |key: &str| C::Command::new("GET", 64).arg(key);
        let set = C::Command::new("SET", 64).arg(ID).arg(id).arg("NX");
        let replies = connection.send(vec![set, get(ID), get(&self.key())]).await;
        let mut replies = replies.into_iter().map(read);
        let mut next = || replies.next().unwrap_or_else(no_reply);
        let set = next().map_err(|error| because("this node cannot be of a group", &error));
        let Value::Text(id) = next()? else {
            return Err(set.map_or_else(|error| error, |reply| reply.unexpected("SET")));
        };
        let list = match next()? {
            Value::Text(text) => parse(&text),
            _ => Some(List::new()),
        };
        let list = list.or_else(|| self.group.0.is_new_list.then(List::new)).ok_or_else(|| {
            let text = format!(
                "no list of nodes at {}: delete the key, or accept the list of this client",
                self.key()
            );
            BackendError::new(BackendErrorKind::Stranger, text)
        })?;
        Ok((String::from_utf8_lossy(&id).into_owned(), list))
    }

    fn note(&self, id: String, list: List) {
        let mut members = self.group.lock();
        let was = strangers(&members);
        let own = &mut members[self.at];
        let is_news = own.id.as_ref() != Some(&id);
        (own.id, own.list, own.is_settled) = (Some(id), list, true);
        let now = strangers(&members);
        let is_complete = is_news && members.iter().all(|member| member.id.is_some());
        for (at, member) in members.iter_mut().enumerate().filter(|(at, _)| *at != self.at) {
            // Strangers leave, and a list that is complete has to be kept by all.
            member.age += u32::from(was[at] != now[at] || is_complete);
        }
        drop(members);
        self.group.0.change.notify_waiters();
    }

    async fn all(&self, is_so: impl Fn(&Seen) -> bool) {
        loop {
            let changed = self.group.0.change.notified();
            if self.group.lock().iter().all(&is_so) {
                return;
            }
            changed.await;
        }
    }

    /// The list that the node has to keep from now on, if it keeps another one, and the age of the connection.
    fn verdict(&self) -> Result<(Option<List>, u32), BackendError> {
        let (members, group) = (self.group.lock(), &self.group.0);
        let own = &members[self.at];
        let are_strangers = strangers(&members);
        if are_strangers[self.at] && !group.is_new_list {
            return Err(self.stranger(&members));
        }
        let list = members.iter().map(|member| Some((member.id.clone()?, member.name.clone())));
        let mut list: Option<List> = list.collect();
        list.iter_mut().for_each(|list| list.sort());
        let is_agreed = group.is_new_list || !are_strangers.contains(&true);
        Ok((list.filter(|list| is_agreed && !is_same(list, &own.list)), own.age))
    }

    /// The error of a stranger, with both lists.
    fn stranger(&self, members: &[Seen]) -> BackendError {
        let (own, ours) = (&members[self.at], members.iter().map(|member| &*member.name));
        let mut lists = members.iter().map(|member| &member.list);
        let list = lists.find(|list| strangers_to(list, members)[self.at]);
        let list = list.map(Vec::as_slice).unwrap_or_default();
        let has_name = list.iter().any(|(_, name)| *name == own.name);
        let lost = if has_name { ": it was replaced, or has lost its data" } else { "" };
        let text = format!(
            "not a node of the group {}{lost}; the group has {}, and this client {}",
            self.group.0.name,
            names(list),
            ours.collect::<Vec<_>>().join(", "),
        );
        BackendError::new(BackendErrorKind::Stranger, text)
    }
}

/// The node is asked. Later it keeps the list or will not, and no other connection waits for it any longer.
struct Joining<'a>(&'a Member);

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        let mut members = self.0.group.lock();
        let own = &mut members[self.0.at];
        (own.is_settled, own.has_joined) = (true, true);
        drop(members);
        self.0.group.0.change.notify_waiters();
    }
}

/// Which nodes have no vote: the strangers to any list.
fn strangers(members: &[Seen]) -> Vec<bool> {
    members.iter().fold(vec![false; members.len()], |sum, member| {
        let more = strangers_to(&member.list, members);
        sum.iter().zip(more).map(|(one, other)| *one || other).collect()
    })
}

/// Which nodes have no vote by the list of one of them. Nodes whose ids are not known have none yet.
///
/// N1: none by an equal list. N2: none if the nodes are those of the list and one more, or all of them but one. N3: else those
/// that are not on the list; and all, if there are two less than on the list.
fn strangers_to(list: &[(String, String)], members: &[Seen]) -> Vec<bool> {
    let is_new = |member: &Seen| {
        let is_listed = |id| list.iter().any(|(listed, _)| listed == id);
        !list.is_empty() && member.id.as_ref().is_some_and(|id| !is_listed(id))
    };
    let new: Vec<bool> = members.iter().map(is_new).collect();
    let grows_by_one = members.len() == list.len() + 1;
    match new.iter().filter(|is_new| **is_new).count() {
        _ if members.len() + 1 < list.len() => vec![true; members.len()],
        1 if grows_by_one => vec![false; members.len()],
        _ => new,
    }
}

/// The list that a node keeps; `None` if the text is none. A text that counted as no list would be kept by `NX` for ever.
fn parse(text: &[u8]) -> Option<List> {
    let line = |line: &str| line.split_once(' ').map(|(id, name)| (id.to_owned(), name.to_owned()));
    let list = str::from_utf8(text).ok()?.lines().map(line).collect::<Option<List>>();
    list.filter(|list| !list.is_empty())
}

fn is_same(one: &[(String, String)], other: &[(String, String)]) -> bool {
    one.iter().map(|(id, _)| id).eq(other.iter().map(|(id, _)| id))
}

fn names(list: &[(String, String)]) -> String {
    let mut names: Vec<&str> = list.iter().map(|(_, name)| &**name).collect();
    names.sort_unstable();
    names.join(", ")
}

/// The key of the id of a node's data.
const ID: &str = "quorate:node:id";

#[cfg(test)]
mod tests {
    use super::*;

    fn list(ids: u32) -> List {
        let ids = (0..6).filter(|id| ids & 1 << id != 0);
        ids.map(|id| (id.to_string(), format!("node {id}"))).collect()
    }

    /// A client with these nodes; the ids of `told` are known. The nodes of the group keep its list.
    fn client(ids: u32, told: u32, group: u32) -> Vec<Seen> {
        let nodes = (0..6).filter(|id| ids & 1 << id != 0);
        let seen = |id: u32| {
            let has_told = told & 1 << id != 0;
            Seen {
                name: format!("node {id}"),
                id: has_told.then(|| id.to_string()),
                list: if has_told && group & 1 << id != 0 { list(group) } else { List::new() },
                ..Seen::default()
            }
        };
        nodes.map(seen).collect()
    }

    fn voters(ids: u32, told: u32, group: u32) -> u32 {
        let members = client(ids, told, group);
        let strangers = strangers(&members);
        let told = members.iter().zip(strangers).filter(|(member, is)| member.id.is_some() && !is);
        told.filter_map(|(member, _)| member.id.as_ref()?.parse::<u32>().ok())
            .fold(0, |sum, id| sum | 1 << id)
    }

    fn majorities(of: u32, among: u32) -> impl Iterator<Item = u32> {
        let needed = of.count_ones() / 2 + 1;
        (0..64).filter(move |set| set & !among == 0 && set.count_ones() >= needed)
    }

    /// All lists of six nodes, all sets of known nodes; in each, a node that keeps the list is known.
    #[test]
    fn n3_a_majority_with_a_vote_meets_each_majority_of_the_group() {
        let mut compared = 0;
        for (group, own, told) in (1..64)
            .flat_map(|group| (1..64).map(move |own| (group, own)))
            .flat_map(|(group, own)| {
                (0..64_u32).filter(move |told| told & !own == 0).map(move |told| (group, own, told))
            })
        {
            if told & group == 0 {
                continue;
            }
            let voters = voters(own, told, group);
            for ours in majorities(own, voters) {
                compared += 1;
                for theirs in majorities(group, group) {
                    assert!(ours & theirs != 0, "{own:b} {told:b} {group:b}: {ours:b} {theirs:b}");
                }
            }
        }
        assert!(compared > 8_000, "{compared}");
    }

    /// Rule N1.
    #[test]
    fn n2_the_same_nodes_one_more_and_one_less_all_vote() {
        for (group, own) in [(0b111, 0b111), (0b111, 0b1111), (0b1111, 0b111), (0b11111, 0b1111)] {
            assert_eq!(voters(own, own, group), own, "{group:b} {own:b}");
        }
    }

    /// Rule N3.
    #[test]
    fn n5_a_node_that_is_not_on_the_list_has_no_vote_and_the_others_have() {
        assert_eq!(voters(0b11100, 0b11100, 0b00111), 0b00100, "one node in common");
        assert_eq!(voters(0b1011, 0b1011, 0b0111), 0b0011, "one node was replaced");
        assert_eq!(voters(0b00111, 0b00111, 0b11111), 0, "two less");
    }

    #[test]
    fn n4_what_is_known_is_compared() {
        assert_eq!(voters(0b1011, 0b1010, 0b0111), 0b0010);
        assert_eq!(voters(0b1111, 0b1011, 0b0111), 0b1011, "the third may be on the list");
        assert_eq!(voters(0b0111, 0b0011, 0b0111), 0b0011);
    }
}

//! Which nodes vote in a *group*: clients that must have the same nodes (N1 to N5).
//!
//! Each node keeps an id of its data and, for the group, the list of the ids of all its nodes. A
//! connection reads both once. The client compares what its nodes have said, whichever of them has
//! answered by now, so nothing waits for a node that hangs. A node that is not on the list of
//! another one is a *stranger* and has no vote, unless it is the one node by which the list grows;
//! nor has one whose id another node has, or may have. If a list has at least two nodes more than a
//! client, none of the client's nodes has a vote. Once each node has said its id and all have a
//! vote, any client writes its nodes as the list: so a client with one node more or less changes
//! it, and two need a person. By what is known of the others the same nodes
//! always are strangers: in whatever order they have answered.

use std::fmt::Write as _;
use std::sync::Arc;

/// A node on a list: the id of its data, and what the client that wrote the list calls it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "complete by definition: a line of a list")]
pub struct Listed {
    /// The id of its data.
    pub id: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

/// What a node says of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a backend fills in all of it")]
pub struct Membership {
    /// The name of the group.
    pub group: Arc<str>,
    /// The id of the node's data.
    pub id: Arc<str>,
    /// The nodes of the group, in the order of their ids. Empty: the node keeps no list.
    pub list: Vec<Listed>,
    /// The nodes of the list before it that are on this one no more.
    pub gone: Vec<Listed>,
    /// The text of the list, as the node stores it; `None` if nothing is there.
    pub stored: Option<Arc<[u8]>>,
    /// The nodes of this client become those of the group, whatever the lists say.
    pub is_new_list: bool,
}

/// A configured node, and what it has said on its present connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat<'a> {
    pub(crate) name: &'a str,
    pub(crate) says: Option<&'a Membership>,
}

/// Why a node has no vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stranger {
    /// Another node has the same id, or may have.
    pub(crate) is_twin: bool,
    pub(crate) text: String,
}

/// For each node why it has no vote. Without ids all vote.
pub(crate) fn strangers(seats: &[Seat<'_>]) -> Vec<Option<Stranger>> {
    (0..seats.len()).map(|at| twin(seats, at).or_else(|| unlisted(seats, at))).collect()
}

/// The list that all of these nodes have to keep, once each has said its id and none is a stranger.
pub(crate) fn list(seats: &[Seat<'_>]) -> Option<Arc<[Listed]>> {
    let listed = |seat: &Seat<'_>| {
        Some(Listed { id: Arc::clone(&seat.says?.id), name: Arc::from(seat.name) })
    };
    let mut list = seats.iter().map(listed).collect::<Option<Vec<_>>>()?;
    list.sort();
    strangers(seats).iter().all(Option::is_none).then(|| list.into())
}

/// Whether both lists have the same nodes, by whatever names.
pub(crate) fn is_same(one: &[Listed], other: &[Listed]) -> bool {
    one.iter().map(|node| &node.id).eq(other.iter().map(|node| &node.id))
}

/// A node whose id another node has as well, or may have: by a list the id is that of a node which
/// has not said its own. A copy of the data of a node brings its id along.
fn twin(seats: &[Seat<'_>], at: usize) -> Option<Stranger> {
    let id = &seats[at].says?.id;
    let others =
        || seats.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, seat)| seat);
    let same = others().find(|seat| seat.says.is_some_and(|says| says.id == *id));
    let is_named = |seat: &&Seat<'_>| {
        let lines = seats.iter().filter_map(|seat| seat.says).flat_map(|says| &says.list);
        { lines }.any(|line| line.id == *id && *line.name == *seat.name)
    };
    let text = match same {
        Some(seat) => format!("it has the id of {}: one has a copy of the other's data", seat.name),
        None => {
            let absent = others().filter(|seat| seat.says.is_none()).find(is_named)?;
            format!("its id is that of {}, which has not answered: it may be a copy", absent.name)
        }
    };
    Some(Stranger { is_twin: true, text })
}

/// A node that is not on a list, or all nodes if the list has two more than this client.
///
/// N1: all of an equal list vote. N2: so do those of a list and one more, and all but one of them.
/// N3: else those that are not on the list have no vote. N5: the one more is not the node that has
/// just left the list, without its data.
fn unlisted(seats: &[Seat<'_>], at: usize) -> Option<Stranger> {
    let own = seats[at].says.filter(|says| !says.is_new_list)?;
    let is_on = |list: &[Listed], id: &str| list.iter().any(|line| *line.id == *id);
    let is_named = |list: &[Listed]| list.iter().any(|line| *line.name == *seats[at].name);
    let excludes = |Membership { list, gone, .. }: &&Membership| {
        let known = || seats.iter().filter_map(|seat| seat.says);
        let new = known().filter(|says| !is_on(list, &says.id)).count();
        let grows_by_one =
            new == 1 && seats.len() == list.len() + 1 && (is_on(gone, &own.id) || !is_named(gone));
        let has_two_less = seats.len() + 1 < list.len();
        !list.is_empty() && (has_two_less || !is_on(list, &own.id) && !grows_by_one)
    };
    let Membership { list, gone, .. } = seats.iter().filter_map(|seat| seat.says).find(excludes)?;
    let mut text = match is_on(list, &own.id) {
        true => format!("this client has an old list of the group {}", own.group),
        false => format!("not a node of the group {}", own.group),
    };
    if !is_on(list, &own.id) && (is_named(list) || is_named(gone)) {
        text.push_str(": it was replaced, or has lost its data");
    }
    let ours: Vec<&str> = seats.iter().map(|seat| seat.name).collect();
    let _ = write!(text, "; the group has {}, and this client {}", names(list), ours.join(", "));
    Some(Stranger { is_twin: false, text })
}

/// The names of the nodes on a list.
pub(crate) fn names(list: &[Listed]) -> String {
    let mut names: Vec<&str> = list.iter().map(|node| &*node.name).collect();
    names.sort_unstable();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::{Duration, Instant};

    use super::super::attempt::{
        Action, AttemptMachine, CallId, Outcome, Released, RoundVote, Settings,
    };
    use super::super::lease::Ttl;
    use super::super::quorum::NodeCount;
    use super::*;

    /// Nodes as bits: six of them, whose ids are their places.
    type Nodes = u32;

    fn places(nodes: Nodes) -> Vec<u32> {
        (0..6).filter(|place| nodes & 1 << place != 0).collect()
    }

    fn of(list: Nodes) -> Vec<Listed> {
        let line = |place: u32| Listed {
            id: place.to_string().into(),
            name: format!("node {place}").into(),
        };
        places(list).into_iter().map(line).collect()
    }

    /// What node `place` says.
    fn says(place: u32, list: Nodes) -> Membership {
        let (group, id) = ("g".into(), place.to_string().into());
        Membership { group, id, list: of(list), gone: Vec::new(), stored: None, is_new_list: false }
    }

    /// Why none of these nodes of a client has a vote, or some. `told`: the nodes that have
    /// answered. Those of the group `group` keep its list.
    fn judge(own: Nodes, told: Nodes, group: Nodes) -> Vec<Option<Stranger>> {
        let said: Vec<_> = places(own)
            .into_iter()
            .map(|place| {
                let list = if group & 1 << place != 0 { group } else { 0 };
                let has_told = told & 1 << place != 0;
                (format!("node {place}"), has_told.then(|| says(place, list)))
            })
            .collect();
        let seats: Vec<_> =
            said.iter().map(|(name, says)| Seat { name, says: says.as_ref() }).collect();
        strangers(&seats)
    }

    fn voters(own: Nodes, told: Nodes, group: Nodes) -> Nodes {
        let judged = places(own).into_iter().zip(judge(own, told, group));
        told & judged
            .filter(|(_, stranger)| stranger.is_none())
            .fold(0, |sum, (place, _)| sum | 1 << place)
    }

    fn majorities(of: Nodes) -> impl Iterator<Item = Nodes> {
        let needed = of.count_ones() / 2 + 1;
        (0..64).filter(move |set: &Nodes| set & !of == 0 && set.count_ones() >= needed)
    }

    /// A client, an attempt of it, and what it may find out.
    struct Client {
        own: Nodes,
        group: Nodes,
        calls: HashMap<u32, CallId>,
        now: Instant,
        voters: HashMap<Nodes, Nodes>,
        wins: u32,
    }

    impl Client {
        /// The nodes that are left answer in each order: each grants.
        fn answer(&mut self, told: Nodes, attempt: &AttemptMachine<()>) {
            for place in places(self.own & !told) {
                let (mut attempt, told) = (attempt.clone(), told | 1 << place);
                let (own, group) = (self.own, self.group);
                let voters = *self.voters.entry(told).or_insert_with(|| voters(own, told, group));
                let is_stranger = |at: &u32| (told & !voters & 1 << at != 0).then_some(());
                let strangers = places(own).iter().map(is_stranger).collect();
                attempt.judge(strangers, false, self.now);
                attempt.handle_reply(self.calls[&place], Outcome::Granted(None), self.now);
                match attempt.results().first {
                    Some(Ok(())) => self.judge(told, &attempt),
                    Some(Err(_)) => {}
                    None => self.answer(told, &attempt),
                }
            }
        }

        /// Its majority meets each majority of the group, if one of those that have answered keeps
        /// the list of the group.
        fn judge(&mut self, told: Nodes, attempt: &AttemptMachine<()>) {
            self.wins += 1;
            let vote_of = |place: &u32| &attempt.votes()[self.calls[place].node.index()];
            let has_voted = |place: &u32| matches!(vote_of(place), RoundVote::For);
            let ours = places(told).into_iter().filter(has_voted).fold(0, |sum, at| sum | 1 << at);
            for theirs in majorities(self.group).filter(|_| told & self.group != 0) {
                assert!(ours & theirs != 0, "{:b} {:b}: {ours:b} {theirs:b}", self.own, self.group);
            }
        }
    }

    /// All lists of six nodes for a group and for a client, in all orders of the answers.
    #[test]
    fn n3_a_majority_in_whatever_order_it_answers_meets_each_majority_of_the_group() {
        let now = Instant::now();
        let ttl = Ttl::try_from(Duration::from_secs(10)).unwrap();
        let mut wins = 0;
        for (group, own) in (1..64).flat_map(|group| (1..64).map(move |own| (group, own))) {
            let count = NodeCount::new(places(own).len()).unwrap();
            let settings = Settings::new(count, ttl, Duration::from_millis(500));
            let mut attempt = AttemptMachine::new(settings, now);
            let mut calls = HashMap::new();
            while let Some((id, Action::Send(call, _))) = attempt.poll_send() {
                calls.insert(places(own)[id.index()], call);
            }
            let mut client = Client { own, group, calls, now, voters: HashMap::new(), wins: 0 };
            client.answer(0, &attempt);
            wins += client.wins;
        }
        assert!(wins > 20_000, "{wins}");
    }

    /// A held lock is released. Two nodes release it, of which one is a stranger, and one says that
    /// nothing was there.
    #[test]
    fn n3_a_stranger_has_no_vote_in_a_release_in_whatever_order_they_answer() {
        let now = Instant::now();
        let ttl = Ttl::try_from(Duration::from_secs(10)).unwrap();
        let count = NodeCount::new(3).unwrap();
        let calls = |attempt: &mut AttemptMachine<()>| {
            let mut calls = Vec::new();
            while let Some((_, Action::Send(call, _))) = attempt.poll_send() {
                calls.push(call);
            }
            calls
        };
        let settings = Settings::new(count, ttl, Duration::from_millis(500));
        let mut held = AttemptMachine::new(settings, now);
        for call in calls(&mut held) {
            held.handle_reply(call, Outcome::Granted(None), now);
        }
        held.release(now);
        let released = calls(&mut held);
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let mut attempt = held.clone();
            for (answers, at) in order.into_iter().enumerate() {
                if answers == 1 {
                    attempt.judge(vec![Some(()), None, None], false, now);
                }
                let outcome = if at == 2 { Outcome::Refused(()) } else { Outcome::Granted(None) };
                attempt.handle_reply(released[at], outcome, now);
            }
            assert_eq!(attempt.results().released, Some(Released::Unconfirmed), "{order:?}");
            assert!(attempt.is_quiescent());
        }
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

    /// A client has one node less than the others, and had the nodes keep that list. Then the node
    /// lost its data, or did not.
    #[test]
    fn n5_a_node_that_left_the_list_and_lost_its_data_has_no_vote() {
        let gone = of(0b001);
        let left = |place| Membership { gone: gone.clone(), ..says(place, 0b110) };
        let others = [left(1), left(2)];
        let judge = |name, first: &Membership| {
            let first = Seat { name, says: Some(first) };
            let others = ["node 1", "node 2"].into_iter().zip(&others);
            let others = others.map(|(name, says)| Seat { name, says: Some(says) });
            let judged = strangers(&[first].into_iter().chain(others).collect::<Vec<_>>());
            judged.into_iter().map(|stranger| stranger.is_some()).collect::<Vec<_>>()
        };
        assert_eq!(judge("node 0", &says(0, 0b111)), [false; 3]);
        assert_eq!(judge("node 0", &says(3, 0)), [true, false, false]);
        assert_eq!(judge("node 3", &says(3, 0)), [false; 3], "a new node");
    }

    #[test]
    fn n4_what_is_known_is_compared() {
        assert_eq!(voters(0b1011, 0b1010, 0b0111), 0b0010);
        assert_eq!(voters(0b1111, 0b1011, 0b0111), 0b1011, "the third may be on the list");
        assert_eq!(voters(0b0111, 0b0011, 0b0111), 0b0011);
    }

    #[test]
    fn n3_a_client_with_an_old_list_is_told_so() {
        let judged = judge(0b00111, 0b00111, 0b11111);
        for stranger in judged.into_iter().flatten() {
            let old = "this client has an old list of the group g; the group has node 0, node 1, \
                       node 2, node 3, node 4, and this client node 0, node 1, node 2";
            assert_eq!(stranger.text, old);
        }
    }

    /// A copy of the data of node 0 is at node 3. Node 0 has answered, or has not.
    #[test]
    fn n5_two_nodes_with_one_id_have_no_vote() {
        let (own, copy) = (says(1, 0b111), says(0, 0b111));
        const fn seat<'a>(name: &'a str, says: Option<&'a Membership>) -> Seat<'a> {
            Seat { name, says }
        }
        let judge = |first: Option<&Membership>| {
            let seats =
                [seat("node 0", first), seat("node 1", Some(&own)), seat("node 3", Some(&copy))];
            let is_twin = |stranger: Option<Stranger>| stranger.map(|stranger| stranger.is_twin);
            strangers(&seats).into_iter().map(is_twin).collect::<Vec<_>>()
        };
        assert_eq!(judge(Some(&says(0, 0b111))), [Some(true), None, Some(true)]);
        assert_eq!(judge(None), [None, None, Some(true)]);
        // The nodes have other addresses by now.
        assert_eq!(judge(Some(&says(3, 0b111))), [Some(false), None, None]);
        let seats = [seat("other", Some(&copy)), seat("names", Some(&own)), seat("here", None)];
        assert_eq!(strangers(&seats), [None, None, None]);
    }
}

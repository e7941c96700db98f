//! Who the nodes are: two configured nodes that are one server would void the quorum.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::algorithm::lease::saturating_add;
use crate::algorithm::quorum::{NodeCount, NodeId};
use crate::backend::{BackendError, BackendErrorKind, LockBackend};
use crate::restarts::Guarded;

/// The servers behind the nodes, as far as they told.
#[derive(Debug)]
pub(crate) struct Roster {
    /// Set once the node has told, or has shown that it never will.
    asked: Vec<OnceLock<()>>,
    servers: Mutex<Vec<Server>>,
    conflicts: AtomicBool,
}

/// Which servers have answered in the place of one node.
#[derive(Clone, Debug, Default)]
struct Server {
    now: Option<String>,
    /// When it was first heard that this one keeps the data.
    since: Option<Instant>,
    /// Those that were there before, the latest last, and when another was heard of in their place.
    past: Vec<(String, Instant)>,
    /// When one of those last came back.
    came_back: Option<Instant>,
    /// Until when it is not to be trusted, since that happened again and again.
    unstable_until: Option<Instant>,
}

/// How many runs of a node are remembered: a proxy has fewer servers behind it.
const PAST: usize = 16;

impl Roster {
    pub(crate) fn new(nodes: NodeCount) -> Self {
        Self {
            asked: nodes.ids().map(|_| OnceLock::new()).collect(),
            servers: Mutex::new(vec![Server::default(); nodes.get()]),
            conflicts: AtomicBool::new(false),
        }
    }

    /// Whether the node has told who it is, or never will.
    pub(crate) fn has_admitted(&self, node: NodeId) -> bool {
        self.asked[node.index()].get().is_some()
    }

    /// Asks a node who it is before its first vote.
    ///
    /// A node that cannot or may not tell votes all the same: where it cannot be known, the
    /// operator has to. One that cannot be reached does not vote, and is asked again.
    pub(crate) async fn admit(
        &self,
        node: NodeId,
        backend: &dyn LockBackend,
    ) -> Result<(), BackendError> {
        if self.has_admitted(node) {
            return Ok(());
        }
        if let Some(identity) = backend.identity() {
            match identity.server_id().await {
                Ok(Some(server)) => self.enter(node, server),
                Ok(None) => {}
                Err(error) if may_never_tell(error.kind()) => {}
                Err(error) => return Err(error),
            }
        }
        let _ = self.asked[node.index()].set(());
        Ok(())
    }

    /// A node that was asked at `asked` told who it is, and whose data it found.
    ///
    /// A run that has ended never comes back, and an operator who demotes a node and promotes it
    /// again does so once. So where runs come back, and again within `max_ttl`, more than one server
    /// answers at this address. For as long as a quarantine lasts from then on, that is an error.
    pub(crate) fn met(
        &self,
        node: NodeId,
        said: &Guarded,
        asked: Instant,
        now: Instant,
        max_ttl: Duration,
    ) -> Result<(), BackendError> {
        let mut servers = self.lock();
        let place = &mut servers[node.index()];
        if place.hear(said, asked, now) {
            let again = place.came_back.replace(now);
            let soon = again.is_some_and(|before| now < saturating_add(before, max_ttl));
            place.unstable_until = soon.then(|| saturating_add(now, max_ttl));
        }
        let unstable = place.unstable_until.filter(|until| now < *until);
        let unstable = unstable.filter(|_| !planted!("address_leads_to_one_server"));
        let unstable = unstable.map(|_| unstable_identity(place));
        self.compare(&servers);
        unstable.map_or(Ok(()), Err)
    }

    /// The first two nodes that are one server, as far as is known.
    pub(crate) fn conflict(&self) -> Option<(NodeId, NodeId)> {
        if !self.conflicts.load(Ordering::Acquire) {
            return None;
        }
        first_pair(&self.lock())
    }

    fn enter(&self, node: NodeId, server: String) {
        let mut servers = self.lock();
        servers[node.index()].now.get_or_insert(server);
        self.compare(&servers);
    }

    fn compare(&self, servers: &[Server]) {
        let conflicts = first_pair(servers).is_some() && !planted!("two_names_are_two_servers");
        self.conflicts.store(conflicts, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Server>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Takes note of an answer; tells whether a run of before has come back by it.
    fn hear(&mut self, said: &Guarded, asked: Instant, now: Instant) -> bool {
        let mut comes_back = false;
        match (&self.now, self.since) {
            (Some(last), Some(since)) if *last == said.server_id => {
                // It had the data, and in between another had. If it was asked before we heard of
                // it, that was before, too.
                let between = said.before.as_ref().filter(|_| since < asked);
                if let Some(between) = between.filter(|between| *between != last).cloned() {
                    self.turn(&between, since);
                    comes_back = true;
                    self.turn(&said.server_id, now);
                }
            }
            (Some(last), _) if *last != said.server_id => {
                let gone = self.past.iter().find(|(past, _)| *past == said.server_id);
                match gone.map(|(_, gone)| *gone) {
                    // A late answer tells nothing new.
                    Some(gone) if asked <= gone => {}
                    gone => {
                        comes_back = gone.is_some();
                        self.turn(&said.server_id, now);
                    }
                }
            }
            _ => {
                self.now = Some(said.server_id.clone());
                self.since = Some(now);
            }
        }
        comes_back
    }

    fn turn(&mut self, server: &str, now: Instant) {
        if let Some(before) = self.now.replace(server.to_owned()) {
            self.past.retain(|(past, _)| *past != before && past != server);
            self.past.push((before, now));
            if self.past.len() > PAST {
                self.past.remove(0);
            }
        }
        self.since = Some(now);
    }
}

fn first_pair(servers: &[Server]) -> Option<(NodeId, NodeId)> {
    let nodes = NodeCount::new(servers.len())?;
    nodes.ids().find_map(|first| {
        let server = servers[first.index()].now.as_ref()?;
        let mut others = nodes.ids().skip(first.index() + 1);
        let other = others.find(|other| servers[other.index()].now.as_ref() == Some(server))?;
        Some((first, other))
    })
}

fn unstable_identity(place: &Server) -> BackendError {
    let past = place.past.iter().rev().map(|(id, _)| id);
    let ids = place.now.iter().chain(past).take(2);
    let ids: Vec<String> = ids.map(|id| id.chars().take(8).collect()).collect();
    let text = format!(
        "unstable identity: its run_id goes back and forth between {}…: \
         does the address lead to several servers?",
        ids.join("… and ")
    );
    BackendError::new(BackendErrorKind::Identity, text)
}

/// Whether the node will not tell at the next try either, though it may vote.
const fn may_never_tell(kind: BackendErrorKind) -> bool {
    matches!(kind, BackendErrorKind::Permission | BackendErrorKind::Script)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restarts::GuardedVote;

    const MS: Duration = Duration::from_millis(1);

    /// A node is asked, and answers a millisecond later.
    fn met(
        roster: &Roster,
        node: usize,
        before: Option<&str>,
        server: &str,
        asked: Instant,
    ) -> bool {
        let node = NodeCount::new(2).unwrap().ids().nth(node).unwrap();
        let said = Guarded::new(GuardedVote::Refused, server);
        let said = match before {
            Some(before) => said.after(before),
            None => said,
        };
        match roster.met(node, &said, asked, asked + MS, 100 * MS) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.kind(), BackendErrorKind::Identity);
                assert!(error.to_string().contains("unstable identity"), "{error}");
                false
            }
        }
    }

    fn roster() -> (Roster, Instant) {
        (Roster::new(NodeCount::new(2).unwrap()), Instant::now())
    }

    #[test]
    fn a_node_may_restart_as_often_as_it_likes() {
        let (roster, start) = roster();
        for run in 0..100 {
            let before = (run > 0).then(|| format!("run{}", run - 1));
            let run_ = format!("run{run}");
            let asked = start + 2 * run * MS;
            assert!(met(&roster, 0, before.as_deref(), &run_, asked));
            assert!(met(&roster, 0, None, &run_, asked));
        }
    }

    #[test]
    fn runs_that_come_back_again_are_several_servers_and_forgiven_in_the_end() {
        let (roster, start) = roster();
        let at = |ms: u32| start + ms * MS;
        assert!(met(&roster, 0, None, "a", at(0)));
        assert!(met(&roster, 0, None, "b", at(10)));
        assert!(met(&roster, 0, None, "a", at(20)), "somebody may have gone back");
        assert!(!met(&roster, 0, None, "b", at(30)));
        assert!(!met(&roster, 0, None, "b", at(129)));
        assert!(met(&roster, 0, None, "b", at(131)));
    }

    #[test]
    fn a_client_that_is_led_to_one_of_several_that_share_their_data_sees_it() {
        let (roster, start) = roster();
        assert!(met(&roster, 1, Some("d"), "c", start), "that may be a restart");
        assert!(met(&roster, 1, Some("d"), "c", start + 10 * MS));
        assert!(!met(&roster, 1, Some("d"), "c", start + 20 * MS));
    }

    #[test]
    fn runs_that_come_back_once_in_a_while_are_restores_of_a_backup() {
        let (roster, start) = roster();
        for day in 0..10 {
            let at = start + day * 1_000 * MS;
            assert!(met(&roster, 0, None, "a", at), "day {day}");
            assert!(met(&roster, 0, None, "b", at + 500 * MS), "day {day}");
        }
    }

    #[test]
    fn a_run_that_had_the_data_before_itself_has_not_come_back() {
        let (roster, start) = roster();
        for round in 0..5 {
            assert!(met(&roster, 0, Some("a"), "a", start + 10 * round * MS));
        }
    }

    #[test]
    fn of_the_runs_of_a_node_the_last_few_are_remembered() {
        let (roster, start) = roster();
        for run in 0..100 {
            assert!(met(&roster, 0, None, &format!("run{run}"), start + 2 * run * MS));
        }
        assert_eq!(roster.lock()[0].past.len(), PAST);
    }

    #[test]
    fn late_answers_are_no_return() {
        let (roster, start) = roster();
        for round in 0..4 {
            let (before, run) = (format!("run{round}"), format!("run{}", round + 1));
            let asked = start + 10 * round * MS;
            assert!(met(&roster, 0, None, &run, asked));
            // Of the run before; and of this one, from when it found the data.
            assert!(met(&roster, 0, None, &before, asked));
            assert!(met(&roster, 0, Some(&before), &run, asked));
            assert!(met(&roster, 0, None, &run, asked + 2 * MS));
        }
    }

    #[test]
    fn q6_two_nodes_are_one_server_for_as_long_as_they_are() {
        let (roster, start) = roster();
        assert!(met(&roster, 0, None, "a", start) && met(&roster, 1, None, "b", start));
        assert_eq!(roster.conflict(), None);
        assert!(met(&roster, 1, None, "a", start + 2 * MS));
        let pair = roster.conflict().map(|(first, second)| (first.index(), second.index()));
        assert_eq!(pair, Some((0, 1)));
        assert!(met(&roster, 1, None, "c", start + 4 * MS));
        assert_eq!(roster.conflict(), None);
    }
}

//! What differs by the kind of a request.

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::readers::Member;
use crate::remote_wait::{RemoteWait, WaitInput};
use crate::resource::Key;
use crate::tickets::{Taking, Ticket, Turn};

/// The kind of a request, and what it knows.
#[derive(Default)]
pub(super) enum Kind {
    /// All keys. The first ticket has the wait between processes.
    #[default]
    All,
    /// All keys, with other readers. It has no tickets. Readers that wait share an entry.
    Shared(Option<Member>),
    /// One of several keys. Each attempt has the ticket of another key.
    OneOf(Box<Choosing>),
}

/// What a request for one of several keys knows.
#[derive(Default)]
pub(super) struct Choosing {
    pub(super) set_ticket: Option<Ticket>,
    pub(super) is_fast_over: bool,
    /// The keys of the fast path.
    pub(super) tried: Vec<Key>,
    /// The queues in this process that it stands in.
    pub(super) busy: Vec<Taking>,
    /// It waits for tasks here alone.
    pub(super) is_local: bool,
}

impl Kind {
    /// The ticket that the wait between processes belongs to.
    pub(super) fn wait_ticket<'a>(&'a self, turn: &'a Turn) -> Option<&'a Ticket> {
        match self {
            Self::OneOf(choosing) => choosing.set_ticket.as_ref(),
            Self::All | Self::Shared(_) => turn.first(),
        }
    }

    /// The wait between processes.
    pub(super) fn wait(&self, turn: &Turn) -> Option<Arc<RemoteWait>> {
        match self {
            Self::Shared(member) => member.as_ref().map(|member| Arc::clone(member.wait())),
            Self::All | Self::OneOf(_) => self.wait_ticket(turn)?.wait(),
        }
    }

    /// The lock was won: the wait ends. An attempt for all keys has ended the wait of its ticket.
    pub(super) fn won(self, cluster: &Cluster) {
        match self {
            Self::All => {}
            Self::Shared(member) => member.into_iter().for_each(Member::won),
            Self::OneOf(choosing) => {
                let wait = choosing.set_ticket.and_then(|ticket| ticket.end_set(cluster.now()));
                wait.into_iter().for_each(|wait| wait.input(WaitInput::Won));
            }
        }
    }

    /// The request ends without the lock. Returns the wait, unless a task of this manager goes on with it.
    #[must_use]
    pub(super) fn leave(self, turn: &Turn) -> Option<Arc<RemoteWait>> {
        match self {
            Self::Shared(member) => member.and_then(Member::leave),
            Self::All | Self::OneOf(_) => {
                self.wait_ticket(turn).filter(|ticket| !ticket.has_local()).and_then(Ticket::wait)
            }
        }
    }
}

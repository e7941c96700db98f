//! Near misses: protocols that look right, each a change of one thing.

use crate::client::{Client, Phase};
use crate::node::{self, Node, Number, Reply, Request};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a part of the tests")]
pub enum Flaw {
    /// The highest number of a quorum of grants is the token, without a second round.
    MaxOfReplies,
    /// A grant only reads the number; the token wanted is the highest + 1, and `F <= t` is a vote.
    NoBump,
    /// A node votes whatever is at the key.
    RaiseWithoutKey,
    /// The token is not what was granted and voted, but what a quorum says later.
    ReadBack,
}

impl Flaw {
    /// [`node::answer`] with the flaw.
    #[must_use]
    pub fn answer(self, node: Node, v: usize, request: Request) -> (Node, Reply) {
        match (self, request) {
            (Self::NoBump, Request::Acquire { .. }) => {
                let fence = node.fence;
                match node::answer(node, v, request) {
                    (node, Reply::Number(_)) => (Node { fence, ..node }, Reply::Number(fence)),
                    refused => refused,
                }
            }
            (Self::RaiseWithoutKey, Request::Raise { to }) if node.fence <= to => {
                (Node { fence: to, ..node }, Reply::Yes)
            }
            _ => node::answer(node, v, request),
        }
    }

    /// [`Client::agree`] with the flaw.
    pub fn agree(self, client: &mut Client) {
        if !matches!(self, Self::MaxOfReplies | Self::NoBump) {
            client.agree();
        }
    }

    /// [`Client::raise`] with the flaw.
    pub fn raise(self, client: &mut Client) {
        let highest: Number = client.highest_number();
        match self {
            Self::MaxOfReplies => client.hold(highest),
            Self::NoBump => client.ask_for(highest + 1),
            Self::RaiseWithoutKey | Self::ReadBack => client.raise(),
        }
    }

    /// A holder that is about to look up its token.
    pub fn unlearn(self, before: Phase, client: &mut Client) {
        if self == Self::ReadBack && before != Phase::Reading && client.phase == Phase::Holding {
            client.phase = Phase::Reading;
            client.token = None;
        }
    }
}

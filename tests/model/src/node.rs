//! What a node does: the right protocol, whole, as one pure function.

use std::fmt;

/// A fencing token, or a node's number that may become one.
///
/// A node's own number stays far below 2^53; here it stays below ten.
pub type Number = u8;

/// What a node keeps for one lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a part of the tests")]
pub struct Node {
    /// The attempt whose value is at the key; it may vanish at any moment.
    pub key: Option<usize>,
    /// The number, F. It stays when the key goes.
    pub fence: Number,
}

/// What an attempt can ask of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a part of the tests")]
pub enum Request {
    /// `ACQ(v, hint)`: the key, if it is free, and a number.
    Acquire {
        /// The client's clock.
        hint: Number,
    },
    /// `RAISE(v, t)`: a vote for this token.
    Raise {
        /// The token.
        to: Number,
    },
    /// An extension. Of what it does only the catching up is seen here, where there is no time.
    Extend {
        /// The highest number that the client has seen.
        highest: Number,
    },
    /// A repair after an extension: the key of a holder, on a node that lost it.
    Restore,
    /// `REL(v, t)`: the key's end.
    Release {
        /// The highest number that the client has seen.
        highest: Number,
    },
    /// What the number is. Nobody needs to know: a client that asks is a near miss.
    Read,
}

/// What a node answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a part of the tests")]
pub enum Reply {
    /// Granted, or read: the node's number.
    Number(Number),
    /// Voted, or done.
    Yes,
    /// Not with this key.
    No,
}

/// A node's answer to a request that carries the value of attempt `v`, and the node after it.
#[must_use]
pub fn answer(node: Node, v: usize, request: Request) -> (Node, Reply) {
    let Node { key, fence } = node;
    let is_ours = key == Some(v);
    match request {
        Request::Acquire { .. } if is_ours => (node, Reply::Number(fence)),
        Request::Acquire { hint } if key.is_none() => {
            let fence = hint.max(fence + 1);
            (Node { key: Some(v), fence }, Reply::Number(fence))
        }
        Request::Raise { to } if is_ours && fence <= to => (Node { fence: to, ..node }, Reply::Yes),
        Request::Extend { highest } if is_ours => {
            (Node { fence: fence.max(highest), ..node }, Reply::Yes)
        }
        Request::Restore if key.is_none() => (Node { key: Some(v), fence }, Reply::Yes),
        Request::Release { highest } if is_ours => {
            (Node { key: None, fence: fence.max(highest) }, Reply::Yes)
        }
        Request::Read => (node, Reply::Number(fence)),
        _ => (node, Reply::No),
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquire { hint } => write!(f, "acquire, hint {hint}"),
            Self::Raise { to } => write!(f, "raise to {to}"),
            Self::Extend { highest } => write!(f, "extend, highest {highest}"),
            Self::Restore => f.write_str("restore the key"),
            Self::Release { highest } => write!(f, "release, highest {highest}"),
            Self::Read => f.write_str("read the number"),
        }
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Yes => f.write_str("yes"),
            Self::No => f.write_str("no"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: usize = 0;
    const B: usize = 1;

    fn after(requests: &[(usize, Request)]) -> (Node, Vec<Reply>) {
        let mut replies = Vec::new();
        let node = requests.iter().fold(Node::default(), |node, (v, request)| {
            let (node, reply) = answer(node, *v, *request);
            replies.push(reply);
            node
        });
        (node, replies)
    }

    #[test]
    fn a_grant_rises_to_the_hint_and_a_resent_one_does_not_rise_again() {
        let acquire = (A, Request::Acquire { hint: 3 });
        let (node, replies) = after(&[acquire, acquire]);
        assert_eq!(node, Node { key: Some(A), fence: 3 });
        assert_eq!(replies, [Reply::Number(3), Reply::Number(3)]);
    }

    #[test]
    fn a_key_is_refused_to_others_and_a_release_leaves_the_number() {
        let (node, replies) = after(&[
            (A, Request::Acquire { hint: 0 }),
            (B, Request::Acquire { hint: 9 }),
            (B, Request::Release { highest: 9 }),
            (A, Request::Release { highest: 2 }),
            (B, Request::Acquire { hint: 0 }),
        ]);
        assert_eq!(node, Node { key: Some(B), fence: 3 });
        let (no, yes) = (Reply::No, Reply::Yes);
        assert_eq!(replies, [Reply::Number(1), no, no, yes, Reply::Number(3)]);
    }

    #[test]
    fn a_vote_needs_the_key_and_never_lowers_the_number() {
        let raise = |to| Request::Raise { to };
        let (node, replies) = after(&[
            (A, raise(2)),
            (A, Request::Acquire { hint: 0 }),
            (A, raise(2)),
            (A, raise(2)),
            (A, raise(1)),
            (B, raise(5)),
        ]);
        assert_eq!(node, Node { key: Some(A), fence: 2 });
        let (no, yes) = (Reply::No, Reply::Yes);
        assert_eq!(replies, [no, Reply::Number(1), yes, yes, no, no]);
    }
}

//! A call to one node as the commands that it takes and what their replies tell, without anybody
//! who sends them.

use std::ops::ControlFlow;

use super::{ACQUIRE, Digits, EXTEND, OWN, RELEASE, Reply, Wire, is_noscript, nonsense, packed};
use crate::algorithm::quorum::Vote;
use crate::backend::{BackendError, Claim};

/// One call to one node: the command that is next, until a reply tells the vote.
///
/// [`acquire`](super::acquire), [`extend`](super::extend) and [`release`](super::release) hold it
/// over a [`Wire`]. Who carries many calls at once holds it command by command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    step: Step,
    /// The node does not know the script yet, and is sent the text of it.
    whole: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Set,
    Acquire,
    Own,
    Extend,
    Release,
}

impl Exchange {
    /// Takes the keys of `claim`.
    #[must_use]
    pub fn acquire(claim: &Claim) -> Self {
        Self::at(if claim.keys().len() == 1 { Step::Set } else { Step::Acquire })
    }

    /// Prolongs them.
    #[must_use]
    pub const fn extend() -> Self {
        Self::at(Step::Extend)
    }

    /// Gives them back.
    #[must_use]
    pub const fn release() -> Self {
        Self::at(Step::Release)
    }

    /// Whether it begins by taking one key.
    pub(super) const fn takes_one(self) -> bool {
        matches!(self.step, Step::Set)
    }

    /// Whether it begins by giving keys back.
    pub(super) const fn gives_back(self) -> bool {
        matches!(self.step, Step::Release) && !self.whole
    }

    const fn at(step: Step) -> Self {
        Self { step, whole: false }
    }

    /// The command that is next, made by `pack` of its parts, the name first.
    pub fn command<C>(self, claim: &Claim, pack: impl FnOnce(&[&[u8]]) -> C) -> C {
        let (keys, token) = (claim.keys(), claim.token().as_bytes());
        let ttl = Digits::of(claim.ttl().as_millis());
        let script = match (self.step, keys) {
            (Step::Set, [key]) => {
                return pack(&[b"SET", key.as_bytes(), token, b"NX", b"PX", ttl.as_bytes()]);
            }
            (Step::Set | Step::Acquire, _) => ACQUIRE,
            (Step::Own, _) => OWN,
            (Step::Extend, _) => EXTEND,
            (Step::Release, _) => RELEASE,
        };
        let head: [&[u8]; 2] = match self.whole {
            false => [b"EVALSHA", script.sha1().as_bytes()],
            true => [b"EVAL", script.source().as_bytes()],
        };
        match self.step {
            Step::Own | Step::Release => packed(head, keys, &[token], pack),
            Step::Set | Step::Acquire | Step::Extend => {
                packed(head, keys, &[token, ttl.as_bytes()], pack)
            }
        }
    }

    /// What the reply tells: the end of the exchange, or what follows.
    ///
    /// # Errors
    ///
    /// As the call itself, in what it breaks off with: the command failed, or its reply is not one of
    /// the protocol.
    pub fn heard(
        self,
        reply: Result<Reply, BackendError>,
    ) -> ControlFlow<Result<Vote, BackendError>, Self> {
        ControlFlow::Break(match (self.step, reply) {
            (Step::Set, Ok(Reply::Okay)) => Ok(Vote::Granted),
            (Step::Set, Ok(Reply::Bytes(ok))) if ok == b"OK" => Ok(Vote::Granted),
            // Taken: by somebody else, by ourselves in a request that was sent twice, or by a value
            // that is no lock at all.
            (Step::Set, Ok(Reply::Nil)) => return ControlFlow::Continue(Self::at(Step::Own)),
            (Step::Set, Ok(reply)) => Err(nonsense("SET", &reply)),
            (_, Ok(Reply::Integer(1))) => Ok(Vote::Granted),
            (_, Ok(Reply::Integer(0))) => Ok(Vote::Refused),
            (_, Ok(reply)) => Err(nonsense("a script", &reply)),
            (_, Err(error)) if is_noscript(&error) && !self.whole => {
                return ControlFlow::Continue(Self { whole: true, ..self });
            }
            (_, Err(error)) => Err(error),
        })
    }

    /// Holds the exchange over `wire`.
    pub(super) async fn over(
        mut self,
        wire: &impl Wire,
        claim: &Claim,
    ) -> Result<Vote, BackendError> {
        loop {
            let command = self.command(claim, |parts| wire.pack(parts));
            match self.heard(wire.send(command).await) {
                ControlFlow::Break(answer) => return answer,
                ControlFlow::Continue(next) => self = next,
            }
        }
    }
}

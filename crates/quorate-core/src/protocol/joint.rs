//! Calls about one key each, made by one script.
//!
//! A command costs its client far more than what the node does for it. So who carries many calls at
//! once makes one command of them. Each call means what it means by itself, whatever becomes of the
//! others.

use std::iter::repeat_with;
use std::ops::ControlFlow;

use super::exchange::Exchange;
use super::{Digits, Reply, Script, is_noscript, nonsense};
use crate::algorithm::quorum::Vote;
use crate::backend::{BackendError, BackendErrorKind, Claim};

/// For each key what `SET NX` with a check for our own token, or [`RELEASE`](super::RELEASE), would
/// say: 1, 0 or the text of an error. `ARGV` for each key: token, and the ttl in ms to take it, or
/// nothing to give it back.
///
/// The same key may come more than once: calls are made in order.
pub const EACH: Script = Script {
    source: "\
local said = {}
for i = 1, #KEYS do
  local key, token, ttl = KEYS[i], ARGV[2 * i - 1], ARGV[2 * i]
  local done = false
  if ttl ~= '' then done = redis.pcall('SET', key, token, 'NX', 'PX', ttl) end
  if not done then
    done = redis.pcall('GET', key)
    if done == token and ttl == '' then done = redis.pcall('DEL', key)
    elseif done == token then done = 1
    elseif type(done) ~= 'table' or ttl == '' and string.find(done.err, 'WRONGTYPE') then done = 0 end
  elseif done.ok then done = 1 end
  if type(done) == 'table' then done = done.err end
  said[i] = done
end
return said
",
    sha1: "ee89dae9ca11a6ba6b1d15ca87ea3be818c300a1",
};

/// One command for several calls: the one that is next, until a reply tells the votes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Joint {
    /// The node does not know the script yet, and is sent the text of it.
    whole: bool,
}

/// What each call would have been answered with.
pub type Answers = Vec<Result<Vote, BackendError>>;

impl Joint {
    /// Whether a call may be one of several.
    #[must_use]
    pub fn takes(exchange: Exchange, claim: &Claim) -> bool {
        claim.keys().len() == 1 && (exchange.takes_one() || exchange.gives_back())
    }

    /// The command, made by `pack` of its parts, the name first. Only for calls that it
    /// [takes](Self::takes).
    pub fn command<'a, C>(
        self,
        calls: impl Iterator<Item = (Exchange, &'a Claim)> + Clone,
        pack: impl FnOnce(&[&[u8]]) -> C,
    ) -> C {
        let keys = || calls.clone().filter_map(|(_, claim)| claim.keys().first());
        let count = Digits::of(keys().count() as u64);
        // Ttls are seldom of many kinds.
        let ttls: Vec<Option<Digits>> = calls
            .clone()
            .map(|(exchange, claim)| {
                exchange.takes_one().then(|| Digits::of(claim.ttl().as_millis()))
            })
            .collect();
        let (name, script): (&[u8], _) = match self.whole {
            false => (b"EVALSHA", EACH.sha1),
            true => (b"EVAL", EACH.source),
        };
        let mut parts = Vec::with_capacity(3 + 3 * ttls.len());
        parts.extend([name, script.as_bytes(), count.as_bytes()]);
        parts.extend(keys().map(|key| key.as_bytes()));
        for ((_, claim), ttl) in calls.zip(&ttls) {
            parts.push(claim.token().as_bytes());
            parts.push(ttl.as_ref().map_or(b"", Digits::as_bytes));
        }
        pack(&parts)
    }

    /// What the answer of the node tells: the end of all `count` calls, or what follows. `None` if
    /// the node may not have them together, and has made none of them.
    pub fn heard(
        self,
        count: usize,
        answer: Result<Reply, BackendError>,
    ) -> ControlFlow<Option<Answers>, Self> {
        ControlFlow::Break(match answer {
            Ok(Reply::List(said)) if said.len() == count => {
                Some(said.into_iter().map(told).collect())
            }
            Ok(reply) => {
                Some(repeat_with(|| Err(nonsense("a script", &reply))).take(count).collect())
            }
            Err(error) if is_noscript(&error) && !self.whole => {
                return ControlFlow::Continue(Self { whole: true });
            }
            Err(error) if is_against_many(error.kind()) => None,
            // Nothing was done, and each would have heard the same.
            Err(error) => Some(vec![Err(error); count]),
        })
    }
}

/// Whether it may be the company that a node objects to: that keys are of several slots, or that one
/// of them is not the user's.
const fn is_against_many(kind: BackendErrorKind) -> bool {
    use BackendErrorKind as Kind;
    matches!(kind, Kind::Cluster | Kind::Permission | Kind::Script)
}

fn told(said: Reply) -> Result<Vote, BackendError> {
    match said {
        Reply::Integer(1) => Ok(Vote::Granted),
        Reply::Integer(0) => Ok(Vote::Refused),
        Reply::Bytes(error) => Err(BackendError::from_reply(&String::from_utf8_lossy(&error))),
        reply => Err(nonsense("a script", &reply)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Key, Resource, Token, Ttl};

    fn claim(name: &str) -> Claim {
        let key = Key::new(b"", &Resource::new(name).unwrap());
        let token = Token::draw(|bytes| {
            bytes.fill(0);
            Ok(())
        });
        Claim::new([key], token.unwrap(), Ttl::try_from(Duration::from_secs(10)).unwrap())
    }

    #[test]
    fn one_command_tells_each_key_with_its_token_and_what_to_do() {
        let (one, other) = (claim("one"), claim("other"));
        let calls = [(Exchange::acquire(&one), &one), (Exchange::release(), &other)];
        let pack = |parts: &[&[u8]]| {
            parts.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect::<Vec<_>>()
        };
        let token = String::from_utf8_lossy(one.token().as_bytes());
        let command = Joint::default().command(calls.into_iter(), pack);
        let expected = ["EVALSHA", EACH.sha1, "2", "one", "other", &*token, "10000", &*token, ""];
        assert_eq!(command, expected);
        let noscript = BackendError::from_reply("NOSCRIPT No matching script.");
        let ControlFlow::Continue(whole) = Joint::default().heard(2, Err(noscript.clone())) else {
            panic!("it can be sent the text");
        };
        assert_eq!(whole.command(calls.into_iter(), pack)[..2], ["EVAL", EACH.source]);
        assert!(matches!(whole.heard(2, Err(noscript)), ControlFlow::Break(None)));
    }

    #[test]
    fn each_call_hears_its_own_part() {
        let error = b"READONLY You can't write".to_vec();
        let said = vec![Reply::Integer(1), Reply::Bytes(error), Reply::Integer(0), Reply::Nil];
        let ControlFlow::Break(Some(answers)) = Joint::default().heard(4, Ok(Reply::List(said)))
        else {
            panic!("it is the end");
        };
        assert!(matches!((&answers[0], &answers[2]), (Ok(Vote::Granted), Ok(Vote::Refused))));
        let kinds = [1, 3].map(|at: usize| answers[at].as_ref().unwrap_err().kind());
        assert_eq!(kinds, [BackendErrorKind::ReadOnly, BackendErrorKind::Protocol]);
    }

    #[test]
    fn what_does_not_fit_is_told_to_all_and_what_is_refused_is_asked_one_by_one() {
        let loading = BackendError::from_reply("LOADING Redis is loading");
        let ControlFlow::Break(Some(answers)) = Joint::default().heard(3, Err(loading)) else {
            panic!("it is the end")
        };
        let kinds = answers.iter().map(|answer| answer.as_ref().unwrap_err().kind());
        assert!(kinds.eq([BackendErrorKind::Loading; 3]));
        let short = Joint::default().heard(3, Ok(Reply::List(vec![Reply::Integer(1)])));
        let ControlFlow::Break(Some(answers)) = short else { panic!("it is the end") };
        assert_eq!(answers.len(), 3);
        assert!(answers.iter().all(Result::is_err));
        let crossing = BackendError::from_reply("CROSSSLOT Keys in request don't hash");
        assert!(matches!(Joint::default().heard(3, Err(crossing)), ControlFlow::Break(None)));
    }
}

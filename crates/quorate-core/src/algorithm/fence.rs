//! One number that a majority of the nodes has voted, out of a number that each of them gave.
//!
//! A node keeps a number F for a lock, and these scripts, each at one moment:
//!
//! ```text
//! ACQ(v, hint)   if key == v: answer F                         (the request was sent twice)
//!                if key is there: refuse
//!                key = v for the ttl;  F = max(F + 1, hint);  answer F
//! RAISE(v, t)    if key == v and F <= t: F = t, yes            else no
//! REL(v, t)      if key == v: F = max(F, t), and the key goes
//! ```
//!
//! A node *votes* t for v when it answers t to v's acquire, or yes to v's `RAISE(v, t)`. A number
//! for which a majority has voted is v's **token**. While nodes stand at the same F, the answers to
//! the acquire are that majority, and the token costs no round trip. Else the highest of them is
//! raised to on the nodes that gave another one.
//!
//! # Why it holds
//!
//! At a node, F never falls, and each grant strictly raises it. A node votes only for the holder of
//! the key there. So it votes one t for one holder of a lock at most, and all that it votes for a
//! later holder is more than all that it voted for an earlier one (FT1). Two majorities share a
//! node:
//!
//! - *Unique.* Two holders with one token would both have that node's vote for it.
//! - *In real time.* If one had its token before the other began, then F was there at the shared
//!   node, and the number that the other heard from it was more; the token is no less than that.
//! - *In the order of holding.* At the node that voted for both, one held the key after the other.
//!   So a holder whose keys were taken over can never come to outrank the holder that took them.
//!
//! No clock, ttl or delay is in that: keys may vanish at any moment, messages come late, twice or
//! never. What it does need is that a node does not forget F. A node that lost its data goes on
//! from the hint, which is the client's wall clock: see [`FenceHint`]. An attempt that began before
//! the loss, and reaches the node after it, brings a hint from before the tokens that were given in
//! between. With the [restart guard](crate::RestartGuard) it gets no vote from that node: it is
//! over, by its own ttl, before the node votes again.
//!
//! That F may be raised by others as well (locks that share a counter, see
//! the guide's page on fencing) changes none of this: it never falls by it.

use std::fmt;

use super::quorum::NodeCount;

/// The number by which a protected resource orders the holders of a lock.
///
/// Of two holders of a resource, the later one has the higher token. A token stays the same through
/// extensions, and when the lock is detached and adopted. Tokens of different resources are
/// unrelated, and tokens are not consecutive.
///
/// A token protects only a resource that checks it, such as [`FencedCell`](crate::FencedCell). It
/// is between 1 and 2⁵³ − 1, so it fits a `BIGINT` (`i64::from(token)`) and a number of Lua or
/// JavaScript.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The greatest: 2⁵³ − 1. After it no token is given any more, rather than a wrong one.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A token that was sent as a number; `None` for zero and over [`MAX`](Self::MAX).
    #[must_use]
    pub const fn new(number: u64) -> Option<Self> {
        match number {
            1..=0x001f_ffff_ffff_ffff => Some(Self(number)),
            _ => None,
        }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// For a `BIGINT`: a token is at most 2⁵³ − 1.
impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.0.cast_signed()
    }
}

/// Prints the number in decimal digits.
impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The least that a node's number becomes with a grant: microseconds since 1970 by the client's
/// wall clock, 2⁵² (the year 2112) at the most.
///
/// It decides no time, and no order as long as nodes keep their data: a clock that is wrong costs a
/// round trip. It is for nodes that **lost** their data, and would begin again at 1: starting from
/// the clock, they go on above what was given before. Three things would spoil that, and only
/// where so many nodes have forgotten a token that no majority remembers it: more than a million
/// tokens a second; a clock that is set back; and clients whose clocks differ, for as long as they
/// differ. A clock that was once far in the future leaves a number that high, and that long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FenceHint(u64);

impl FenceHint {
    /// The greatest: half of the numbers are left after it.
    pub const MAX: Self = Self(1 << 52);

    /// A hint of so many microseconds since 1970; `None` over [`MAX`](Self::MAX).
    #[must_use]
    pub const fn new(micros: u64) -> Option<Self> {
        if micros <= Self::MAX.0 { Some(Self(micros)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number that a grant gives where F was `before`, zero if there was none; `None` if there
    /// is none left.
    #[must_use]
    pub const fn grant_after(self, before: u64) -> Option<FencingToken> {
        let next = before.saturating_add(1);
        FencingToken::new(if next > self.0 { next } else { self.0 })
    }
}

/// What the numbers that nodes gave come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// A majority gave this number: it is the token.
    Token(FencingToken),
    /// No majority did. This one, the highest, is the token once a majority has voted for it; a
    /// node that gave it has voted for it.
    Raise(FencingToken),
}

impl Agreement {
    /// What these numbers come to, in any order; `None` if there are none.
    pub fn of(nodes: NodeCount, numbers: impl IntoIterator<Item = FencingToken>) -> Option<Self> {
        let mut numbers: Vec<FencingToken> = numbers.into_iter().collect();
        numbers.sort_unstable();
        let highest = *numbers.last()?;
        let agreed = numbers.chunk_by(|one, other| one == other);
        let agreed = agreed.filter(|same| same.len() >= nodes.quorum()).find_map(<[_]>::first);
        Some(agreed.map_or(Self::Raise(highest), |token| Self::Token(*token)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nodes: usize, numbers: &[u64]) -> Option<Agreement> {
        let numbers = numbers.iter().map(|number| FencingToken::new(*number).unwrap());
        Agreement::of(NodeCount::new(nodes).unwrap(), numbers)
    }

    fn token(number: u64) -> Option<Agreement> {
        FencingToken::new(number).map(Agreement::Token)
    }

    fn raise(number: u64) -> Option<Agreement> {
        FencingToken::new(number).map(Agreement::Raise)
    }

    #[test]
    fn a_majority_of_the_configured_nodes_with_one_number_is_a_token() {
        assert_eq!(of(1, &[7]), token(7));
        assert_eq!(of(3, &[7, 7]), token(7));
        assert_eq!(of(3, &[9, 7, 7]), token(7), "one that is ahead does not matter");
        assert_eq!(of(5, &[7, 9, 7, 1, 7]), token(7));
        assert_eq!(of(4, &[7, 7, 7]), token(7));
    }

    #[test]
    fn else_the_highest_is_raised_to() {
        assert_eq!(of(3, &[7, 8]), raise(8));
        assert_eq!(of(3, &[9, 8, 7]), raise(9));
        assert_eq!(of(4, &[7, 7]), raise(7), "two of four are no majority");
        assert_eq!(of(4, &[7, 7, 8, 8]), raise(8));
        assert_eq!(of(5, &[7, 7, 8]), raise(8));
        assert_eq!(of(2, &[7]), raise(7));
        assert_eq!(of(3, &[]), None);
    }

    #[test]
    fn numbers_end_before_a_double_loses_count() {
        assert_eq!(FencingToken::MAX.get(), (1 << 53) - 1);
        assert_eq!(i64::from(FencingToken::MAX), (1 << 53) - 1);
        assert_eq!(FencingToken::new(0), None);
        assert_eq!(FencingToken::new(1 << 53), None);
        assert_eq!(FencingToken::new(FencingToken::MAX.get()), Some(FencingToken::MAX));
        assert_eq!(FenceHint::new(1 << 52), Some(FenceHint::MAX));
        assert_eq!(FenceHint::new((1 << 52) + 1), None);
        assert_eq!(FenceHint::new(7).unwrap().get(), 7);
        let none = FenceHint::default();
        assert_eq!(none.grant_after((1 << 53) - 2), Some(FencingToken::MAX));
        assert_eq!(none.grant_after((1 << 53) - 1), None);
        assert_eq!(none.grant_after(u64::MAX), None);
        assert_eq!(none.grant_after(0).unwrap().get(), 1);
        assert_eq!(FenceHint::MAX.grant_after(3).unwrap().get(), 1 << 52);
        assert_eq!(FenceHint::MAX.grant_after(1 << 52).unwrap().get(), (1 << 52) + 1);
    }

    #[test]
    fn a_later_token_is_greater_and_prints_as_its_number() {
        let (one, other) = (FencingToken::new(9).unwrap(), FencingToken::new(10).unwrap());
        assert!(one < other);
        assert_eq!(format!("{other:>4}"), "  10");
    }
}

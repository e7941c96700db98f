//! What an attempt has decided in an input: the difference between its results before and after it.

use quorate_pure::core_source::algorithm::attempt::{End, Loss, Released, Results};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Decision {
    Won,
    NotWon(Loss),
    Extended,
    ExtendFailed,
    Revoked,
    LeaseLost(End),
    Released(Released),
    Undone,
    Cleared,
}

pub(crate) fn decided(before: &Results, after: &Results) -> Vec<Decision> {
    let first = after.first.filter(|_| before.first.is_none());
    let first = first.map(|first| first.map_or_else(Decision::NotWon, |()| Decision::Won));
    let became = |was: bool, is: bool, what: Decision| (is && !was).then_some(what);
    let lost = after.lost.filter(|_| before.lost.is_none()).map(Decision::LeaseLost);
    let released = after.released.filter(|_| before.released.is_none()).map(Decision::Released);
    let all = [
        first,
        (after.extended != before.extended).then_some(Decision::Extended),
        (after.failed != before.failed).then_some(Decision::ExtendFailed),
        became(before.is_revoked, after.is_revoked, Decision::Revoked),
        lost,
        released,
        became(before.is_undone, after.is_undone, Decision::Undone),
        became(before.is_cleared, after.is_cleared, Decision::Cleared),
    ];
    all.into_iter().flatten().collect()
}

//! Whose turn it is among waiters in other processes: a guess that each makes for itself.
//!
//! All who wait for a lock see the same releases. If all of them ask at each, all but one are sent
//! away. So a waiter lets as many others go first as it saw go the last time, and then asks at once:
//! whoever has waited for the longest is alone, and waiters fall into an order though none knows of
//! another. Those far behind do not even listen. If nobody takes a free lock, those further back
//! step forward, one after the other, by reading it so many times.
//!
//! A wrong guess costs a question or a moment, never more: only votes decide.

use std::time::{Duration, Instant};

use crate::backend::Holder;

/// What is remembered of them when the lock is released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Met {
    /// How many others go first the next time.
    pub(crate) others: u32,
    /// How often they are still believed to be there if none shows up.
    trust: u32,
    /// The time from one release to the next, if it is known.
    pace: Option<Duration>,
    /// Whether there seems to be only one.
    one: bool,
}

/// So often in a row nobody may show up before others are forgotten. Each time costs a moment; but
/// whoever forgets the only other one takes the lock again at once, and is always quicker.
const TRUST: u32 = 8;

impl Met {
    /// There is somebody; no more is known.
    pub(crate) const SOMEBODY: Self = Self { others: 0, trust: TRUST, pace: None, one: false };
}

/// What a waiter has seen of the others while it waits.
#[derive(Debug, Default)]
pub(crate) struct Rivals {
    /// So many others go first.
    lets: u32,
    trust: u32,
    /// How many could have gone first, and did not.
    idle: u32,
    /// How often the lock was released.
    releases: u32,
    /// How many of these were not heard, but taken for granted.
    rested: u32,
    /// Whether it may be free.
    free: bool,
    /// Whether the latest of these may have been an extension.
    may_be_extended: bool,
    /// How often it was read and found free since the latest of these releases.
    reads: u32,
    /// Who held the keys when they were last read.
    holders: Vec<Option<Holder>>,
    /// When the latest release was heard of.
    heard: Option<Instant>,
    /// The time from one release to the next, if it is known.
    pace: Option<Duration>,
    /// Whether there seems to be only one of them.
    one: bool,
    /// Whether somebody else had it when the nodes were asked.
    refused: bool,
}

/// A waiter that asks at once needs about two reads to get a key.
const READS_A_TURN: u32 = 3;

/// For so long nothing is heard of them at the most. A lock that changes hands more slowly keeps no
/// machine busy.
const LONGEST_REST: Duration = Duration::from_millis(15);

/// No more are let go first, however many there are.
const MOST: u32 = 64;

impl Rivals {
    /// The lock was released a moment ago, and others go first.
    pub(crate) fn after(met: Met) -> Self {
        let Met { others, trust, pace, one } = met;
        Self { lets: others.min(MOST), trust, pace, one, free: true, ..Self::default() }
    }

    /// The lock may have been released, as was heard `now`.
    pub(crate) fn released(&mut self, now: Instant) {
        if let Some(before) = self.heard.replace(now) {
            let time = now.saturating_duration_since(before);
            self.pace = Some(self.pace.map_or(time, |pace| (3 * pace.min(2 * time) + time) / 4));
        }
        self.releases = self.releases.saturating_add(1);
        self.idle = self.idle.saturating_add(self.reads / READS_A_TURN);
        (self.free, self.reads, self.may_be_extended) = (true, 0, true);
    }

    /// Somebody has taken it.
    pub(crate) const fn taken(&mut self) {
        self.free = false;
    }

    /// The nodes were asked, and somebody else has it.
    pub(crate) const fn refused(&mut self) {
        (self.free, self.one, self.refused) = (false, false, true);
    }

    /// The lock was read, and is free or somebody's.
    ///
    /// If it is still the same one's, it was not released, but extended.
    pub(crate) fn read(&mut self, holders: Vec<Option<Holder>>) -> Read {
        let may_be_extended = std::mem::take(&mut self.may_be_extended);
        if holders.iter().all(Option::is_none) {
            self.reads = self.reads.saturating_add(1);
            self.free = true;
            return Read::Free;
        }
        self.free = false;
        if self.holders == holders && may_be_extended {
            self.releases = self.releases.saturating_sub(1);
        }
        self.holders = holders;
        Read::Taken
    }

    /// It was free for a moment, and nobody took it: one less goes first.
    pub(crate) const fn idled(&mut self) {
        self.reads = self.reads.saturating_add(READS_A_TURN);
    }

    /// Whether nothing was seen of them since the lock was released here.
    pub(crate) const fn is_new(&self) -> bool {
        self.free && self.releases == 0 && self.reads == 0
    }

    /// Whether there seems to be only one other: who listens to it from the first moment on disturbs no
    /// third.
    pub(crate) const fn are_one(&self) -> bool {
        self.one
    }

    /// How long nothing needs to be heard of the others: all who go first, but for the last of them,
    /// are taken to come and go as quickly as those before them.
    ///
    /// Each who listens to a release costs the machine about as much as a lock, and whoever is about
    /// to take it has to wait for that.
    pub(crate) fn rests(&mut self) -> Option<Duration> {
        let gone = self.releases.saturating_add(self.reads / READS_A_TURN);
        let far = self.lets.saturating_sub(gone).saturating_sub(1);
        let pace = self.pace.filter(|pace| !pace.is_zero())?;
        let most = u32::try_from(LONGEST_REST.as_nanos() / pace.as_nanos()).unwrap_or(u32::MAX);
        let far = far.min(most);
        if far == 0 {
            return None;
        }
        self.releases += far;
        self.rested += far;
        (self.heard, self.free, self.reads) = (None, true, 0);
        Some(pace * far)
    }

    /// Whether it may be free, as far as is known.
    pub(crate) const fn may_be_free(&self) -> bool {
        self.free
    }

    /// How often it was found free in a row.
    pub(crate) const fn reads(&self) -> u32 {
        self.reads
    }

    /// Whether to ask the nodes, if the lock may be free.
    pub(crate) const fn is_our_turn(&self) -> bool {
        self.releases.saturating_add(self.reads / READS_A_TURN) > self.lets
    }

    /// What to remember after the lock was won; `None` if there was nobody.
    ///
    /// Who met somebody else at its turn lets more go first, and who waited for nobody fewer. The
    /// first is felt by those who let few go, and the second by those who let many: so all come to
    /// the same number, and have the lock equally often.
    pub(crate) fn met(&self, random: impl FnOnce() -> u64) -> Option<Met> {
        // Nobody was heard of.
        let trust = if self.releases <= self.rested {
            self.trust.checked_sub(1).filter(|trust| *trust > 0)?
        } else {
            Met::SOMEBODY.trust
        };
        let (pace, random) = (self.pace, random());
        // It is doubted now and then: who listens to one of two is always in front of the other.
        let doubts = random >> 32 & 0xf == 0;
        if self.releases == 0 {
            // Whoever may have had it meanwhile, nobody else came after.
            let one = self.lets == 0 && !self.refused && !doubts;
            return Some(Met { others: self.lets / 2, trust, pace, one });
        }
        let (lets, late) = (self.lets, self.releases.saturating_sub(self.lets + 1));
        let idle = if self.free { self.reads / READS_A_TURN } else { 0 };
        let others = if late > 0 {
            lets + if lets < 5 { late } else { share(late.saturating_mul(5), lets + 1, random) }
        } else if self.idle.saturating_add(idle) > lets {
            lets / 2
        } else {
            lets - share(lets * idle.min(16), 16, random)
        };
        Some(Met { others, trust, pace, one: self.one && others == 0 && !doubts })
    }
}

/// `amount / parts`, rounded up or down by chance.
fn share(amount: u32, parts: u32, random: u64) -> u32 {
    let chance = random % u64::from(parts.max(1));
    ((u64::from(amount) + chance) / u64::from(parts.max(1))) as u32
}

/// How the lock was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Free,
    Taken,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Instant {
        Instant::now()
    }

    fn after(others: u32) -> Rivals {
        Rivals::after(Met { others, ..Met::SOMEBODY })
    }

    fn held_by(holder: u8) -> Vec<Option<Holder>> {
        vec![Some(Holder::new([holder]))]
    }

    #[test]
    fn who_has_met_nobody_asks_at_the_first_release() {
        let mut rivals = Rivals::default();
        assert!(!rivals.is_our_turn());
        rivals.released(now());
        assert!(rivals.is_our_turn());
    }

    #[test]
    fn so_many_others_go_first_as_went_the_last_time() {
        let mut rivals = after(2);
        for holder in 1..=2 {
            assert_eq!(rivals.read(held_by(holder)), Read::Taken);
            rivals.released(now());
            assert!(!rivals.is_our_turn());
        }
        assert_eq!(rivals.read(held_by(3)), Read::Taken);
        rivals.released(now());
        assert!(rivals.is_our_turn());
        assert_eq!(rivals.met(|| 0).map(|met| met.others), Some(2));
    }

    #[test]
    fn an_extension_is_no_release() {
        let mut rivals = after(1);
        assert_eq!(rivals.read(held_by(1)), Read::Taken);
        for _ in 0..9 {
            rivals.released(now());
            assert!(!rivals.is_our_turn());
            assert_eq!(rivals.read(held_by(1)), Read::Taken);
        }
    }

    #[test]
    fn a_lock_that_nobody_takes_is_asked_for_after_a_few_reads() {
        let mut rivals = after(2);
        let free = || vec![None];
        let reads = (1..).find(|_| {
            assert_eq!(rivals.read(free()), Read::Free);
            rivals.is_our_turn()
        });
        assert_eq!(reads, Some(3 * READS_A_TURN));
    }

    #[test]
    fn those_far_behind_hear_nothing_until_the_last_before_them_has_it() {
        let (start, second) = (now(), Duration::from_secs(1));
        let mut rivals = after(6);
        assert_eq!(rivals.rests(), None, "the pace is not known");
        assert_eq!(rivals.read(held_by(1)), Read::Taken);
        rivals.released(start);
        assert_eq!(rivals.rests(), None);
        rivals.released(start + second / 500);
        // Two of six have gone, and one is listened to.
        assert_eq!(rivals.rests(), Some(3 * second / 500));
        assert_eq!(rivals.rests(), None);
        assert!(rivals.may_be_free() && !rivals.is_our_turn());
        rivals.released(start + second);
        assert!(!rivals.is_our_turn(), "the last of them");
        rivals.released(start + second + second / 500);
        assert!(rivals.is_our_turn());
        // The rest was no time between two releases.
        let met = rivals.met(|| 0).unwrap();
        assert_eq!(Rivals::after(Met { others: 3, ..met }).rests(), Some(2 * second / 500));
    }

    #[test]
    fn where_a_lock_changes_hands_slowly_all_listen() {
        let rests =
            |pace| Rivals::after(Met { others: 20, pace: Some(pace), ..Met::SOMEBODY }).rests();
        assert_eq!(rests(LONGEST_REST * 2), None);
        assert_eq!(rests(LONGEST_REST / 2), Some(LONGEST_REST));
        assert_eq!(rests(Duration::ZERO), None);
    }

    #[test]
    fn who_meets_others_at_its_turn_lets_more_go_first_and_who_waits_for_nobody_fewer() {
        let others = |rivals: &Rivals| rivals.met(|| 0).map(|met| met.others);
        let mut beaten = after(3);
        (0..6).for_each(|_| beaten.released(now()));
        assert_eq!(others(&beaten), Some(5));
        let mut idle = after(8);
        idle.released(now());
        while !idle.is_our_turn() {
            idle.idled();
        }
        assert!(others(&idle) < Some(8));
    }

    #[test]
    fn one_other_is_listened_to_until_a_third_is_met_and_doubted_now_and_then() {
        let (sure, doubts) = (1_u64 << 32, 0);
        // Nobody came after it, if it had it at all.
        let waited = || Rivals { reads: READS_A_TURN, ..Rivals::after(Met::SOMEBODY) };
        let one = waited().met(|| sure).unwrap();
        assert!(one.one && !waited().met(|| doubts).unwrap().one);
        assert!(Rivals::after(one).are_one());
        let released = || {
            let mut rivals = Rivals::after(one);
            rivals.read(held_by(1));
            rivals.released(now());
            assert!(rivals.is_our_turn());
            rivals
        };
        assert!(released().met(|| sure).unwrap().one);
        assert!(!released().met(|| doubts).unwrap().one);
        let mut beaten = released();
        beaten.refused();
        beaten.released(now());
        assert!(!beaten.met(|| sure).unwrap().one);
        let mut late = waited();
        late.refused();
        assert!(!late.met(|| sure).unwrap().one, "somebody had it");
        assert!(!Rivals::after(Met { others: 1, ..one }).met(|| sure).unwrap().one);
    }

    #[test]
    fn a_holder_that_is_seen_twice_is_one_release_less_only_if_one_was_heard_between() {
        let mut rivals = after(1);
        rivals.read(held_by(1));
        rivals.released(now());
        rivals.read(held_by(2));
        // Somewhere else it was waited for in vain.
        rivals.refused();
        rivals.read(held_by(2));
        rivals.released(now());
        assert!(rivals.is_our_turn());
    }

    #[test]
    fn others_who_never_show_up_are_forgotten() {
        let times = |met: &Met| Rivals::after(*met).met(|| 0);
        let known = std::iter::successors(Some(Met::SOMEBODY), times).count();
        assert_eq!(known, TRUST as usize);
    }

    #[test]
    fn others_who_never_show_up_are_forgotten_though_they_were_rested_for() {
        let pace = Some(Duration::from_millis(1));
        let alone = |met: &Met| {
            let mut rivals = Rivals::after(*met);
            // Somebody has had it for long, and still does.
            rivals.read(held_by(1));
            assert!(rivals.rests().is_some());
            rivals.read(held_by(1));
            while !rivals.is_our_turn() {
                rivals.read(vec![None]);
            }
            rivals.met(|| 0)
        };
        let twenty = Met { others: 20, pace, ..Met::SOMEBODY };
        assert_eq!(std::iter::successors(Some(twenty), alone).take(50).count(), TRUST as usize);
    }

    #[test]
    fn what_does_not_divide_is_rounded_by_chance() {
        let sum: u32 = (0..16).map(|random| share(5, 16, random)).sum();
        assert_eq!(sum, 5);
    }
}

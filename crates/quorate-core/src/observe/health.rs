//! Whether a node is well: so that its failures are told when they begin and when they end.

use std::time::{Duration, Instant};

/// A node is well again only if it has not failed for so long: one that wavers is told once.
const CALM: Duration = Duration::from_secs(5);

/// The state of one node, as its calls show it.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Calls under way.
    open: usize,
    /// Since when there have been calls under way, and no answer to any.
    quiet_since: Option<Instant>,
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Trouble {
    /// What failed; `None` if the node was silent, whatever it was asked.
    operation: Option<&'static str>,
    began: Instant,
    last: Instant,
}

impl Health {
    /// A call leaves. Returns for how long the node has been silent, if this is the first that is
    /// known of its failing.
    pub(super) fn sent(&mut self, now: Instant, patience: Duration) -> Option<Duration> {
        let since = *self.quiet_since.get_or_insert(now);
        let quiet = now.saturating_duration_since(since);
        self.open += 1;
        (quiet >= patience && self.fails(None, now)).then_some(quiet)
    }

    /// A call has settled, with an answer or, if it was given up, without.
    pub(super) fn settled(&mut self, now: Instant, answered: Answered) {
        self.open = self.open.saturating_sub(1);
        self.quiet_since = match answered {
            _ if self.open == 0 => None,
            Answered::Yes => Some(now),
            Answered::No => self.quiet_since,
        };
    }

    /// The node failed; `operation` is `None` if it was silent. Tells whether it was well before.
    pub(super) fn fails(&mut self, operation: Option<&'static str>, now: Instant) -> bool {
        if let Some(trouble) = &mut self.trouble {
            trouble.last = now;
            return false;
        }
        self.trouble = Some(Trouble { operation, began: now, last: now });
        true
    }

    /// The node answered in time. Returns for how long it had failed, if it is well again by that.
    ///
    /// A replica that was taken for a primary refuses to write, and releases what is not there: so
    /// an answer mends only what failed, but for one to an acquire, which asks most of a node.
    pub(super) fn works(&mut self, operation: &'static str, now: Instant) -> Option<Duration> {
        let trouble = self.trouble.as_ref()?;
        let mends = operation == "acquire" || trouble.operation.is_none_or(|it| it == operation);
        let is_calm = now.saturating_duration_since(trouble.last) >= CALM;
        (mends && is_calm)
            .then(|| self.trouble.take())?
            .map(|trouble| now.saturating_duration_since(trouble.began))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    Yes,
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(500);

    #[test]
    fn a_node_that_wavers_is_told_once() {
        let mut health = Health::default();
        let mut now = Instant::now();
        assert!(health.fails(Some("acquire"), now));
        for _ in 0..20 {
            now += CALM / 2;
            assert_eq!(health.works("acquire", now), None);
            assert!(!health.fails(Some("acquire"), now));
        }
        now += CALM;
        assert_eq!(health.works("acquire", now), Some(11 * CALM));
        assert_eq!(health.works("acquire", now), None);
        assert!(health.fails(Some("acquire"), now));
    }

    #[test]
    fn a_node_that_only_releases_is_not_well() {
        let mut health = Health::default();
        let now = Instant::now();
        health.fails(Some("acquire"), now);
        assert_eq!(health.works("release", now + CALM), None);
        assert_eq!(health.works("acquire", now + CALM), Some(CALM));
        health.fails(Some("release"), now);
        assert_eq!(health.works("acquire", now + CALM), Some(CALM));
    }

    #[test]
    fn a_silent_node_is_noticed_at_the_next_call() {
        let mut health = Health::default();
        let start = Instant::now();
        assert_eq!(health.sent(start, PATIENCE), None);
        assert_eq!(health.sent(start + PATIENCE / 2, PATIENCE), None);
        assert_eq!(health.sent(start + PATIENCE, PATIENCE), Some(PATIENCE));
        assert_eq!(health.sent(start + 2 * PATIENCE, PATIENCE), None, "it is known");
    }

    #[test]
    fn an_answer_to_any_call_is_a_sign_of_life() {
        let mut health = Health::default();
        let start = Instant::now();
        health.sent(start, PATIENCE);
        health.sent(start, PATIENCE);
        health.settled(start + PATIENCE / 2, Answered::Yes);
        assert_eq!(health.sent(start + PATIENCE, PATIENCE), None);
        health.settled(start + PATIENCE, Answered::No);
        assert_eq!(health.sent(start + 2 * PATIENCE, PATIENCE), Some(PATIENCE * 3 / 2));
        for _ in 0..3 {
            health.settled(start + 2 * PATIENCE, Answered::No);
        }
        assert_eq!(health.quiet_since, None, "nothing is asked of it");
    }
}

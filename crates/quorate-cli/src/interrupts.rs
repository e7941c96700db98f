//! What an interrupt means, by those before it.

use std::time::{Duration, Instant};

/// Within this time of the one before, an interrupt is the same key: a wrapper repeats what the terminal sent.
const SAME_KEY: Duration = Duration::from_millis(200);

/// How long after an interrupt that was forwarded a second one kills the command.
const AGAIN: Duration = Duration::from_secs(2);

/// What to do about an interrupt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Interrupt {
    Forward,
    Repeated,
    Kill,
}

/// The last interrupt that was forwarded.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    forwarded: Option<Instant>,
}

impl Interrupts {
    /// An interrupt that came now.
    pub(crate) fn handle(&mut self, now: Instant) -> Interrupt {
        match self.forwarded.map(|at| now.duration_since(at)) {
            Some(since) if since < SAME_KEY => Interrupt::Repeated,
            Some(since) if since < AGAIN => Interrupt::Kill,
            _ => {
                self.forwarded = Some(now);
                Interrupt::Forward
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x3_two_interrupts_within_200_ms_are_one_and_a_later_second_one_kills() {
        use Interrupt::{Forward, Kill, Repeated};

        let start = Instant::now();
        for rows in [
            &[(0, Forward), (0, Repeated), (1, Repeated), (199, Repeated), (200, Kill)][..],
            &[(0, Forward), (150, Repeated), (250, Kill)],
            &[(0, Forward), (1_999, Kill)],
            &[(0, Forward), (2_000, Forward), (2_100, Repeated), (2_200, Kill)],
        ] {
            let mut interrupts = Interrupts::default();
            for (at, meaning) in rows {
                let now = start + Duration::from_millis(*at);
                assert_eq!(interrupts.handle(now), *meaning, "at {at} of {rows:?}");
            }
        }
    }
}

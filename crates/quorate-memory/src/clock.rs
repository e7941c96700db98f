//! A clock that runs too fast or too slow, and may be set forward.

use std::time::{Duration, Instant};

const MILLION: i128 = 1_000_000;

/// How a clock reads while the world's clock reads something else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// At this moment of the world, the clock read `local`.
    world: Instant,
    local: Instant,
    parts_per_million: i32,
}

impl Clock {
    /// A clock that reads `world` at that time and gains `parts_per_million` from then on.
    pub(crate) const fn new(world: Instant, parts_per_million: i32) -> Self {
        Self { world, local: world, parts_per_million }
    }

    pub(crate) fn jump(&mut self, ahead: Duration) {
        self.local += ahead;
    }

    /// Runs at another pace from `world` on, without a jump.
    pub(crate) fn change_pace(&mut self, world: Instant, parts_per_million: i32) {
        *self = Self { world, local: self.read(world), parts_per_million };
    }

    /// What this clock reads when the world's reads `world`.
    pub(crate) fn read(&self, world: Instant) -> Instant {
        let passed = nanos(world.saturating_duration_since(self.world));
        self.local + duration(passed * self.pace() / MILLION)
    }

    /// When, by the world's clock, this clock will read `local` or more.
    pub(crate) fn when(&self, local: Instant) -> Instant {
        let passed = nanos(local.saturating_duration_since(self.local));
        // Rounded up: a sleep is never early.
        self.world + duration((passed * MILLION + self.pace() - 1) / self.pace())
    }

    /// Local time that passes in a million units of true time.
    fn pace(&self) -> i128 {
        (MILLION + i128::from(self.parts_per_million)).max(1)
    }
}

fn nanos(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX)
}

fn duration(nanos: i128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_never_earlier_than_the_clock_that_it_is_read_from() {
        let origin = Instant::now();
        for parts_per_million in [-500_000, -5_000, -1, 0, 1, 3_333, 900_000] {
            let mut clock = Clock::new(origin, parts_per_million);
            clock.jump(Duration::from_millis(5));
            for nanos in [0, 1, 999, 1_000_001, 123_456_789_012] {
                let local = clock.read(origin) + Duration::from_nanos(nanos);
                let world = clock.when(local);
                assert!(clock.read(world) >= local, "{parts_per_million} {nanos}");
                let before = world.checked_sub(Duration::from_nanos(3)).unwrap();
                assert!(nanos == 0 || clock.read(before) < local, "{parts_per_million} {nanos}");
            }
        }
    }

    #[test]
    fn a_fast_clock_gains_as_it_says() {
        let origin = Instant::now();
        let clock = Clock::new(origin, 10_000);
        let later = origin + Duration::from_secs(100);
        assert_eq!(clock.read(later), origin + Duration::from_secs(101));
    }
}

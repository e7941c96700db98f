//! What a manager is told, and what it refuses to be told.

mod builder;
mod error;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use builder::LockManagerBuilder;
pub use error::BuildError;

use crate::algorithm::lease::{Drift, InvalidTtl, Ttl};
use crate::algorithm::renewal::Renewal;
use crate::algorithm::retry::RetryStrategy;
use crate::restarts::RestartGuard;

/// The settings that a round and a request look at.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) ttl: Ttl,
    pub(crate) drift: Drift,
    pub(crate) wait: Duration,
    pub(crate) retry: Arc<dyn RetryStrategy>,
    pub(crate) prefix: Vec<u8>,
    pub(crate) hold_limit: Option<Duration>,
    pub(crate) repairs: bool,
    pub(crate) watches: bool,
    pub(crate) fence_hint: Option<HintSource>,
    pub(crate) restart_guard: Option<RestartGuard>,
    node_timeout: Option<Duration>,
    cleanup_timeout: Option<Duration>,
    margin: Option<Duration>,
    renew_every: Option<Duration>,
}

impl Config {
    /// How long a round listens to a node: what was set, or a tenth of the ttl and 500 ms at the
    /// most; never over half of the validity, so that a slow loss leaves time for another try.
    pub(crate) fn node_timeout(&self, ttl: Ttl) -> Duration {
        let default = || (ttl.as_duration() / 10).min(Duration::from_millis(500));
        self.node_timeout.unwrap_or_else(default).min(self.drift.validity_of(ttl) / 2)
    }

    /// How long cleanup goes on for a node that does not answer: what was set, or the ttl, after
    /// which its keys are gone by themselves.
    pub(crate) fn cleanup_timeout(&self, longest_ttl: Duration) -> Duration {
        self.cleanup_timeout.unwrap_or(longest_ttl)
    }

    /// How long before its end a lease is given up: what was set, or a tenth of the validity and
    /// 500 ms at the most; never over a quarter of it.
    pub(crate) fn margin(&self, ttl: Ttl) -> Duration {
        let validity = self.drift.validity_of(ttl);
        let default = || (validity / 10).min(Duration::from_millis(500));
        self.margin.unwrap_or_else(default).min(validity / 4)
    }

    /// When leases of `ttl` are renewed: every third of the validity, or as was set; but so that a
    /// second try is possible after one that took a node timeout.
    pub(crate) fn renewal(&self, ttl: Ttl) -> Renewal {
        let validity = self.drift.validity_of(ttl);
        let every = self.renew_every.unwrap_or(validity / 3);
        let most = self.longest_interval(ttl).max(validity / 10);
        Renewal::new(validity, every.min(most), self.margin(ttl))
    }

    /// The longest interval between renewals that leaves time for two tries before the margin.
    fn longest_interval(&self, ttl: Ttl) -> Duration {
        let taken = self.margin(ttl) + 2 * self.node_timeout(ttl);
        self.drift.validity_of(ttl).saturating_sub(taken)
    }

    /// Checks that a cap on the time of holding leaves something to hold.
    pub(crate) fn check_hold_limit(
        &self,
        limit: Option<Duration>,
        ttl: Ttl,
    ) -> Result<(), (Duration, Duration)> {
        let Some(limit) = limit else { return Ok(()) };
        let least = self.margin(ttl);
        if limit > least { Ok(()) } else { Err((limit, least)) }
    }

    /// Parses a ttl and checks that the drift leaves something of it, and the restart guard allows
    /// it.
    pub(crate) fn parse_ttl(&self, ttl: Duration) -> Result<Ttl, InvalidTtl> {
        parse_ttl(ttl, self.drift, self.restart_guard)
    }
}

/// Where the hints of fencing tokens come from, if not from the runtime.
#[derive(Clone)]
pub(crate) struct HintSource(Arc<dyn Fn() -> u64 + Send + Sync>);

impl HintSource {
    pub(crate) fn micros(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for HintSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HintSource(..)")
    }
}

fn parse_ttl(ttl: Duration, drift: Drift, guard: Option<RestartGuard>) -> Result<Ttl, InvalidTtl> {
    let too_short = InvalidTtl::TooShort { ttl, least: drift.least_ttl() };
    let parsed = match Ttl::try_from(ttl) {
        Err(InvalidTtl::TooShort { .. }) => return Err(too_short),
        parsed => parsed?,
    };
    if drift.validity_of(parsed).is_zero() && !planted!("ttl_without_validity_is_accepted") {
        return Err(too_short);
    }
    match guard.map(|guard| guard.max_ttl()) {
        Some(max_ttl) if parsed.as_duration() > max_ttl => {
            return Err(InvalidTtl::OverMaxTtl { ttl, max_ttl });
        }
        _ => {}
    }
    Ok(parsed)
}

#[cfg(test)]
#[cfg(feature = "smol")]
mod tests {
    use super::*;
    use crate::algorithm::retry::Backoff;
    use crate::backend::LockBackend;
    use crate::runtime::SmolRuntime;

    /// The README repeats this table; `cargo xtask readme` compares the two.
    const TABLE: &str = include_str!("config/defaults.md");

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    fn rows() -> Vec<(&'static str, &'static str)> {
        let cells =
            |line: &'static str| line.split(" | ").map(|cell| cell.trim_matches(['|', ' ']));
        let row = |line| match cells(line).collect::<Vec<_>>()[..] {
            [name, default, _] => (name.trim_matches('`'), default),
            ref other => panic!("{other:?}"),
        };
        TABLE.lines().skip(2).map(row).collect()
    }

    fn row(name: &str) -> &'static str {
        rows().into_iter().find(|(row, _)| *row == name).unwrap_or_else(|| panic!("{name}")).1
    }

    fn duration(text: &str) -> Duration {
        let (number, unit) = text.split_once(' ').unwrap();
        let number: u32 = number.parse().unwrap();
        match unit {
            "ms" => number * MS,
            "s" => number * SECOND,
            _ => panic!("{text}"),
        }
    }

    /// The value of a cell such as `ttl / 10, at most 500 ms`.
    fn value(cell: &str, ttl: Ttl) -> Duration {
        let (part, most) = match cell.split_once(", at most ") {
            Some((part, most)) => (part, duration(most)),
            None => (cell, Duration::MAX),
        };
        let (whole, divisor) = part.split_once(" / ").unwrap_or((part, "1"));
        let whole = match whole {
            "ttl" => ttl.as_duration(),
            "validity" => Drift::default().validity_of(ttl),
            _ => panic!("{cell}"),
        };
        (whole / divisor.parse::<u32>().unwrap()).min(most)
    }

    #[test]
    fn the_table_of_defaults_is_that_of_the_code() {
        let no_nodes: [Arc<dyn LockBackend>; 0] = [];
        let ttl = Ttl::try_from(duration(row("ttl"))).unwrap();
        let builder = LockManagerBuilder::new(SmolRuntime, no_nodes);
        let config = builder.config(ttl);
        assert_eq!(builder.ttl, ttl.as_duration());
        assert_eq!(config.wait, duration(row("wait")));
        let (percent, constant) = row("drift").split_once(" % of the ttl + ").unwrap();
        let parts_per_million = percent.parse::<u32>().unwrap() * 10_000;
        assert_eq!(config.drift, Drift::new(parts_per_million, duration(constant)));
        let (base, cap) = row("retry").split_once(", doubling up to ").unwrap();
        let backoff = Backoff::new(duration(base.strip_prefix("up to ").unwrap()), duration(cap));
        assert_eq!(format!("{:?}", config.retry), format!("{backoff:?}"));
        for ttl in [100 * MS, SECOND, 10 * SECOND, 60 * SECOND] {
            let ttl = Ttl::try_from(ttl).unwrap();
            assert_eq!(config.node_timeout(ttl), value(row("node_timeout"), ttl));
            assert_eq!(config.margin(ttl), value(row("margin"), ttl));
            assert_eq!(
                config.cleanup_timeout(ttl.as_duration()),
                value(row("cleanup_timeout"), ttl)
            );
            let validity = Drift::default().validity_of(ttl);
            let every = value(row("renew_every"), ttl);
            let expected = Renewal::new(validity, every, config.margin(ttl));
            assert_eq!(config.renewal(ttl), expected);
        }
        assert_eq!((config.hold_limit, row("hold_limit")), (None, "none"));
        assert_eq!((&config.prefix[..], row("key_prefix")), (&[][..], "none"));
        assert_eq!((config.restart_guard, row("restart_guard")), (None, "off"));
        assert_eq!(rows().len(), 11, "each row is looked at above");
    }
}

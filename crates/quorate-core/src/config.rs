//! The settings of a manager, checked.

use std::time::Duration;

use crate::algorithm::backoff::Backoff;
use crate::algorithm::lease::{Drift, InvalidTtl, SafetyMargin, Ttl};
use crate::algorithm::renewal::Renewal;
use crate::error::BuildError;
use crate::resource::Label;
use crate::seam::backend::RestartGuard;

/// The least validity of a lease. With less, renewals would follow each other without a pause.
const LEAST_VALIDITY: Duration = Duration::from_millis(1);

/// The least ttl of a lease that is renewed. With less, a runtime that is busy for a few
/// milliseconds loses it.
pub(crate) const LEAST_RENEWED: Duration = Duration::from_millis(50);

/// All settings of a manager.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) ttl: Duration,
    pub(crate) wait_timeout: Duration,
    pub(crate) drift: Drift,
    pub(crate) safety_margin: SafetyMargin,
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) renew_interval: Option<Duration>,
    pub(crate) hold_limit: Option<Duration>,
    pub(crate) max_waiters: Option<usize>,
    pub(crate) backoff: Backoff,
    pub(crate) key_prefix: Vec<u8>,
    pub(crate) label: Option<Label>,
    pub(crate) restart_guard: Option<RestartGuard>,
}

impl Default for Config {
    /// What `config/defaults.md` says.
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(10),
            wait_timeout: Duration::from_secs(30),
            drift: Drift::default(),
            safety_margin: SafetyMargin::default(),
            node_timeout: None,
            renew_interval: None,
            hold_limit: None,
            max_waiters: None,
            backoff: Backoff { base: Duration::from_millis(10), most: Duration::from_secs(1) },
            key_prefix: Vec::new(),
            label: None,
            restart_guard: None,
        }
    }
}

impl Config {
    /// The part of the ttl that a holder may rely on (T2).
    pub(crate) fn validity(&self, ttl: Ttl) -> Duration {
        self.safety_margin.validity(self.drift, ttl)
    }

    /// How long one call to a node may count for its round: never over half of the validity, so
    /// that a slow node leaves time for a second try.
    pub(crate) fn node_timeout(&self, ttl: Ttl) -> Duration {
        let default = || (ttl.as_duration() / 10).min(Duration::from_millis(500));
        self.node_timeout.unwrap_or_else(default).min(self.validity(ttl) / 2)
    }

    /// The same for the ttl of the manager.
    pub(crate) fn default_node_timeout(&self) -> Duration {
        self.parse_ttl(self.ttl).map_or(Duration::ZERO, |ttl| self.node_timeout(ttl))
    }

    /// When leases of `ttl` are renewed: so early that a second try is possible.
    pub(crate) fn renewal(&self, ttl: Ttl) -> Renewal {
        let validity = self.validity(ttl);
        let most = validity.saturating_sub(2 * self.node_timeout(ttl)).max(validity / 10);
        Renewal::new(validity, self.renew_interval.unwrap_or(validity / 3).min(most))
    }

    /// Parses the ttl of a request, or of the manager (T3).
    pub(crate) fn parse_ttl(&self, ttl: Duration) -> Result<Ttl, InvalidTtl> {
        let too_short = || InvalidTtl::TooShort { ttl, least: self.least_ttl() };
        let parsed = match Ttl::try_from(ttl) {
            Err(InvalidTtl::TooShort { .. }) => return Err(too_short()),
            parsed => parsed?,
        };
        if self.validity(parsed) < LEAST_VALIDITY {
            return Err(too_short());
        }
        match self.restart_guard.map(|guard| guard.max_ttl()) {
            Some(max_ttl) if parsed.as_duration() > max_ttl => {
                Err(InvalidTtl::OverMaxTtl { ttl, max_ttl })
            }
            _ => Ok(parsed),
        }
    }

    /// The shortest ttl of which drift and safety margin leave enough; `Duration::MAX` if there is
    /// none.
    fn least_ttl(&self) -> Duration {
        let is_enough = |millis: u64| {
            let ttl = Ttl::try_from(Duration::from_millis(millis));
            ttl.is_ok_and(|ttl| self.validity(ttl) >= LEAST_VALIDITY)
        };
        let (mut least, mut most) = (0, u64::try_from(Ttl::MAX.as_millis()).unwrap_or(u64::MAX));
        if !is_enough(most) {
            return Duration::MAX;
        }
        while least + 1 < most {
            let middle = least.midpoint(most);
            if is_enough(middle) { most = middle } else { least = middle }
        }
        Duration::from_millis(most)
    }

    /// Refuses settings that contradict each other (T3).
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        if let Some(guard) = self.restart_guard {
            Ttl::try_from(guard.max_ttl())?;
        }
        let ttl = self.parse_ttl(self.ttl)?;
        let validity = self.validity(ttl);
        let interval = validity.saturating_sub(2 * self.node_timeout(ttl));
        let tick = Duration::from_nanos(1);
        for (setting, value, least, most) in [
            ("node_timeout", self.node_timeout, tick, validity / 2),
            ("renew_interval", self.renew_interval, tick, interval),
            ("hold_limit", self.hold_limit, tick, Duration::MAX),
            // Without a delay, nodes that reply at once would be asked without end.
            ("backoff", Some(self.backoff.base), Duration::from_millis(1), self.backoff.most),
        ] {
            if let Some(value) = value
                && !(least..=most).contains(&value)
            {
                return Err(BuildError::OutOfRange { setting, value, least, most });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_defaults_says_what_is_set() {
        let table = include_str!("config/defaults.md");
        let Config { ttl, wait_timeout, backoff, hold_limit, max_waiters, .. } = Config::default();
        let (base, most) = (backoff.base.as_millis(), backoff.most.as_secs());
        for (setting, default) in [
            ("ttl", format!("{} s", ttl.as_secs())),
            ("wait_timeout", format!("{} s", wait_timeout.as_secs())),
            ("node_timeout", "ttl / 10, at most 500 ms".into()),
            ("backoff", format!("up to {base} ms, doubling up to {most} s")),
        ] {
            assert!(
                table.contains(&format!("| `{setting}` | {default} |")),
                "{setting}: {default}"
            );
        }
        assert_eq!((hold_limit, max_waiters), (None, None));
        let node_timeout = |seconds| {
            let ttl = Ttl::try_from(Duration::from_secs(seconds)).unwrap();
            Config::default().node_timeout(ttl).as_millis()
        };
        assert_eq!([4, 60].map(node_timeout), [400, 500]);
    }
}

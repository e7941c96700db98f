//! Under which names a lock can be found: that of a permit or of a period is another one than the user gives.

use std::env;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use quorate::backend::Ttl;
use quorate::error::InvalidRequest;
use tz::{DateTime, TimeZone};

use crate::args::Period;
use crate::exit::Failure;

/// The shortest period. The longest is the longest ttl.
const LEAST_PERIOD: Duration = Duration::from_secs(1);

/// The longest day of a calendar: summer time ends.
const LONGEST_DAY: Duration = Duration::from_secs(25 * 60 * 60);

/// The name of a lock.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    /// The end of the period in Unix time, if it is the name of one.
    pub(crate) ends: Option<Duration>,
}

/// The names to lock: those given, the permits, or the name of the period.
pub(crate) fn names(
    given: &[String],
    permits: Option<u16>,
    once_per: Option<Period>,
) -> Result<Vec<Name>, Failure> {
    match (given, permits, once_per) {
        (_, None, None) => {
            Ok(given.iter().map(|name| Name { text: name.clone(), ends: None }).collect())
        }
        ([name], Some(count), _) => Ok(permits_of(name, count).collect()),
        ([name], _, Some(period)) => Ok(vec![of_period(name, period)?]),
        _ => Err(Failure::usage("--permits and --once-per need one name")),
    }
}

pub(crate) fn permits_of(name: &str, count: u16) -> impl Iterator<Item = Name> {
    (1..=count).map(move |number| Name { text: format!("{name}#{number}"), ends: None })
}

/// As [`LockManager::once_per`](quorate::LockManager::once_per) has it, or with a date: two kinds of period never share a
/// name.
pub(crate) fn of_period(name: &str, period: Period) -> Result<Name, Failure> {
    let now = UNIX_EPOCH.elapsed().map_err(Failure::usage)?;
    let (period, ends) = match period {
        Period::Unix(period) if !(LEAST_PERIOD..=Ttl::MAX).contains(&period) => {
            return Err(Failure::usage(InvalidRequest::Period { period }));
        }
        Period::Unix(period) => {
            let number = now.as_nanos() / period.as_nanos();
            let ends = u64::try_from((number + 1) * period.as_nanos()).unwrap_or(u64::MAX);
            (number.to_string(), Duration::from_nanos(ends))
        }
        Period::LocalDay => local_day(now)?,
    };
    Ok(Name { text: format!("{name}@{period}"), ends: Some(ends) })
}

/// The date, and the end of the day.
fn local_day(now: Duration) -> Result<(String, Duration), Failure> {
    let (zone, minute) = (zone()?, now.as_secs() / 60);
    let date_at = |minute: u64| {
        let time = DateTime::from_timespec((minute * 60).cast_signed(), 0, zone.as_ref());
        time.map(|time| date(&time)).map_err(Failure::usage)
    };
    let (today, mut end) = (date_at(minute)?, minute + 1);
    while date_at(end)? == today {
        end += 1;
    }
    Ok((today, Duration::from_secs(end * 60)))
}

impl Period {
    /// The longest time from its begin to its end.
    pub(crate) fn length(self) -> Duration {
        match self {
            Self::Unix(length) => length,
            Self::LocalDay => LONGEST_DAY,
        }
    }
}

/// The time zone as every program has it: of the variable `TZ`, else of the system, else UTC. A zone that is not there is an
/// error: another machine, which has it, would run the command on another day.
fn zone() -> Result<TimeZone, Failure> {
    match env::var("TZ").ok().as_deref() {
        None if Path::new("/etc/localtime").exists() => TimeZone::local(),
        None | Some("") => Ok(TimeZone::utc()),
        Some(name) => TimeZone::from_posix_tz(name),
    }
    .map_err(|_| Failure::usage("there is no such time zone: see TZ, or /etc/localtime"))
}

/// The date of a time.
fn date(time: &DateTime) -> String {
    format!("{:04}-{:02}-{:02}", time.year(), time.month(), time.month_day())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 60 * 60;

    /// The hours of each day from 2026-01-01 on, in a zone with summer time.
    fn days() -> Vec<(String, i64)> {
        let zone = TimeZone::from_posix_tz("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let mut days: Vec<(String, i64)> = Vec::new();
        // Midnight in CET.
        let begin = 1_767_222_000;
        for hour in 0..365 * 24 {
            let time = DateTime::from_timespec(begin + hour * HOUR, 0, zone.as_ref()).unwrap();
            let date = date(&time);
            match days.last_mut() {
                Some((last, hours)) if *last == date => *hours += 1,
                _ => days.push((date, 1)),
            }
        }
        days
    }

    #[test]
    fn a_local_day_has_one_name_and_lasts_until_midnight() {
        let days = days();
        assert_eq!((&*days[0].0, &*days[364].0, days.len()), ("2026-01-01", "2026-12-31", 365));
        for (day, hours) in &days {
            let expected = match &**day {
                "2026-03-29" => 23,
                "2026-10-25" => 25,
                _ => 24,
            };
            assert_eq!(*hours, expected, "{day}");
        }
    }

    #[test]
    fn the_mark_of_a_local_day_outlives_the_next_one() {
        let mark = i64::try_from(2 * Period::LocalDay.length().as_secs()).unwrap();
        assert!(days().windows(2).all(|two| (two[0].1 + two[1].1) * HOUR <= mark));
    }
}

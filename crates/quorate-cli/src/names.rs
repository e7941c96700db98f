//! Under which names a lock can be found: that of a permit or of a period is another one than the
//! user gives.

use std::env;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use tz::{DateTime, TimeZone};

use crate::args::{Calendar, Period};
use crate::exit::Failure;

const HOUR: Duration = Duration::from_secs(60 * 60);

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

/// As [`LockManager::once_per`](quorate::LockManager::once_per) has it, or with a date: two kinds
/// of period never share a name.
pub(crate) fn of_period(name: &str, period: Period) -> Result<Name, Failure> {
    let now = UNIX_EPOCH.elapsed().map_err(Failure::usage)?;
    let (period, ends) = match period {
        Period::Utc(period) => name_and_end(now, |time| Ok(period.name_at(time)))?,
        Period::Local(calendar) => {
            let zone = zone()?;
            name_and_end(now, |time| calendar.name_at(time, &zone))?
        }
    };
    Ok(Name { text: format!("{name}@{period}"), ends: Some(ends) })
}

/// The name of the period of now, and its end: the first second of another name.
fn name_and_end(
    now: Duration,
    name_at: impl Fn(Duration) -> Result<String, Failure>,
) -> Result<(String, Duration), Failure> {
    let (name, mut last) = (name_at(now)?, now.as_secs());
    let mut next = last + Calendar::Month.length().as_secs();
    while next - last > 1 {
        let between = last.midpoint(next);
        match name_at(Duration::from_secs(between))? == name {
            true => last = between,
            false => next = between,
        }
    }
    Ok((name, Duration::from_secs(next)))
}

impl Calendar {
    /// What stands behind the `@`, at this time since 1970.
    fn name_at(self, time: Duration, zone: &TimeZone) -> Result<String, Failure> {
        let time = DateTime::from_timespec(time.as_secs().cast_signed(), 0, zone.as_ref());
        let time = time.map_err(Failure::usage)?;
        // As if the local time were that of UTC.
        let local = time.unix_time() + i64::from(time.local_time_type().ut_offset());
        let local = Duration::from_secs(u64::try_from(local).map_err(Failure::usage)?);
        let of = |period: quorate::Period| period.name_at(local).trim_end_matches('Z').to_owned();
        Ok(match self {
            Self::Day => format!("{:04}-{:02}-{:02}", time.year(), time.month(), time.month_day()),
            Self::Week => of(quorate::Period::Week),
            Self::Month => of(quorate::Period::Month),
        })
    }

    /// The longest time from its begin to its end: summer time may end.
    fn length(self) -> Duration {
        HOUR + match self {
            Self::Day => 24 * HOUR,
            Self::Week => quorate::Period::Week.length(),
            Self::Month => quorate::Period::Month.length(),
        }
    }
}

impl Period {
    /// The longest time from its begin to its end.
    pub(crate) fn length(self) -> Duration {
        match self {
            Self::Utc(period) => period.length(),
            Self::Local(calendar) => calendar.length(),
        }
    }
}

/// The time zone as every program has it: of the variable `TZ`, else of the system, else UTC. A
/// zone that is not there is an error: another machine, which has it, would run the command on
/// another day.
fn zone() -> Result<TimeZone, Failure> {
    match env::var("TZ").ok().as_deref() {
        None if Path::new("/etc/localtime").exists() => TimeZone::local(),
        None | Some("") => Ok(TimeZone::utc()),
        Some(name) => TimeZone::from_posix_tz(name),
    }
    .map_err(|_| Failure::usage("there is no such time zone: see TZ, or /etc/localtime"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOURS: u64 = 60 * 60;

    /// The names and the hours of each such period from midnight of Thursday 2026-01-01 on, in a
    /// zone with summer time.
    fn names_of(calendar: Calendar) -> Vec<(String, u64)> {
        let zone = TimeZone::from_posix_tz("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let mut all: Vec<(String, u64)> = Vec::new();
        let begin = 1_767_222_000;
        for hour in 0..365 * 24 {
            let time = Duration::from_secs(begin + hour * HOURS);
            let name = calendar.name_at(time, &zone).unwrap();
            match all.last_mut() {
                Some((last, hours)) if *last == name => *hours += 1,
                _ => all.push((name, 1)),
            }
        }
        all
    }

    fn week(number: u32) -> String {
        format!("2026-W{number:02}")
    }

    #[test]
    fn a_local_day_has_one_name_and_lasts_until_midnight() {
        let days = names_of(Calendar::Day);
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
    fn a_local_week_begins_on_monday_and_a_local_month_on_the_first() {
        let weeks = names_of(Calendar::Week);
        assert_eq!((&weeks[0], weeks.len()), (&(week(1), 4 * 24), 53));
        for ((name, hours), number) in weeks[1..52].iter().zip(2..) {
            let expected = match number {
                13 => 7 * 24 - 1,
                43 => 7 * 24 + 1,
                _ => 7 * 24,
            };
            assert_eq!((name, *hours), (&week(number), expected));
        }
        let months = names_of(Calendar::Month);
        let days = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        for ((month, hours), (number, days)) in months.iter().zip((1..).zip(days)) {
            let expected = days * 24 - u64::from(number == 3) + u64::from(number == 10);
            assert_eq!((&**month, *hours), (&*format!("2026-{number:02}"), expected));
        }
        assert_eq!(months.len(), 12);
    }

    #[test]
    fn the_mark_of_a_local_period_outlives_the_next_one() {
        for calendar in [Calendar::Day, Calendar::Week, Calendar::Month] {
            let mark = 2 * calendar.length().as_secs();
            let names = names_of(calendar);
            assert!(names.windows(2).all(|two| (two[0].1 + two[1].1) * HOURS <= mark));
        }
    }

    #[test]
    fn a_period_ends_with_the_second_before_the_next_one() {
        // Each from Sunday 2026-11-29 12:34:56 on: until midnight, so that the week ends with the
        // day.
        let now = Duration::from_secs(1_795_955_696);
        for (period, name, ends) in [
            (quorate::Period::Every(HOUR), "498876", 1_795_957_200),
            (quorate::Period::Week, "2026-W48Z", 1_795_996_800),
            (quorate::Period::Month, "2026-11Z", 1_796_083_200),
        ] {
            let found = name_and_end(now, |time| Ok(period.name_at(time))).unwrap();
            assert_eq!(found, (name.to_owned(), Duration::from_secs(ends)));
        }
        let zone = TimeZone::from_posix_tz("CET-1").unwrap();
        for (calendar, name, ends) in [
            (Calendar::Day, "2026-11-29".to_owned(), 1_795_993_200),
            (Calendar::Week, week(48), 1_795_993_200),
            (Calendar::Month, "2026-11".to_owned(), 1_796_079_600),
        ] {
            let found = name_and_end(now, |time| calendar.name_at(time, &zone)).unwrap();
            assert_eq!(found, (name, Duration::from_secs(ends)));
        }
    }
}

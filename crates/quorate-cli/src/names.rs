//! Under which names a lock can be found: that of a permit or of a period is another one than the
//! user gives.

use std::env;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use humantime::format_rfc3339_seconds;
use tz::TimeZone;

use crate::args::Period;
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
    let zone = if period.is_local { zone()? } else { TimeZone::utc() };
    let now = UNIX_EPOCH.elapsed().map_err(Failure::usage)?;
    let (period, ends) = period.name_and_end(now, &zone)?;
    Ok(Name { text: format!("{name}@{period}"), ends: Some(ends) })
}

impl Period {
    /// The name of the period of now, and its end: the first second of another name.
    fn name_and_end(self, now: Duration, zone: &TimeZone) -> Result<(String, Duration), Failure> {
        let (name, mut last) = (self.name_at(now, zone)?, now.as_secs());
        let mut next = last + (quorate::Period::Month.length() + HOUR).as_secs();
        while next - last > 1 {
            let between = last.midpoint(next);
            match self.name_at(Duration::from_secs(between), zone)? == name {
                true => last = between,
                false => next = between,
            }
        }
        Ok((name, Duration::from_secs(next)))
    }

    /// What stands behind the `@`, at this time since 1970.
    fn name_at(self, time: Duration, zone: &TimeZone) -> Result<String, Failure> {
        let unix = time.as_secs().cast_signed();
        let offset = zone.find_local_time_type(unix).map_err(Failure::usage)?.ut_offset();
        // As if the local time were that of UTC.
        let local = u64::try_from(unix + i64::from(offset)).map_err(Failure::usage)?;
        let local = Duration::from_secs(local);
        Ok(match (self.of, self.is_local) {
            (period, false) => period.name_at(time),
            (quorate::Period::Every(_), true) => {
                format_rfc3339_seconds(UNIX_EPOCH + local).to_string().chars().take(10).collect()
            }
            (period, true) => period.name_at(local).trim_end_matches('Z').to_owned(),
        })
    }

    /// The longest time from its begin to its end: summer time may end.
    pub(crate) fn length(self) -> Duration {
        if self.is_local { self.of.length() + HOUR } else { self.of.length() }
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
    use quorate::Period::{Every, Month, Week};

    use super::*;

    const HOURS: u64 = 60 * 60;

    const DAY: quorate::Period = Every(Duration::from_secs(24 * HOURS));

    const fn local(of: quorate::Period) -> Period {
        Period { of, is_local: true }
    }

    /// The names and the hours of each such period from midnight of Thursday 2026-01-01 on, in a
    /// zone with summer time.
    fn names_of(of: quorate::Period) -> Vec<(String, u64)> {
        let zone = TimeZone::from_posix_tz("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let period = local(of);
        let mut all: Vec<(String, u64)> = Vec::new();
        let begin = 1_767_222_000;
        for hour in 0..365 * 24 {
            let time = Duration::from_secs(begin + hour * HOURS);
            let name = period.name_at(time, &zone).unwrap();
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
        let days = names_of(DAY);
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
        let weeks = names_of(Week);
        assert_eq!((&weeks[0], weeks.len()), (&(week(1), 4 * 24), 53));
        for ((name, hours), number) in weeks[1..52].iter().zip(2..) {
            let expected = match number {
                13 => 7 * 24 - 1,
                43 => 7 * 24 + 1,
                _ => 7 * 24,
            };
            assert_eq!((name, *hours), (&week(number), expected));
        }
        let months = names_of(Month);
        let days = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        for ((month, hours), (number, days)) in months.iter().zip((1..).zip(days)) {
            let expected = days * 24 - u64::from(number == 3) + u64::from(number == 10);
            assert_eq!((&**month, *hours), (&*format!("2026-{number:02}"), expected));
        }
        assert_eq!(months.len(), 12);
    }

    #[test]
    fn the_mark_of_a_local_period_outlives_the_next_one() {
        for of in [DAY, Week, Month] {
            let mark = 2 * local(of).length().as_secs();
            let names = names_of(of);
            assert!(names.windows(2).all(|two| (two[0].1 + two[1].1) * HOURS <= mark));
        }
    }

    #[test]
    fn a_period_ends_with_the_second_before_the_next_one() {
        // Each from Sunday 2026-11-29 12:34:56 on: until midnight, so that the week ends with the
        // day.
        let now = Duration::from_secs(1_795_955_696);
        for (of, name, ends) in [
            (Every(HOUR), "498876", 1_795_957_200),
            (Week, "2026-W48Z", 1_795_996_800),
            (Month, "2026-11Z", 1_796_083_200),
        ] {
            let period = Period { of, is_local: false };
            let found = period.name_and_end(now, &TimeZone::utc()).unwrap();
            assert_eq!(found, (name.to_owned(), Duration::from_secs(ends)));
        }
        let zone = TimeZone::from_posix_tz("CET-1").unwrap();
        for (of, name, ends) in [
            (DAY, "2026-11-29".to_owned(), 1_795_993_200),
            (Week, week(48), 1_795_993_200),
            (Month, "2026-11".to_owned(), 1_796_079_600),
        ] {
            let found = local(of).name_and_end(now, &zone).unwrap();
            assert_eq!(found, (name, Duration::from_secs(ends)));
        }
    }
}

//! Weeks and months of the calendar, of days that are counted from 1970-01-01.

/// The days of the months in a year that is no leap year.
const MONTHS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

const fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// The year of a day, and its number in the year, from 0.
const fn year_of(mut day: u64) -> (u64, u64) {
    let mut year = 1970;
    loop {
        let days = if is_leap(year) { 366 } else { 365 };
        if day < days {
            return (year, day);
        }
        (year, day) = (year + 1, day - days);
    }
}

/// The year and the month of a day.
pub(crate) fn month_of(day: u64) -> (u64, u64) {
    let (year, mut day) = year_of(day);
    let mut month = 1;
    for days in MONTHS {
        let days = days + u64::from(month == 2 && is_leap(year));
        if day < days {
            break;
        }
        (month, day) = (month + 1, day - days);
    }
    (year, month)
}

/// The year and the number of the week of a day, as ISO 8601 has them.
///
/// A week begins on Monday, and belongs to the year that has its Thursday.
pub(crate) const fn week_of(day: u64) -> (u64, u64) {
    // 1970-01-01 was a Thursday.
    let since_monday = (day + 3) % 7;
    let (year, thursday) = year_of(day + 3 - since_monday);
    (year, thursday / 7 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Days of the command `date`: `date -ud DATE '+%s %G-W%V %Y-%m'`.
    #[test]
    fn a_day_has_the_week_and_the_month_that_other_programs_know() {
        for (seconds, week, month) in [
            (0, (1970, 1), (1970, 1)),
            // Sunday 1970-01-04, and the Monday behind it.
            (259_200, (1970, 1), (1970, 1)),
            (345_600, (1970, 2), (1970, 1)),
            // 2000-02-29 and the day behind it.
            (951_782_400, (2000, 9), (2000, 2)),
            (951_868_800, (2000, 9), (2000, 3)),
            // Friday 2021-01-01 belongs to the last week of 2020, which has 53.
            (1_609_459_200, (2020, 53), (2021, 1)),
            // Monday 2024-12-30 belongs to the first week of 2025.
            (1_735_516_800, (2025, 1), (2024, 12)),
            (1_764_288_000, (2025, 48), (2025, 11)),
            (1_793_491_200, (2026, 44), (2026, 11)),
            // 2100 is no leap year: 2100-02-28, and the day behind it.
            (4_107_456_000, (2100, 8), (2100, 2)),
            (4_107_542_400, (2100, 9), (2100, 3)),
        ] {
            let day = seconds / 86_400;
            assert_eq!((week_of(day), month_of(day)), (week, month), "{seconds}");
        }
    }

    #[test]
    fn each_week_has_seven_days_and_each_month_28_to_31() {
        let (mut weeks, mut months) = (vec![(week_of(0), 0)], vec![(month_of(0), 0)]);
        for day in 0..150_000 {
            for (all, one) in [(&mut weeks, week_of(day)), (&mut months, month_of(day))] {
                match all.last_mut() {
                    Some((last, days)) if *last == one => *days += 1,
                    last => {
                        assert!(last.is_none_or(|(last, _)| *last < one), "{one:?}");
                        all.push((one, 1));
                    }
                }
            }
        }
        // The first week began on Monday 1969-12-29, and the last ones are cut short.
        let whole = |all: &[((u64, u64), u64)]| all[1..all.len() - 1].to_vec();
        assert!(whole(&weeks).iter().all(|(_, days)| *days == 7));
        assert!(whole(&months).iter().all(|(_, days)| (28..=31).contains(days)));
        assert_eq!(weeks[0].1, 4);
    }
}

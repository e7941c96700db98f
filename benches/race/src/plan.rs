//! The command line of the race.

use std::path::PathBuf;
use std::time::Duration;

use crate::Outcome;
use crate::measure::MEASURES;

const USAGE: &str = "cargo xtask race [--quick] [--only MEASURE,…] [--seconds S] \
                     [--repetitions R] [--leases N] [--ttl S] [--out DIR] [--publish]";

#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// A test run: one repetition of 30 ms.
    pub(crate) quick: bool,
    /// The selected measures; all if empty.
    only: Vec<String>,
    /// The duration of one sample, in most measures.
    pub(crate) sample: Duration,
    pub(crate) repetitions: usize,
    /// The number of renewed leases, if given.
    leases: Option<usize>,
    /// The ttl of the renewed leases, if given.
    ttl: Option<Duration>,
    pub(crate) out: PathBuf,
    /// Replaces the published report.
    pub(crate) publish: bool,
}

impl Plan {
    pub(crate) fn parse(words: &[String]) -> Outcome<Self> {
        let (mut seconds, mut repetitions) = (None, None);
        let mut plan = Self { out: PathBuf::from("target/race"), ..Self::default() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} what?\n{USAGE}"));
            match word.as_str() {
                "--quick" => plan.quick = true,
                "--publish" => plan.publish = true,
                "--out" => plan.out = value()?.into(),
                "--seconds" => seconds = Some(value()?.parse::<f64>()?),
                "--repetitions" => repetitions = Some(value()?.parse::<usize>()?),
                "--leases" => plan.leases = Some(value()?.parse()?),
                "--ttl" => plan.ttl = Some(Duration::try_from_secs_f64(value()?.parse()?)?),
                "--only" => plan.only = value()?.split(',').map(str::to_owned).collect(),
                _ => return Err(format!("{USAGE}\nmeasures: {}", names().join(" ")).into()),
            }
        }
        if let Some(unknown) = plan.only.iter().find(|name| !names().contains(&name.as_str())) {
            return Err(format!("no measure {unknown}; there are {}", names().join(" ")).into());
        }
        let sample = seconds.unwrap_or(if plan.quick { 0.03 } else { 0.4 });
        plan.sample = Duration::try_from_secs_f64(sample)?;
        plan.repetitions = repetitions.unwrap_or(if plan.quick { 1 } else { 5 }).max(1);
        Ok(plan)
    }

    pub(crate) fn includes(&self, measure: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == measure)
    }

    /// Repetitions of a measure that takes little time and varies much.
    pub(crate) const fn repetitions_of_what_varies(&self) -> usize {
        if self.quick { self.repetitions } else { 3 * self.repetitions }
    }

    /// Repetitions of a measure that takes long or varies little.
    pub(crate) fn repetitions_up_to(&self, most: usize) -> usize {
        self.repetitions.min(most)
    }

    /// The number of renewed leases, and their ttl.
    pub(crate) fn renewed(&self) -> (usize, Duration) {
        let (leases, ttl) = if self.quick { (100, 0.4) } else { (100_000, 30.0) };
        (self.leases.unwrap_or(leases), self.ttl.unwrap_or_else(|| Duration::from_secs_f64(ttl)))
    }

    /// All settings, or in a quick run the first `few`.
    pub(crate) fn few<'a, T>(&self, all: &'a [T], few: usize) -> &'a [T] {
        if self.quick { &all[..few.min(all.len())] } else { all }
    }
}

fn names() -> Vec<&'static str> {
    MEASURES.iter().map(|measure| measure.name).collect()
}

/// All of `all`, rotated by `repetition`, so that no contestant is always the first.
pub(crate) fn rotated<'a, T: Copy>(
    all: &'a [T],
    repetition: usize,
) -> impl Iterator<Item = T> + use<'a, T> {
    let (head, tail) = all.split_at(repetition % all.len().max(1));
    tail.iter().chain(head).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Outcome<Plan> {
        Plan::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn nothing_said_is_everything_and_each_part_can_be_chosen() {
        let plan = parse("").unwrap();
        assert!(plan.includes("latency") && plan.includes("handover"));
        assert_eq!(plan.renewed(), (100_000, Duration::from_secs(30)));
        let plan = parse("--only latency,hung --repetitions 9 --leases 1000 --ttl 2.5").unwrap();
        assert!(plan.includes("hung") && !plan.includes("handover"));
        assert_eq!((plan.repetitions, plan.repetitions_up_to(3)), (9, 3));
        assert_eq!(plan.renewed(), (1000, Duration::from_millis(2500)));
        for wrong in ["--only nonsense", "--only", "--ttl -1"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn everybody_is_first_once() {
        assert_eq!(rotated(&[1, 2, 3], 4).collect::<Vec<_>>(), [2, 3, 1]);
    }
}

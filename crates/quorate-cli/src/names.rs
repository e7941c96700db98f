//! Under which names a lock can be found: that of a permit or of a period is another one than the user gives.

use std::time::{Duration, UNIX_EPOCH};

use quorate::{Inspection, LockManager, LockState};

use crate::args::{Period, Under};
use crate::exit::Failure;

/// How many permits are looked at, where their number is not given.
const PERMITS: u16 = 64;

/// The periods that are looked at, where none is given: so many of each unit, in seconds.
const PERIODS: [(u64, u64); 4] = [(59, 1), (59, 60), (23, 60 * 60), (31, 24 * 60 * 60)];

/// The name of a lock.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    /// The end of the period in Unix time, if it is the name of one.
    ends: Option<Duration>,
}

impl Name {
    const fn plain(text: String) -> Self {
        Self { text, ends: None }
    }
}

/// The names to lock: those given, the permits, or the name of the period, as [`LockManager::once_per`] has it.
pub(crate) fn names(
    given: &[String],
    permits: Option<u16>,
    once_per: Option<Period>,
) -> Result<Vec<Name>, Failure> {
    match (given, permits, once_per) {
        (_, None, None) => Ok(given.iter().cloned().map(Name::plain).collect()),
        ([name], Some(count), _) => Ok(permits_of(name, count).collect()),
        ([name], _, Some(period)) => Ok(vec![of_period(name, period)?]),
        (_, Some(_), _) => Err(Failure::usage("--permits needs one name")),
        _ => Err(Failure::usage("--once-per needs one name")),
    }
}

fn permits_of(name: &str, count: u16) -> impl Iterator<Item = Name> {
    (1..=count).map(move |number| Name::plain(format!("{name}#{number}")))
}

fn of_period(name: &str, period: Period) -> Result<Name, Failure> {
    let (now, end) = period.now()?;
    Ok(Name { text: format!("{name}@{now}"), ends: Some(end) })
}

/// What the nodes keep under a name.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) name: Name,
    pub(crate) found: Inspection,
}

impl Seen {
    /// The line for people.
    pub(crate) fn line(&self) -> String {
        let (Name { text: name, ends }, found) = (&self.name, &self.found);
        if !found.is_done() {
            return format!("{name}: {found}");
        }
        let forgotten =
            UNIX_EPOCH.elapsed().unwrap_or_default() + found.time_left().unwrap_or_default();
        let until = UNIX_EPOCH + ends.map_or(forgotten, |ends| ends.min(forgotten));
        let until = humantime::format_rfc3339_seconds(until);
        let by = found.label().map(|label| format!("{label:?}"));
        let by = by.as_deref().unwrap_or("another client");
        format!(
            "{name}: done until {until}, by {by} on {} of {} nodes",
            found.nodes_held(),
            found.nodes().len()
        )
    }
}

/// What the nodes keep under each name. All are asked at the same time.
pub(crate) async fn look(manager: &LockManager, names: Vec<Name>) -> Result<Vec<Seen>, Failure> {
    let ask = |name: Name| {
        let manager = manager.clone();
        tokio::spawn(async move { (manager.inspect(&*name.text).await, name) })
    };
    let mut all = Vec::new();
    for asked in names.into_iter().map(ask).collect::<Vec<_>>() {
        let (found, name) = asked.await.map_err(Failure::usage)?;
        all.push(Seen { name, found: found.map_err(Failure::usage)? });
    }
    Ok(all)
}

/// What is held or done as a permit or in this period, where it is not said which is meant and the name itself is free.
pub(crate) async fn others(
    manager: &LockManager,
    seen: &[Seen],
    under: &Under,
) -> Result<Vec<Seen>, Failure> {
    let mut names = Vec::new();
    let is_said = under.permits.is_some() || under.once_per.is_some();
    let is_meant = |one: &&Seen| !is_said && one.found.state() == LockState::Free;
    for Seen { name: Name { text, .. }, .. } in seen.iter().filter(is_meant) {
        names.extend(permits_of(text, PERMITS));
        for (count, unit) in PERIODS {
            for number in 1..=count {
                let period = Period::Unix(Duration::from_secs(number * unit));
                names.push(of_period(text, period)?);
            }
        }
        // Where the zone is not known there is none.
        names.extend(of_period(text, Period::LocalDay));
    }
    let mut others = look(manager, names).await?;
    others.retain(|one| one.found.state() == LockState::Held);
    Ok(others)
}

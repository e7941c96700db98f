//! `inspect`: the holders of locks, as lines or as JSON.

use std::time::{Duration, UNIX_EPOCH};

use quorate::BackendErrorKind::WrongType;
use quorate::LockManager;
use quorate::backend::Holder;
use quorate::operators::{Inspection, KeyState, LockState, NodeView};
use serde_json::{Value, json};

use crate::args::{Common, Inspect, Under, period};
use crate::exit::{Failure, NO_QUORUM, PERMANENT};
use crate::names::{Name, names, of_period, permits_of};
use crate::nodes::open;
use crate::say;

/// How many permits are looked at, where their number is not given.
const PERMITS: u16 = 64;

/// The lengths of periods that are looked at, where none is given: so many of each unit.
const LENGTHS: [(u16, &str); 3] = [(59, "s"), (59, "m"), (24, "h")];

/// Those of the calendar that are looked at then.
const CALENDAR: [&str; 5] = ["1week", "1month", "local-day", "local-week", "local-month"];

/// The year 10,000, which has no text.
const LAST: Duration = Duration::from_secs(253_402_300_800);

/// How many names are asked for at the same time. Each node has to answer all of them within its
/// timeout.
const AT_ONCE: usize = 256;

/// The exit code where too few nodes tell: another one where a person has to change something
/// first.
pub(crate) fn unclear(found: &Inspection) -> u8 {
    let is_permanent = |node: &&NodeView| match &node.state {
        // What another program keeps there is no setting.
        KeyState::Failed(error) => error.kind().is_permanent() && error.kind() != WrongType,
        _ => false,
    };
    let lost = found.nodes().iter().filter(is_permanent).count();
    if lost > (found.nodes().len() - 1) / 2 { PERMANENT } else { NO_QUORUM }
}

/// Shows who holds locks, and returns the exit code: that of the names given, or 69 or 78 if any
/// name is unclear.
pub(crate) async fn inspect(common: &Common, inspect: &Inspect) -> Result<u8, Failure> {
    let (mut all, others) = find(&open(common, None)?, &inspect.names, &inspect.under).await?;
    all.extend(others);
    let codes = all.iter().map(|one| match one.found.state() {
        LockState::Held => 0,
        LockState::Free => 1,
        LockState::Unclear => unclear(&one.found),
    });
    let code = codes.max().unwrap_or_default();
    if inspect.json {
        let locks: Vec<Value> = all.iter().map(json_of).collect();
        say::report(say::json(&json!({ "locks": locks })))?;
        return Ok(code);
    }
    for one in &all {
        let width = if common.verbose { usize::MAX } else { say::WIDTH };
        say::report(say::short(one.line(), width))?;
    }
    Ok(code)
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
        let (name, found) = (say::shown(&self.name.text), self.found.to_string());
        match (found.strip_prefix("done "), self.done()) {
            (Some(rest), [Some(until), began, _]) => {
                let ran = self.found.holders()[0].ran().zip(began).map(|(ran, began)| {
                    let time = Duration::from_secs(ran.end.saturating_sub(ran.start).as_secs());
                    format!("ran {} from {began}, ", humantime::format_duration(time))
                });
                format!("{name}: done until {until}, {}{rest}", ran.unwrap_or_default())
            }
            _ => format!("{name}: {found}"),
        }
    }

    /// Of a mark: until when its work is done, and when that began and ended, as RFC 3339.
    fn done(&self) -> [Option<String>; 3] {
        if !self.found.is_done() {
            return [None, None, None];
        }
        let left = self.found.time_left().unwrap_or_default();
        let forgotten = UNIX_EPOCH.elapsed().unwrap_or_default() + left;
        let until = self.name.ends.map_or(forgotten, |ends| ends.min(forgotten));
        let (began, ended) = self.found.holders()[0].ran().map(|ran| (ran.start, ran.end)).unzip();
        [Some(until), began, ended].map(|time| {
            let time = UNIX_EPOCH + time.filter(|time| *time < LAST)?;
            Some(humantime::format_rfc3339_seconds(time).to_string())
        })
    }
}

/// The state of the names given; and permits, and the locks and marks of this period, that are not
/// free, where the options name neither and the name itself is free.
pub(crate) async fn find(
    manager: &LockManager,
    given: &[String],
    under: &Under,
) -> Result<(Vec<Seen>, Vec<Seen>), Failure> {
    let seen = look(manager, names(given, under.permits, under.once_per)?).await?;
    let mut names = Vec::new();
    let is_said = under.permits.is_some() || under.once_per.is_some();
    let is_meant = |one: &&Seen| !is_said && one.found.state() == LockState::Free;
    for Seen { name: Name { text, .. }, .. } in seen.iter().filter(is_meant) {
        names.extend(permits_of(text, PERMITS));
        let lengths = LENGTHS
            .into_iter()
            .flat_map(|(most, unit)| (1..=most).map(move |count| format!("{count}{unit}")));
        let periods = lengths.chain(CALENDAR.map(str::to_owned)).flat_map(|one| period(&one));
        // Where the zone is not known there are no local ones.
        names.extend(periods.flat_map(|period| of_period(text, period)));
    }
    let mut others = look(manager, names).await?;
    others.retain(|one| one.found.state() != LockState::Free);
    Ok((seen, others))
}

/// What the nodes keep under each name.
async fn look(manager: &LockManager, names: Vec<Name>) -> Result<Vec<Seen>, Failure> {
    let ask = |name: Name| {
        let manager = manager.clone();
        tokio::spawn(async move { (manager.inspect(&*name.text).await, name) })
    };
    let mut all = Vec::new();
    for names in names.chunks(AT_ONCE) {
        for asked in names.iter().cloned().map(ask).collect::<Vec<_>>() {
            let (found, name) = asked.await.map_err(Failure::usage)?;
            all.push(Seen { name, found: found.map_err(Failure::usage)? });
        }
    }
    Ok(all)
}

/// The times left come from nodes: they fit into JSON.
fn json_of(seen: &Seen) -> Value {
    let (Seen { name, found }, [until, began, ended]) = (seen, seen.done());
    let millis = |time: Option<Duration>| time.map(|time| time.as_millis());
    let node_json = |node: &NodeView| {
        let (state, left) = match &node.state {
            KeyState::Free => ("free", None),
            KeyState::Held { time_left, .. } => ("held", *time_left),
            KeyState::Read { readers } => ("read", readers.iter().map(|one| one.time_left).max()),
            _ => ("unknown", None),
        };
        let error = (state == "unknown").then(|| node.state.to_string());
        json!({
            "name": *node.name,
            "state": state,
            "label": node.label(),
            "left_ms": millis(left),
            "error": error,
        })
    };
    let state = match found.state() {
        LockState::Held if found.is_done() => "done",
        LockState::Held => "held",
        LockState::Free => "free",
        LockState::Unclear => "unclear",
    };
    let reader_json = |one: &Holder| json!({ "label": one.label() });
    json!({
        "name": name.text,
        "state": state,
        "label": found.label(),
        "readers": found.readers().into_iter().map(reader_json).collect::<Vec<_>>(),
        "left_ms": millis(found.time_left()),
        "held_on": found.nodes_held(),
        "until": until,
        "began": began,
        "ended": ended,
        "nodes": found.nodes().iter().map(node_json).collect::<Vec<_>>(),
    })
}

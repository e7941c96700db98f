//! Runs the tables in this folder. `acquire.txt` describes their form.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use quorate_pure::core_source::algorithm::attempt::Settings;
use quorate_pure::core_source::algorithm::lease::SafetyMargin;
use quorate_pure::core_source::algorithm::lease::{Drift, Ttl};
use quorate_pure::core_source::algorithm::quorum::NodeCount;

use crate::player::Player;

/// The examples of the specification, as they stand there.
/// Rule Q3.
#[test]
fn examples_of_the_specification() {
    check(include_str!("examples.txt"), 10);
}

/// Rules C3, H6.
#[test]
fn an_end_releases_each_node_that_may_have_the_key() {
    check(include_str!("ending.txt"), 15);
    check(include_str!("cleanup.txt"), 12);
    check(include_str!("adopt.txt"), 8);
}

/// Rule H4.
#[test]
fn a_lease_that_has_ended_keeps_its_keys_for_the_margin() {
    check(include_str!("lapsed.txt"), 15);
}

/// Rules T1, H1, H2, H3, H5.
#[test]
fn an_extension_moves_the_lease_or_leaves_it() {
    check(include_str!("extend.txt"), 15);
}

/// Rules T1, T5, Q5, O8.
#[test]
fn a_round_is_decided_by_a_quorum_with_a_token_and_the_reason_of_each_vote() {
    check(include_str!("acquire.txt"), 20);
    check(include_str!("fencing.txt"), 8);
    check(include_str!("votes.txt"), 13);
    check(include_str!("deadline.txt"), 8);
}

/// Plays each example and compares each line with what the attempt did.
fn check(table: &str, at_least: usize) {
    let mut differences = String::new();
    let mut player: Option<Player> = None;
    let (mut examples, mut title) = (0, "");
    for line in table.lines() {
        let line = line.split("//").next().unwrap().trim_end();
        if let Some(text) = line.strip_prefix("# ") {
            title = text;
            player = title.starts_with(char::is_numeric).then(|| {
                examples += 1;
                Player::new(settings_of_example(title), true)
            });
        } else if line.starts_with("nodes ") {
            player = Some(Player::new(parse_settings(line), false));
            examples += 1;
        } else if !line.is_empty() {
            let events = line.split(['>', '=', '?']).next().unwrap().trim_end();
            let is = player.as_mut().expect("a line `nodes`").play(events);
            if is.split_whitespace().ne(line.split_whitespace()) {
                writeln!(differences, "{title}\n  table: {line}\n  is:    {is}").unwrap();
            }
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
    assert!(examples >= at_least, "{examples} examples");
}

/// The settings of an example of the specification: its title says what differs.
fn settings_of_example(title: &str) -> Settings {
    let limit = title.split_once("hold limit ").map(|(_, limit)| format!(" limit {limit}"));
    let words = ["ordered", "fencing"].into_iter().filter(|word| title.contains(word));
    let words: Vec<&str> = words.collect();
    parse_settings(&format!("nodes 3 margin 1 {}{}", words.join(" "), limit.unwrap_or_default()))
}

fn parse_settings(line: &str) -> Settings {
    let words: Vec<&str> = line.split_whitespace().collect();
    let value = |name| words.iter().position(|word| *word == name).map(|at| words[at + 1]);
    let duration = |name| value(name).map(parse_duration);
    let nodes = NodeCount::new(value("nodes").unwrap().parse().unwrap()).unwrap();
    let ttl = duration("ttl").unwrap_or(Duration::from_secs(3));
    let timeout = duration("timeout").unwrap_or(Duration::from_secs(1));
    let mut settings = Settings::new(nodes, Ttl::try_from(ttl).unwrap(), timeout);
    settings.drift = Drift::new(0, duration("drift").unwrap_or_default());
    settings.safety_margin = match value("margin") {
        Some("tenth") => SafetyMargin::TenthOfTtl,
        margin => SafetyMargin::Fixed(margin.map(parse_duration).unwrap_or_default()),
    };
    settings.deadline = duration("deadline").map(|at| epoch() + at);
    settings.cleanup_bound = duration("bound");
    settings.hold_limit = duration("limit");
    settings.fencing = words.contains(&"fencing");
    if words.contains(&"hasty") {
        settings.haste = Duration::from_millis(2);
    }
    for node in nodes.ids() {
        let name = format!("n{}", node.index() + 1);
        if words.contains(&"ordered") || value("ordered-node") == Some(name.as_str()) {
            settings.ordered.insert(node);
        }
        if words.contains(&"pushing") {
            settings.pushing.insert(node);
        }
    }
    settings
}

/// All times of a table count from here.
pub(crate) fn epoch() -> Instant {
    static EPOCH: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// Seconds, or milliseconds with `ms`.
pub(crate) fn parse_duration(text: &str) -> Duration {
    match text.strip_suffix("ms") {
        Some(millis) => Duration::from_millis(millis.parse().unwrap()),
        None => Duration::from_secs(text.parse().expect(text)),
    }
}

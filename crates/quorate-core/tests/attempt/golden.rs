//! Runs the tables in this folder. `examples.txt` describes their form.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use quorate_core::algorithm::attempt::{
    Action, Attempt, CallId, Decision, Operation, Outcome, Settings,
};
use quorate_core::algorithm::fence::FencingToken;
use quorate_core::algorithm::lease::SafetyMargin;
use quorate_core::algorithm::quorum::{NodeCount, NodeId};
use quorate_core::{Drift, Ttl};

#[test]
fn examples_of_the_specification() {
    check(include_str!("examples.txt"), 8);
}

#[test]
fn a_first_round_is_won_or_lost_by_a_quorum_of_the_configured_nodes() {
    check(include_str!("acquire.txt"), 20);
}

#[test]
fn an_end_releases_each_node_that_may_have_the_key() {
    check(include_str!("ending.txt"), 20);
}

#[test]
fn an_extension_moves_the_lease_or_leaves_it() {
    check(include_str!("extend.txt"), 15);
}

#[test]
fn a_fencing_token_is_one_number_of_a_quorum() {
    check(include_str!("fencing.txt"), 8);
}

#[test]
fn an_adopted_lock_is_released_only_once_it_is_ours() {
    check(include_str!("adopt.txt"), 8);
}

/// Plays each example and compares each line with what the attempt did.
fn check(table: &str, at_least: usize) {
    let mut differences = String::new();
    let mut player: Option<Player> = None;
    let (mut settings, mut examples, mut title) = (None, 0, "");
    for line in table.lines() {
        let line = line.split("//").next().unwrap().trim_end();
        if let Some(text) = line.strip_prefix("# ") {
            (title, player, settings) = (text, None, None);
        } else if line.starts_with("nodes ") {
            settings = Some(parse_settings(line));
            player = None;
            examples += 1;
        } else if !line.is_empty() {
            let events = line.split(['>', '=', '?', '!']).next().unwrap().trim_end();
            let is = Player::play(&mut player, settings.as_ref().expect("a line `nodes`"), events);
            if is.split_whitespace().ne(line.split_whitespace()) {
                writeln!(differences, "{title}\n  table: {line}\n  is:    {is}").unwrap();
            }
        }
    }
    assert!(differences.is_empty(), "\n{differences}");
    assert!(examples >= at_least, "{examples} examples");
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
    settings.safety_margin = SafetyMargin::Fixed(duration("margin").unwrap_or_default());
    settings.deadline = duration("deadline").map(|at| epoch() + at);
    settings.cleanup_bound = duration("bound");
    settings.fencing = words.contains(&"fencing");
    for node in nodes.ids() {
        if words.contains(&"ordered") || value("ordered-node") == Some(&name(node)) {
            settings = settings.ordered(node);
        }
    }
    settings
}

/// All times of a table count from here.
fn epoch() -> Instant {
    static EPOCH: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

fn parse_duration(text: &str) -> Duration {
    match text.strip_suffix("ms") {
        Some(millis) => Duration::from_millis(millis.parse().unwrap()),
        None => Duration::from_secs_f64(text.strip_suffix('s').expect(text).parse().unwrap()),
    }
}

fn name(node: NodeId) -> String {
    format!("n{}", node.index() + 1)
}

/// An attempt and the calls that were made.
struct Player {
    attempt: Attempt,
    ttl: Ttl,
    in_flight: Vec<(CallId, Operation)>,
    settled: Vec<(CallId, Outcome)>,
}

impl Player {
    /// Plays the events of a line, and returns the line as it should be.
    fn play(player: &mut Option<Self>, settings: &Settings, line: &str) -> String {
        let (time, events) = line.split_once(' ').unwrap_or((line, ""));
        let now = epoch() + parse_duration(time);
        let (mut sent, mut decided) = (Vec::new(), Vec::new());
        for event in events.split(',') {
            let words: Vec<&str> = event.split_whitespace().collect();
            let start = |attempt| Self {
                attempt,
                ttl: settings.ttl,
                in_flight: Vec::new(),
                settled: Vec::new(),
            };
            match *words.as_slice() {
                ["new"] => *player = Some(start(Attempt::new(*settings, now))),
                ["adopt", ref token @ ..] => {
                    let token = token.first().map(|token| number(token));
                    *player = Some(start(Attempt::adopt(*settings, token, now)));
                }
                _ => decided.extend(player.as_mut().unwrap().handle(&words, now)),
            }
            let player = player.as_mut().unwrap();
            player.drain(&mut sent, &mut decided);
        }
        player.as_ref().unwrap().report(line, &sent, &decided)
    }

    /// One event; a question returns its answer.
    fn handle(&mut self, words: &[&str], now: Instant) -> Option<String> {
        let attempt = &mut self.attempt;
        match *words {
            ["timeout"] => attempt.handle_timeout(now),
            ["release"] => attempt.release(now),
            ["cancel"] => attempt.cancel(now),
            ["detach"] => attempt.detach(now),
            ["extend", ref ttl @ ..] => {
                let afresh = ttl.contains(&"afresh");
                let ttl = ttl.iter().find(|word| **word != "afresh");
                let ttl = ttl.map_or(self.ttl, |ttl| parse_duration(ttl).try_into().unwrap());
                let round = attempt.extend(ttl, afresh, now);
                return round.is_none().then(|| "no lease".into());
            }
            ["undo"] => {
                let open = attempt.nodes().filter(|(_, node)| !node.has_answered_undo());
                let open: Vec<String> = open.map(|(id, _)| name(id)).collect();
                assert_eq!(open.is_empty(), attempt.has_answered_undo());
                let open = open.join(" ");
                return Some(if open.is_empty() {
                    "undone".into()
                } else {
                    format!("waits for {open}")
                });
            }
            ["lease"] => {
                let end = attempt.valid_until();
                return Some(
                    end.map_or_else(|| "no lease".into(), |end| format!("lease until {}", at(end))),
                );
            }
            ref replies => self.reply(replies, now),
        }
        None
    }

    /// Replies of one kind, of one or several nodes.
    fn reply(&mut self, words: &[&str], now: Instant) {
        let first = words.iter().position(|word| self.node(word).is_none()).expect("a reply");
        let (nodes, reply) = words.split_at(first);
        let nodes: Vec<NodeId> = nodes.iter().filter_map(|name| self.node(name)).collect();
        for id in nodes {
            let (kind, outcome) = match *reply {
                ["granted", token] => ("acquire", Outcome::Granted(Some(number(token)))),
                ["granted"] => ("acquire", Outcome::Granted(None)),
                ["refused"] => ("acquire", Outcome::Refused),
                ["owned"] => ("extend", Outcome::Granted(None)),
                ["not-ours"] => ("extend", Outcome::Refused),
                ["raised"] => ("raise", Outcome::Granted(None)),
                ["not-raised"] => ("raise", Outcome::Refused),
                ["repaired"] => ("repair", Outcome::Granted(None)),
                ["not-repaired"] => ("repair", Outcome::Refused),
                ["deleted"] => ("release", Outcome::Granted(None)),
                ["absent"] => ("release", Outcome::Refused),
                [kind, "failed"] => (kind, Outcome::Failed),
                [kind, "unsent"] => (kind, Outcome::NotSent),
                ["again"] => {
                    let (call, outcome) =
                        *self.settled.iter().rfind(|(call, _)| call.node() == id).unwrap();
                    return self.attempt.handle_reply(call, outcome, now);
                }
                _ => panic!("no such reply: {reply:?}"),
            };
            let is_meant = |(call, operation): &(CallId, Operation)| {
                call.node() == id && verb(*operation) == kind
            };
            let call = self.in_flight.iter().position(is_meant);
            let call = call.unwrap_or_else(|| panic!("no {kind} is in flight: {words:?}"));
            let (call, _) = self.in_flight.remove(call);
            self.settled.push((call, outcome));
            self.attempt.handle_reply(call, outcome, now);
        }
    }

    fn drain(&mut self, sent: &mut Vec<(String, String)>, decided: &mut Vec<String>) {
        while let Some((id, action)) = self.attempt.poll_send() {
            let text = match action {
                Action::Call(call, operation) => {
                    assert_eq!(call.node(), id);
                    self.in_flight.push((call, operation));
                    self.tell(operation)
                }
                Action::GiveUp(call) => {
                    let at = self.in_flight.iter().position(|(other, _)| *other == call).unwrap();
                    let (call, operation) = self.in_flight.remove(at);
                    self.settled.push((call, Outcome::Granted(None)));
                    format!("{} given up", verb(operation))
                }
            };
            sent.push((name(id), text));
        }
        decided.extend(std::iter::from_fn(|| self.attempt.poll_decision()).map(tell_decision));
    }

    fn tell(&self, operation: Operation) -> String {
        let detail = match operation {
            Operation::Acquire { ttl } | Operation::Extend { ttl } | Operation::Repair { ttl } => {
                (ttl != self.ttl).then(|| tell_duration(ttl.as_duration()))
            }
            Operation::Raise { token } => Some(token.to_string()),
            Operation::Release { highest } => highest.map(|token| token.to_string()),
        };
        [verb(operation), &detail.unwrap_or_default()].join(" ").trim_end().into()
    }

    /// The line with what came out: calls of one kind together.
    fn report(&self, line: &str, sent: &[(String, String)], decided: &[String]) -> String {
        let mut text = format!("{line:<44}");
        let groups = sent.chunk_by(|(_, one), (_, other)| one == other);
        let groups: Vec<String> = groups
            .map(|group| {
                let nodes: Vec<&str> = group.iter().map(|(node, _)| node.as_str()).collect();
                format!("{} {}", nodes.join(" "), group[0].1)
            })
            .collect();
        if !groups.is_empty() {
            text += &format!("  > {}", groups.join(", "));
        }
        if !decided.is_empty() {
            text += &format!("  = {}", decided.join(", "));
        }
        match self.attempt.next_timeout() {
            Some(due) => text += &format!("  ? {}", at(due)),
            None => assert!(self.attempt.is_quiescent(), "no next timeout: {line}"),
        }
        if self.attempt.is_quiescent() { text + "  ! quiescent" } else { text }
    }

    fn node(&self, name: &str) -> Option<NodeId> {
        let place: usize = name.strip_prefix('n')?.parse().ok()?;
        self.attempt.nodes().nth(place - 1).map(|(id, _)| id)
    }
}

const fn verb(operation: Operation) -> &'static str {
    match operation {
        Operation::Acquire { .. } => "acquire",
        Operation::Extend { .. } => "extend",
        Operation::Raise { .. } => "raise",
        Operation::Repair { .. } => "repair",
        Operation::Release { .. } => "release",
    }
}

fn tell_decision(decision: Decision) -> String {
    match decision {
        Decision::Won { valid_until, token: None } => format!("won until {}", at(valid_until)),
        Decision::Won { valid_until, token: Some(token) } => {
            format!("won with {token} until {}", at(valid_until))
        }
        Decision::NotWon(loss) => format!("not won: {loss:?}").to_lowercase(),
        Decision::Extended { valid_until, .. } => format!("extended until {}", at(valid_until)),
        Decision::ExtendFailed { .. } => "extend failed".into(),
        Decision::LeaseLost => "lease lost".into(),
        Decision::Released => "released".into(),
        Decision::LostBefore => "lost before".into(),
        Decision::Unconfirmed => "unconfirmed".into(),
    }
}

fn number(text: &str) -> FencingToken {
    FencingToken::new(text.parse().unwrap()).unwrap()
}

fn at(time: Instant) -> String {
    tell_duration(time - epoch())
}

fn tell_duration(duration: Duration) -> String {
    match duration.as_millis() {
        millis if millis % 1000 == 0 => format!("{}s", millis / 1000),
        millis => format!("{millis}ms"),
    }
}

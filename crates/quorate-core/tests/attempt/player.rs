//! Plays the lines of a table.

use std::time::Instant;

use quorate_pure::core_source::algorithm::attempt::{
    Action, AttemptMachine, CallId, Message, NodeSet, Outcome, Released, Results, RoundVote,
    Settings,
};
use quorate_pure::core_source::algorithm::fence::FencingToken;
use quorate_pure::core_source::algorithm::quorum::NodeId;

use crate::golden::{epoch, parse_duration};

pub(crate) struct Player {
    settings: Settings,
    attempt: AttemptMachine<String, String>,
    /// Whether the lines are those of the specification: without tokens, losses, `Cleared` and calls given up.
    is_model: bool,
    in_flight: Vec<(CallId, Message)>,
    settled: Vec<(CallId, Outcome<String, String>)>,
    sent: Vec<(NodeId, String)>,
    decided: Vec<String>,
    results: Results,
}

impl Player {
    pub(crate) fn new(settings: Settings, is_model: bool) -> Self {
        let attempt = AttemptMachine::new(settings, epoch());
        let (in_flight, settled, sent, decided, results) = Default::default();
        Self { settings, attempt, is_model, in_flight, settled, sent, decided, results }
    }

    /// Plays the events of a line, and returns the line as it should be.
    pub(crate) fn play(&mut self, line: &str) -> String {
        let (time, events) = line.split_once(' ').unwrap_or((line, ""));
        let now = epoch() + parse_duration(time);
        self.sent.clear();
        self.decided.clear();
        for event in events.split(',') {
            let words: Vec<&str> = event.split_whitespace().collect();
            self.handle(&words, now);
            self.drain();
        }
        self.report(line)
    }

    fn handle(&mut self, words: &[&str], now: Instant) {
        let attempt = &mut self.attempt;
        match *words {
            ["new"] => {
                *attempt = AttemptMachine::new(self.settings, now);
                self.results = Results::default();
            }
            ["adopt", ref token @ ..] => {
                let token = token.first().map(|token| number(token));
                self.results = Results::default();
                *attempt = AttemptMachine::adopt(self.settings, token, now);
            }
            ["timeout"] => attempt.handle_timeout(now),
            ["release"] => attempt.release(now),
            ["cancel"] => attempt.cancel(now),
            ["detach"] => attempt.detach(now),
            ["abandon"] => attempt.abandon(now),
            ["close", grace] => attempt.close(parse_duration(grace), now),
            ["extend", ref ttl @ ..] => {
                let ttl = ttl.first().map(|ttl| parse_duration(ttl).try_into().unwrap());
                let round = attempt.extend(ttl.unwrap_or(self.settings.ttl), now);
                if round.is_none() && !self.is_model {
                    self.decided.push("refused".into());
                }
            }
            ["queued", ref names @ ..] => {
                // `n1` is in the queue, `n1-late` has left it late.
                let of = |names: Vec<&str>| -> NodeSet {
                    names.iter().filter_map(|name| self.node(name)).collect()
                };
                let left = names.iter().filter_map(|name| name.strip_suffix("-late")).collect();
                let (queued, left) = (of(names.to_vec()), of(left));
                self.attempt.note_queued(queued, left);
            }
            [name, "pushes"] => self.attempt.handle_push(self.node(name).unwrap(), now),
            [name, "back"] => self.attempt.handle_back(self.node(name).unwrap(), now),
            [question @ ("lease" | "votes" | "open" | "awaits-back" | "state")] => {
                let answer = self.answer(question);
                self.decided.push(answer);
            }
            _ => self.reply(words, now),
        }
    }

    fn answer(&self, question: &str) -> String {
        let attempt = &self.attempt;
        let names = |nodes: NodeSet| {
            let names: Vec<String> = nodes.iter().map(name).collect();
            if names.is_empty() { "none".into() } else { names.join(" ") }
        };
        match question {
            "lease" => {
                let end = attempt.valid_until();
                end.map_or_else(|| "no lease".into(), |end| format!("lease until {}", at(end)))
            }
            "votes" => {
                let votes: Vec<String> = attempt.votes().iter().map(tell_vote).collect();
                format!("[{}] after {}", votes.join(" "), at(epoch() + attempt.waited()))
            }
            "open" => names(attempt.open_nodes()),
            "awaits-back" => names(attempt.awaits_back()),
            _ => match (attempt.has_ended(), attempt.is_releasing()) {
                (false, false) => "goes on".into(),
                (true, false) => "has ended".into(),
                (_, is_releasing) => format!("is releasing: {is_releasing}"),
            },
        }
    }

    /// Replies of one kind, of one or several nodes. Without the name of a call, a failure is the oldest one's.
    fn reply(&mut self, words: &[&str], now: Instant) {
        let first = words.iter().position(|word| self.node(word).is_none()).expect("a reply");
        let (nodes, mut reply) = words.split_at(first);
        let nodes: Vec<NodeId> = nodes.iter().filter_map(|name| self.node(name)).collect();
        let mut kind = None;
        if let ["acquire" | "extend" | "raise" | "repair" | "look" | "release", ..] = *reply {
            (kind, reply) = (Some(reply[0]), &reply[1..]);
        }
        for id in nodes {
            let (kind, outcome) = match *reply {
                ["granted", token] => (Some("acquire"), Outcome::Granted(Some(number(token)))),
                ["granted"] => (Some("acquire"), Outcome::Granted(None)),
                ["refused", "by", holder] => (Some("acquire"), Outcome::Refused(holder.to_owned())),
                ["refused"] => (Some("acquire"), Outcome::Refused(String::new())),
                ["still", "owned"] => (Some("extend"), Outcome::Granted(None)),
                ["not", "ours"] => (Some("extend"), Outcome::Refused(String::new())),
                ["raised"] => (Some("raise"), Outcome::Granted(None)),
                ["seen"] => (Some("look"), Outcome::Granted(None)),
                ["not", "seen"] => (Some("look"), Outcome::Refused(String::new())),
                ["marked"] => (kind, Outcome::Marked(String::new())),
                ["not", "raised"] => (Some("raise"), Outcome::Refused(String::new())),
                ["repaired"] => (Some("repair"), Outcome::Granted(None)),
                ["not", "repaired"] => (Some("repair"), Outcome::Refused(String::new())),
                ["deleted"] => (Some("release"), Outcome::Granted(None)),
                ["not", "there"] => (Some("release"), Outcome::Refused(String::new())),
                ["not", "sent", ref reason @ ..] => (kind, Outcome::NotSent(reason.concat())),
                ["error", ref reason @ ..] => (kind, Outcome::Failed(reason.concat())),
                ["lost", ref reason @ ..] => (kind, Outcome::Lost(reason.concat())),
                ["again"] => {
                    let is_meant = |(call, _): &&(CallId, _)| call.node == id;
                    let (call, outcome) =
                        self.settled.iter().rev().find(is_meant).cloned().unwrap();
                    return self.attempt.handle_reply(call, outcome, now);
                }
                _ => panic!("no such reply: {reply:?}"),
            };
            let is_meant = |(call, message): &(CallId, Message)| {
                call.node == id && kind.is_none_or(|kind| verb(*message).eq_ignore_ascii_case(kind))
            };
            let call = self.in_flight.iter().position(is_meant);
            let call = call.unwrap_or_else(|| panic!("no {kind:?} is in flight: {words:?}"));
            let (call, _) = self.in_flight.remove(call);
            self.settled.push((call, outcome.clone()));
            self.attempt.handle_reply(call, outcome, now);
        }
    }

    fn drain(&mut self) {
        while let Some((id, action)) = self.attempt.poll_send() {
            match action {
                Action::Send(call, message) => {
                    assert_eq!(call.node, id);
                    let latest = self.in_flight.last().map_or(0, |(call, _)| call.number);
                    assert!(call.number > latest, "numbers rise");
                    self.in_flight.push((call, message));
                    self.sent.push((id, self.tell(message)));
                }
                Action::GiveUp(call) => {
                    let at = self.in_flight.iter().position(|(other, _)| *other == call).unwrap();
                    let (call, message) = self.in_flight.remove(at);
                    self.settled.push((call, Outcome::Granted(None)));
                    if !self.is_model {
                        self.sent.push((id, format!("{} given up", verb(message))));
                    }
                }
            }
        }
        let before = std::mem::replace(&mut self.results, self.attempt.results());
        self.decided.extend(self.tell_decided(&before).into_iter().flatten());
    }

    fn tell(&self, message: Message) -> String {
        let detail = match message {
            Message::Acquire { ttl } | Message::Extend { ttl } | Message::Repair { ttl } => {
                (ttl != self.settings.ttl).then(|| at(epoch() + ttl.as_duration()))
            }
            Message::Raise { token } => Some(token.to_string()),
            Message::Release { highest } => highest.map(|token| token.to_string()),
            Message::Look => None,
        };
        let detail = detail.map(|detail| format!("({detail})")).unwrap_or_default();
        verb(message) + &detail
    }

    /// What was decided in an input: the difference between the results before and after it.
    fn tell_decided(&self, before: &Results) -> [Option<String>; 8] {
        let (after, end) = (&self.results, self.attempt.valid_until().map(at).unwrap_or_default());
        let token = self.attempt.fencing_token().filter(|_| !self.is_model);
        let token = token.map(|token| format!(" token {token}")).unwrap_or_default();
        let became = |was: bool, is: bool, what: &str| (is && !was).then(|| what.to_owned());
        [
            after.first.filter(|_| before.first.is_none()).map(|first| match first {
                Ok(()) => format!("Won({end}){token}"),
                Err(_) if self.is_model => "NotWon".into(),
                Err(loss) => format!("NotWon({loss:?})"),
            }),
            (after.extended != before.extended).then(|| format!("Extended({end})")),
            (after.failed != before.failed).then(|| format!("ExtendFailed({end})")),
            became(before.is_revoked, after.is_revoked, "Revoked"),
            after.lost.filter(|_| before.lost.is_none()).map(|why| format!("LeaseLost({why:?})")),
            after.released.filter(|_| before.released.is_none()).map(|released| match released {
                Released::Ours => "Released".into(),
                other => format!("{other:?}"),
            }),
            became(before.is_undone, after.is_undone, "Undone"),
            became(before.is_cleared, after.is_cleared && !self.is_model, "Cleared"),
        ]
    }

    /// The line with what came out: calls of one kind, in the order of the nodes, together.
    fn report(&self, line: &str) -> String {
        let mut text = format!("{line:<44}");
        let groups = self.sent.chunk_by(|(one, a), (other, b)| a == b && one < other);
        let groups: Vec<String> = groups
            .map(|group| {
                let nodes: Vec<String> = group.iter().map(|(node, _)| name(*node)).collect();
                format!("{} {}", nodes.join(" "), group[0].1)
            })
            .collect();
        if !groups.is_empty() {
            text += &format!("  > {}", groups.join(", "));
        }
        if !self.decided.is_empty() {
            text += &format!("  = {}", self.decided.join(", "));
        }
        let due = self.attempt.next_timeout();
        assert_ne!(due.is_some(), self.attempt.is_quiescent(), "nothing wakes it: {line}");
        text + "  ? " + &due.map_or_else(|| "quiescent".into(), at)
    }

    fn node(&self, name: &str) -> Option<NodeId> {
        let place: usize = name.strip_prefix('n')?.parse().ok()?;
        self.settings.nodes.ids().nth(place - 1)
    }
}

fn tell_vote(vote: &RoundVote<String, String>) -> String {
    match vote {
        RoundVote::Unknown(reason) => format!("Unknown({reason})"),
        RoundVote::Against(holder) if holder.is_empty() => "Against".into(),
        RoundVote::Against(holder) => format!("Against({holder})"),
        other => format!("{other:?}"),
    }
}

fn name(node: NodeId) -> String {
    format!("n{}", node.index() + 1)
}

/// The first word of a message.
fn verb(message: Message) -> String {
    format!("{message:?}").split(' ').next().unwrap().to_owned()
}

fn number(text: &str) -> FencingToken {
    FencingToken::new(text.parse().unwrap()).unwrap()
}

fn at(time: Instant) -> String {
    match (time - epoch()).as_millis() {
        millis if millis % 1000 == 0 => (millis / 1000).to_string(),
        millis => format!("{millis}ms"),
    }
}

//! The quorum rule: every split of votes, and every order in which few nodes can answer.

#![allow(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::disallowed_methods, reason = "an origin: time passes by hand")]

use std::time::{Duration, Instant};

use quorate_pure::core_source::algorithm::attempt::{
    Action, AttemptMachine, CallId, Loss, Message, Outcome, Released, Results, Settings,
};
use quorate_pure::core_source::algorithm::lease::SafetyMargin;
use quorate_pure::core_source::algorithm::lease::{Drift, Ttl};
use quorate_pure::core_source::algorithm::quorum::NodeCount;

const NODE_TIMEOUT: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Granted,
    Refused,
    Unknown,
}

use Answer::{Granted, Refused, Unknown};

const ANSWERS: [Answer; 3] = [Granted, Refused, Unknown];

fn ttl(duration: Duration) -> Ttl {
    Ttl::try_from(duration).unwrap()
}

fn settings(count: NodeCount) -> Settings {
    let mut settings = Settings::new(count, ttl(Duration::from_secs(1)), NODE_TIMEOUT);
    settings.safety_margin = SafetyMargin::Fixed(Duration::ZERO);
    settings
}

/// An attempt, and the latest call to each node.
struct Rig {
    attempt: AttemptMachine<()>,
    calls: Vec<Option<CallId>>,
    results: Results,
    now: Instant,
}

/// A quorum granted, or could not any more: in a first round with the reason.
type Decision = Result<(), Option<Loss>>;

impl Rig {
    fn new(settings: Settings) -> Self {
        let now = Instant::now();
        let calls = vec![None; settings.nodes.get()];
        let (attempt, results) = (AttemptMachine::new(settings, now), Results::default());
        let mut rig = Self { attempt, calls, results, now };
        rig.drain();
        rig
    }

    /// The attempt holds the lock, and every node has granted it.
    fn held(count: NodeCount) -> Self {
        let mut rig = Self::new(settings(count));
        for node in 0..count.get() {
            rig.answer(node, Granted);
        }
        rig
    }

    fn drain(&mut self) -> Option<Decision> {
        while let Some((node, action)) = self.attempt.poll_send() {
            if let Action::Send(call, message) = action {
                let is_repair = matches!(message, Message::Repair { .. });
                self.calls[node.index()] = Some(call).filter(|_| !is_repair);
            }
        }
        let before = std::mem::replace(&mut self.results, self.attempt.results());
        let after = self.results;
        if after.first != before.first {
            return after.first.map(|first| first.map_err(Some));
        }
        if after.released != before.released {
            return after.released.map(|it| if it == Released::Ours { Ok(()) } else { Err(None) });
        }
        let is_lost = after.failed != before.failed || after.lost != before.lost;
        let is_extended = after.extended != before.extended;
        if is_lost { Some(Err(None)) } else { is_extended.then_some(Ok(())) }
    }

    fn answer(&mut self, node: usize, answer: Answer) -> Option<Decision> {
        if let Some(call) = self.calls[node].take() {
            self.reply(call, answer);
        }
        self.drain()
    }

    fn reply(&mut self, call: CallId, answer: Answer) {
        let outcome = match answer {
            Granted => Outcome::Granted(None),
            Refused => Outcome::Refused(()),
            Unknown => Outcome::Failed(()),
        };
        self.attempt.handle_reply(call, outcome, self.now);
    }

    /// The first decision while the nodes answer one after the other.
    fn play(&mut self, answers: impl IntoIterator<Item = (usize, Answer)>) -> Option<Decision> {
        answers.into_iter().find_map(|(node, answer)| self.answer(node, answer))
    }
}

const fn verdict(decision: Option<Decision>) -> &'static str {
    match decision {
        None => ".",
        Some(Ok(())) => "W",
        Some(Err(_)) => "L",
    }
}

/// Of the nodes configured, some granted, some did not, and the open ones decide unless one side has enough.
#[test]
fn q1_a_round_is_won_or_lost_by_a_quorum_of_the_nodes_for_every_split_of_votes() {
    let splits = [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)].into_iter();
    let splits = splits.flat_map(|(nodes, quorum)| {
        let against = move |granted| (0..=nodes - granted).map(move |against| (granted, against));
        (0..=nodes).flat_map(against).map(move |split| (nodes, quorum, split))
    });
    for (nodes, quorum, (granted, against)) in splits {
        let count = NodeCount::new(nodes).unwrap();
        assert_eq!(count.quorum(), quorum);
        let expected = match () {
            () if granted >= quorum => "W",
            () if nodes - against < quorum => "L",
            () => ".",
        };
        for unknown in 0..=against {
            let answer = |node: usize| match node {
                _ if node < granted => Granted,
                _ if node < granted + unknown => Unknown,
                _ => Refused,
            };
            let told = granted + against;
            let answers: Vec<_> = (0..told).map(|node| (node, answer(node))).collect();
            let split = format!("{granted} granted, {unknown} of {against} unknown, of {nodes}");
            for order in [answers.clone(), answers.into_iter().rev().collect()] {
                let acquired = Rig::new(settings(count)).play(order.clone());
                assert_eq!(verdict(acquired), expected, "acquire: {split}");

                let mut rig = Rig::held(count);
                rig.attempt.extend(ttl(Duration::from_secs(2)), rig.now).unwrap();
                assert_eq!(rig.drain(), None);
                assert_eq!(verdict(rig.play(order.clone())), expected, "extend: {split}");

                // A release that failed may still be executed: it says nothing yet.
                let mut rig = Rig::held(count);
                rig.attempt.release(rig.now);
                assert_eq!(rig.drain(), None);
                let released = verdict(rig.play(order));
                if unknown == 0 || released == "W" {
                    assert_eq!(released, expected, "release: {split}");
                }
            }
        }
    }
}

fn permutations(items: &[usize]) -> Vec<Vec<usize>> {
    let first = |place: usize| {
        let rest = [&items[..place], &items[place + 1..]].concat();
        let with_first = move |tail: Vec<usize>| [&items[place..=place], &tail].concat();
        permutations(&rest).into_iter().map(with_first).collect::<Vec<_>>()
    };
    if items.len() < 2 { vec![items.to_vec()] } else { (0..items.len()).flat_map(first).collect() }
}

/// Every answer of up to five nodes in every order: 31 443 rounds.
#[test]
fn q2_a_round_ends_with_the_first_answer_that_makes_it_certain() {
    for nodes in 1..=5 {
        let count = NodeCount::new(nodes).unwrap();
        let orders = permutations(&(0..nodes).collect::<Vec<_>>());
        for code in 0..3_usize.pow(nodes as u32) {
            let answer = |node| ANSWERS[code / 3_usize.pow(node) % 3];
            let answers: Vec<Answer> = (0..nodes as u32).map(answer).collect();
            for order in &orders {
                let mut rig = Rig::new(settings(count));
                let (mut granted, mut unknown) = (0, 0);
                for (heard, &node) in (1..).zip(order) {
                    let answer = answers[node];
                    granted += usize::from(answer == Granted);
                    unknown += usize::from(answer == Unknown);
                    let decision = rig.answer(node, answer);
                    let state = format!("{answers:?} in the order {order:?}: {decision:?}");
                    if granted >= count.quorum() {
                        assert_eq!(decision, Some(Ok(())), "{state}");
                    } else if heard - granted > count.spare() {
                        let is_held = unknown <= count.spare();
                        let loss = if is_held { Loss::Held } else { Loss::NoQuorum };
                        assert_eq!(decision, Some(Err(Some(loss))), "{state}");
                    } else {
                        assert_eq!(decision, None, "{state}");
                        continue;
                    }
                    break;
                }
            }
        }
    }
}

#[test]
fn q3_only_the_first_answer_of_a_node_counts() {
    let count = NodeCount::new(3).unwrap();
    for first in ANSWERS {
        for second in ANSWERS {
            let mut rig = Rig::new(settings(count));
            let call = rig.calls[0].unwrap();
            rig.answer(0, first);
            let node = count.ids().next().unwrap();
            let vote = |rig: &Rig| *rig.attempt.node(node).vote();
            let before = vote(&rig);
            rig.reply(call, second);
            assert_eq!((rig.drain(), vote(&rig)), (None, before), "{first:?}, then {second:?}");
            // It counts once: one more vote decides if it is of the same kind.
            let decision = rig.answer(1, Granted);
            assert_eq!(decision.is_some(), first == Granted, "{first:?}, then {second:?}");
        }
    }
}

#[test]
fn t3_a_round_at_the_ends_of_time_neither_overflows_nor_wins() {
    let count = NodeCount::new(1).unwrap();
    let longest = |drift| {
        let mut settings = Settings::new(count, ttl(Ttl::MAX), Duration::MAX);
        settings.drift = drift;
        settings.cleanup_bound = Some(Duration::MAX);
        Rig::new(settings)
    };
    let mut rig = longest(Drift::default());
    assert!(rig.attempt.next_timeout().unwrap() > rig.now + Ttl::MAX);
    assert_eq!(rig.answer(0, Granted), Some(Ok(())));
    let mut rig = longest(Drift::new(1_000_000, Duration::MAX));
    assert_eq!(rig.answer(0, Granted), Some(Err(Some(Loss::Expired))));
    let mut settings = settings(count);
    settings.safety_margin = SafetyMargin::Fixed(Duration::MAX);
    assert_eq!(Rig::new(settings).answer(0, Granted), Some(Err(Some(Loss::Expired))));
}

//! The quorum rule: a table to be read, and every order in which few nodes can answer.

#![allow(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::disallowed_methods, reason = "an origin: time passes by hand")]

use std::time::{Duration, Instant};

use quorate_core::algorithm::quorum::{NodeCount, NodeId, Tally, Verdict, Vote};
use quorate_core::algorithm::round::{Loss, Round, Step};
use quorate_core::{Drift, Ttl};

const PATIENCE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    Granted,
    Refused,
    Unknown,
}

use Answer::{Granted, Refused, Unknown};

/// The cells of `quorum.txt`: nodes, quorum, granted, against, verdict.
fn table() -> Vec<(usize, usize, usize, usize, Verdict)> {
    let mut cells = Vec::new();
    let (mut nodes, mut quorum) = (0, 0);
    for line in include_str!("quorum.txt").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match *words.as_slice() {
            ["nodes", n, "quorum", q] => {
                (nodes, quorum) = (n.parse().unwrap(), q.parse().unwrap());
            }
            ["granted", granted, ref verdicts @ ..] => {
                for (against, verdict) in verdicts.iter().enumerate() {
                    let verdict = match *verdict {
                        "W" => Verdict::Won,
                        "L" => Verdict::Lost,
                        "." => Verdict::Pending,
                        other => panic!("{other} in the table"),
                    };
                    cells.push((nodes, quorum, granted.parse().unwrap(), against, verdict));
                }
            }
            [] | ["#", ..] | ["against", ..] => {}
            _ => panic!("not a line of the table: {line}"),
        }
    }
    cells
}

#[test]
fn q1_the_verdict_is_that_of_the_table_for_every_split_of_votes() {
    let cells = table();
    // Every way to split n nodes in granted, against and open.
    let splits: usize = (1..=7).map(|n| (n + 1) * (n + 2) / 2).sum();
    assert_eq!(cells.len(), splits, "the table is complete");
    for (nodes, quorum, granted, against, verdict) in cells {
        let count = NodeCount::new(nodes).unwrap();
        assert_eq!(count.quorum(), quorum);
        for unknown in 0..=against {
            let mut tally = Tally::new(count);
            for node in count.ids() {
                match node.index() {
                    i if i < granted => tally.on_vote(node, Vote::Granted),
                    i if i < granted + unknown => tally.on_unknown(node),
                    i if i < granted + against => tally.on_vote(node, Vote::Refused),
                    _ => {}
                }
            }
            assert_eq!(tally.verdict(), verdict, "{tally:?}");
        }
    }
}

#[test]
fn any_two_quorums_share_a_node() {
    for nodes in 1..=NodeCount::MAX {
        let count = NodeCount::new(nodes).unwrap();
        assert!(2 * count.quorum() > nodes);
        assert_eq!(count.quorum() + count.spare(), nodes);
    }
    assert_eq!(NodeCount::new(0), None);
    assert_eq!(NodeCount::new(NodeCount::MAX + 1), None);
}

fn permutations(items: Vec<NodeId>) -> Vec<Vec<NodeId>> {
    if items.len() < 2 {
        return vec![items];
    }
    let mut all = Vec::new();
    for place in 0..items.len() {
        let mut rest = items.clone();
        let first = rest.remove(place);
        for mut tail in permutations(rest) {
            tail.insert(0, first);
            all.push(tail);
        }
    }
    all
}

fn answers(nodes: usize, code: usize) -> Vec<Answer> {
    let digit = |node| code / 3_usize.pow(node) % 3;
    (0..u32::try_from(nodes).unwrap()).map(|n| [Granted, Refused, Unknown][digit(n)]).collect()
}

fn hear(round: &mut Round, node: NodeId, answer: Answer, now: Instant) -> Step {
    match answer {
        Granted => round.on_vote(node, Vote::Granted, now),
        Refused => round.on_vote(node, Vote::Refused, now),
        Unknown => round.on_unknown(node, now),
    }
}

fn acquire(count: NodeCount, start: Instant) -> Round {
    Round::acquire(count, start, PATIENCE, ttl(1_000), Drift::default())
}

fn ttl(millis: u64) -> Ttl {
    Ttl::try_from(Duration::from_millis(millis)).unwrap()
}

/// Every answer of up to five nodes in every order: 31 443 rounds.
#[test]
fn q2_a_round_ends_with_the_first_answer_that_makes_it_certain() {
    let start = Instant::now();
    let valid_until = start + Duration::from_millis(988);
    for nodes in 1..=5 {
        let count = NodeCount::new(nodes).unwrap();
        for code in 0..3_usize.pow(u32::try_from(nodes).unwrap()) {
            let answers = answers(nodes, code);
            for order in permutations(count.ids().collect()) {
                let mut round = acquire(count, start);
                let (mut granted, mut unknown) = (0, 0);
                for (heard, &node) in (1..).zip(&order) {
                    let answer = answers[node.index()];
                    granted += usize::from(answer == Granted);
                    unknown += usize::from(answer == Unknown);
                    let against = heard - granted;
                    let expected = if granted >= count.quorum() {
                        Step::Won { valid_until }
                    } else if unknown > count.spare() {
                        Step::Lost(Loss::Unreachable)
                    } else if against > count.spare() {
                        Step::Lost(Loss::Refused)
                    } else {
                        Step::Wait
                    };
                    let step = hear(&mut round, node, answer, start);
                    assert_eq!(step, expected, "{answers:?} in the order {order:?}");
                    if step != Step::Wait {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn q3_only_the_first_answer_of_a_node_counts() {
    let start = Instant::now();
    let count = NodeCount::new(3).unwrap();
    let nodes: Vec<NodeId> = count.ids().collect();
    for first in [Granted, Refused, Unknown] {
        for second in [Granted, Refused, Unknown] {
            let mut round = acquire(count, start);
            let once = hear(&mut round, nodes[0], first, start);
            let tally = *round.tally();
            assert_eq!(hear(&mut round, nodes[0], second, start), once);
            assert!(*round.tally() == tally, "{first:?}, then {second:?}");
        }
    }
}

#[test]
fn a_tally_tells_the_vote_of_each_node() {
    let count = NodeCount::new(4).unwrap();
    let nodes: Vec<NodeId> = count.ids().collect();
    let mut tally = Tally::new(count);
    tally.on_vote(nodes[0], Vote::Granted);
    tally.on_vote(nodes[1], Vote::Refused);
    tally.on_unknown(nodes[2]);
    let votes: Vec<Option<Vote>> = nodes.iter().map(|node| tally.vote_of(*node)).collect();
    assert_eq!(votes, [Some(Vote::Granted), Some(Vote::Refused), None, None]);
    assert_eq!(format!("{tally:?}"), "Tally(gru_)");
}

#[test]
fn t2_a_quorum_that_comes_too_late_is_a_loss() {
    let start = Instant::now();
    let count = NodeCount::new(3).unwrap();
    let nodes: Vec<NodeId> = count.ids().collect();
    let valid_until = start + Duration::from_millis(988);
    for (late, expected) in [
        (Duration::from_nanos(1), Step::Won { valid_until }),
        (Duration::ZERO, Step::Lost(Loss::Expired)),
    ] {
        let mut round = acquire(count, start);
        assert_eq!(round.on_vote(nodes[0], Vote::Granted, start), Step::Wait);
        assert_eq!(round.on_vote(nodes[1], Vote::Granted, valid_until - late), expected);
    }
}

#[test]
fn t5_the_deadline_decides_and_not_the_wake_up() {
    let start = Instant::now();
    let mut round = acquire(NodeCount::new(3).unwrap(), start);
    let deadline = round.next_timeout();
    assert_eq!(deadline, start + PATIENCE);
    assert_eq!(round.on_timeout(deadline - Duration::from_nanos(1)), Step::Wait);
    assert_eq!(round.on_timeout(deadline), Step::Lost(Loss::Unreachable));
}

#[test]
fn h2_an_extension_never_shortens() {
    let start = Instant::now();
    let count = NodeCount::new(1).unwrap();
    let node = count.ids().next().unwrap();
    let held_until = start + Duration::from_secs(5);
    for (millis, valid_until) in
        [(1_000, held_until), (10_000, start + Duration::from_millis(9_898))]
    {
        let mut round =
            Round::extend(count, start, PATIENCE, ttl(millis), Drift::default(), held_until);
        assert_eq!(round.on_vote(node, Vote::Granted, start), Step::Won { valid_until });
    }
}

#[test]
fn h3_an_extension_is_won_within_the_old_validity_or_not_at_all() {
    let start = Instant::now();
    let count = NodeCount::new(1).unwrap();
    let node = count.ids().next().unwrap();
    let held_until = start + Duration::from_millis(10);
    let mut round =
        Round::extend(count, start, PATIENCE, ttl(10_000), Drift::default(), held_until);
    assert_eq!(round.on_vote(node, Vote::Granted, held_until), Step::Lost(Loss::Expired));
}

#[test]
fn a_release_is_done_once_a_quorum_does_not_have_the_keys() {
    let start = Instant::now();
    let count = NodeCount::new(5).unwrap();
    let nodes: Vec<NodeId> = count.ids().collect();
    let mut round = Round::release(count, start, PATIENCE);
    assert_eq!(round.on_vote(nodes[0], Vote::Granted, start), Step::Wait);
    assert_eq!(round.on_unknown(nodes[1], start), Step::Wait);
    assert_eq!(round.on_vote(nodes[2], Vote::Refused, start), Step::Wait);
    assert_eq!(round.on_vote(nodes[3], Vote::Refused, start), Step::Won { valid_until: start });
}

/// Every answer of up to five nodes in every order. A holder learns whose the keys were, and never waits
/// for a node whose answer can no longer change that.
#[test]
fn c7_a_telling_release_ends_with_the_first_answer_that_makes_it_certain_whose_the_keys_were() {
    let start = Instant::now();
    for nodes in 1..=5 {
        let count = NodeCount::new(nodes).unwrap();
        for code in 0..3_usize.pow(u32::try_from(nodes).unwrap()) {
            let answers = answers(nodes, code);
            for order in permutations(count.ids().collect()) {
                let mut round = Round::telling_release(count, start, PATIENCE);
                let mut heard = [0; 3];
                for &node in &order {
                    let answer = answers[node.index()];
                    heard[answer as usize] += 1;
                    let [granted, refused, unknown] = heard;
                    let told = granted + refused;
                    let open = nodes - told - unknown;
                    // Ours, gone or unknown on so many nodes that the others change nothing.
                    let certain = [granted >= count.quorum(), refused > count.spare()];
                    let certain = certain.contains(&true) || unknown > count.spare() || open == 0;
                    let expected = if certain && told >= count.quorum() {
                        Step::Won { valid_until: start }
                    } else if certain && told + open < count.quorum() {
                        Step::Lost(Loss::Unreachable)
                    } else {
                        Step::Wait
                    };
                    let step = hear(&mut round, node, answer, start);
                    assert_eq!(step, expected, "{answers:?} in the order {order:?}");
                    if step != Step::Wait {
                        break;
                    }
                }
            }
        }
    }
}

#[test]
fn t3_a_round_at_the_ends_of_time_neither_overflows_nor_wins() {
    let start = Instant::now();
    let count = NodeCount::new(1).unwrap();
    let node = count.ids().next().unwrap();
    let year = Ttl::try_from(Ttl::MAX).unwrap();
    let mut round = Round::acquire(count, start, Duration::MAX, year, Drift::default());
    assert!(round.next_timeout() > start + Ttl::MAX);
    assert!(matches!(round.on_vote(node, Vote::Granted, start), Step::Won { .. }));
    let all = Drift::new(1_000_000, Duration::MAX);
    let mut round = Round::acquire(count, start, Duration::MAX, year, all);
    assert_eq!(round.on_vote(node, Vote::Granted, start), Step::Lost(Loss::Expired));
}

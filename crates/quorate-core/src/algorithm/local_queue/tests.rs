//! Runs `examples.txt` through the machine.

use std::time::{Duration, Instant};

use super::{ExtensionId, Found, LeaseId, LocalQueue, Output, TaskId};

const NODE_TIMEOUT: Duration = Duration::from_millis(50);
const VALIDITY: Duration = Duration::from_secs(9);

fn show(output: &Output) -> String {
    match output {
        Output::Compete(TaskId(task), others_wait) => {
            format!("{task} competes{}", if *others_wait { " in line" } else { "" })
        }
        Output::Cancel(LeaseId(lease)) => format!("undo {lease}"),
        Output::Give(TaskId(task), _) => format!("{task} is given"),
        Output::Extend(ExtensionId { number, .. }) => format!("extend {number}"),
        Output::Release(LeaseId(lease)) => format!("release {lease}"),
        Output::Lose(TaskId(task)) => format!("{task} has lost"),
        Output::Resolve(TaskId(task), outcome) => format!("{task} gets {outcome:?}").to_lowercase(),
        Output::Refuse(TaskId(task)) => format!("{task} is refused"),
    }
}

fn outcome(word: &str) -> Found {
    match word {
        "held" => Found::Held,
        "lost" => Found::Lost,
        "unconfirmed" => Found::Unconfirmed,
        _ => panic!("no such outcome: {word}"),
    }
}

/// Feeds one input to the machine; returns what it says at once.
fn step(queue: &mut LocalQueue, words: &[&str], now: Instant) -> Option<bool> {
    let task = |word: &str| TaskId(word.parse().expect("a task"));
    let lease = |word: &str| LeaseId(word.parse().expect("a lease"));
    let wish = |word: &str| match word {
        "two-keys" | "fenced" => None,
        "longer" => Some(Duration::from_secs(20)),
        _ => Some(Duration::from_secs(10)),
    };
    let valid_until = now + VALIDITY;
    match words {
        ["lock", of, rest @ ..] => {
            queue.lock(task(of), wish(rest.first().copied().unwrap_or_default()), now);
        }
        ["won", of, hint] => {
            let others_wait = (*hint != "unknown").then_some(*hint == "others");
            queue.handle_won(lease(of), VALIDITY, valid_until, others_wait, now);
        }
        ["adopt", of] => {
            return Some(queue.adopt(task(of), wish(""), VALIDITY, valid_until));
        }
        ["polled", of] => return Some(queue.handle_polled(task(of), now)),
        ["detach", of] => return Some(queue.detach(task(of), now)),
        ["release", of] => queue.release(task(of), true, now),
        ["drop", of] => queue.release(task(of), false, now),
        ["cancel", of] => queue.cancel(task(of), now),
        ["extended", of, number, quorum] => {
            let id = ExtensionId { lease: lease(of), number: number.parse().expect("a number") };
            queue.handle_extended(id, (*quorum == "yes").then_some(valid_until));
        }
        ["renewed", of] => queue.handle_renewed(lease(of), valid_until),
        ["hint", word] => queue.handle_hint(*word == "others", now),
        ["lost", of] => queue.handle_lost(lease(of), now),
        ["left", of] => queue.handle_left(lease(of), now),
        ["released", of, word] => queue.handle_released(lease(of), outcome(word), now),
        ["timeout"] => queue.handle_timeout(now),
        ["close"] => queue.close(now),
        _ => panic!("no such input: {words:?}"),
    }
    None
}

#[test]
fn the_examples_hold_step_by_step() {
    let start = Instant::now();
    let mut queue = LocalQueue::new(true, NODE_TIMEOUT);
    let mut steps = 0;
    for line in include_str!("examples.txt").lines() {
        if line.starts_with("##") {
            queue = LocalQueue::new(!line.contains("not ordered"), NODE_TIMEOUT);
        }
        let Some((input, expected)) = line.split_once(" > ") else { continue };
        if line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = input.split_whitespace().collect();
        let at: f64 = words[0].parse().expect("a time in seconds");
        let said = step(&mut queue, &words[1..], start + Duration::from_secs_f64(at));
        let mut found: Vec<String> =
            said.map(|said| if said { "yes" } else { "no" }.to_owned()).into_iter().collect();
        while let Some(output) = queue.poll_output() {
            found.push(show(&output));
        }
        let found = if found.is_empty() { "-".to_owned() } else { found.join(", ") };
        assert_eq!(found, expected.trim(), "after `{line}`");
        steps += 1;
    }
    assert!(steps > 100, "only {steps} steps were found");
}

#[test]
fn a_lease_is_passed_on_eight_times() {
    let now = Instant::now();
    let mut queue = LocalQueue::new(true, NODE_TIMEOUT);
    let wish = Some(Duration::from_secs(10));
    for task in 0..12 {
        queue.lock(TaskId(task), wish, now);
    }
    queue.handle_won(LeaseId(0), VALIDITY, now + VALIDITY, Some(false), now);
    for task in 0..u64::from(super::PASSES) {
        queue.release(TaskId(task), false, now);
        assert!(queue.handle_polled(TaskId(task + 1), now), "pass {task}");
    }
    queue.release(TaskId(8), false, now);
    let last = std::iter::from_fn(|| queue.poll_output()).last();
    assert_eq!(last, Some(Output::Release(LeaseId(0))));
}

#[test]
fn the_hint_that_another_process_waits_lasts_a_second() {
    let now = Instant::now();
    let mut queue = LocalQueue::new(true, NODE_TIMEOUT);
    assert!(queue.is_idle(now));
    queue.handle_hint(true, now);
    assert!(!queue.is_idle(now + Duration::from_secs(1)));
    assert!(queue.is_idle(now + Duration::from_millis(1_001)));
    queue.handle_hint(false, now);
    assert!(queue.is_idle(now));
}

/// Its lease has ended when its future is dropped.
#[test]
fn a_task_that_was_given_an_ended_lease_and_is_dropped_is_in_no_queue() {
    let now = Instant::now();
    let wish = Some(Duration::from_secs(10));
    let (holder, next) = (TaskId(1), TaskId(2));
    let mut queue = LocalQueue::new(true, NODE_TIMEOUT);
    queue.lock(holder, wish, now);
    queue.lock(next, wish, now);
    assert!(queue.handle_won(holder.lease(), VALIDITY, now + VALIDITY, Some(false), now));
    queue.release(holder, false, now);
    assert_eq!(queue.holder(), Some(next), "it was passed on");
    queue.cancel(next, now + VALIDITY);
    assert_eq!((queue.first(), queue.holder(), queue.is_releasing()), (None, None, true));
}

//! What an error says, and what a caller can ask of it.

use super::*;
use crate::seam::backend::{BackendError, BackendErrorKind, Holder};

const MS: Duration = Duration::from_millis(1);

fn holder(label: &str) -> Holder {
    Holder::new(format!("{} {label}", "ab".repeat(20)).into_bytes())
}

/// A letter for each node: `+` granted, `-` refused, `x` failed for good, `?` no reply in time, `.` not asked, and any
/// other letter a refusal that names the holder with this label.
fn answers(nodes: &str) -> QuorumFailure {
    let answer = |(number, letter): (u32, char)| {
        let answer = match letter {
            '+' => Answer::Granted,
            '-' => Answer::Refused { holder: None },
            'x' => Answer::Failed(BackendError::new(BackendErrorKind::Auth, "NOAUTH")),
            '?' => Answer::NoReply { is_over: true },
            '.' => Answer::NotAsked,
            label => Answer::Refused { holder: Some(holder(&label.to_string())) },
        };
        NodeAnswer::new(format!("n{number}"), answer)
    };
    QuorumFailure::new((1..).zip(nodes.chars()).map(answer), 500 * MS)
}

#[test]
fn the_holder_is_the_one_that_most_nodes_name() {
    for (nodes, named) in [
        ("a", Some(("a", 1))),
        ("abb", Some(("b", 2))),
        ("bba", Some(("b", 2))),
        ("+cb", Some(("c", 1))),
        ("abab", Some(("a", 2))),
        ("+a?bxb-c", Some(("b", 2))),
        ("-+x?.", None),
        ("", None),
    ] {
        let failure = answers(nodes);
        let found = failure.holder().and_then(|(holder, count)| Some((holder.label()?, count)));
        assert_eq!(found, named, "{nodes}");
        let held = LockError::Held(failure.clone());
        assert_eq!(held.held_by(), named.map(|(label, _)| label), "{nodes}");
        assert_eq!(LockError::NoQuorum(failure).held_by(), None);
    }
}

#[test]
fn as_many_permanent_errors_as_a_quorum_cannot_spare_are_permanent() {
    for (nodes, is_permanent) in [
        ("", false),
        ("x", true),
        ("x+", true),
        ("+x+", false),
        ("x?x", true),
        ("x+++", false),
        ("xx++", true),
        ("xx+++", false),
        ("xxx++", true),
    ] {
        assert_eq!(answers(nodes).is_permanent(), is_permanent, "{nodes}");
    }
}

#[test]
fn an_error_of_lock_says_what_to_do() {
    #[derive(PartialEq, Debug)]
    enum Is {
        Held,
        Closed,
        Permanent,
        Else,
    }
    let (first, second) = ("a".to_owned(), "b".to_owned());
    let key = Key::parse(b"k".to_vec()).unwrap();
    let in_tasks = "a blocking call in an async task: await the request instead";
    for (error, is, text) in [
        (
            LockError::Held(QuorumFailure::default()),
            Is::Held,
            "held by another guard or waiter of this manager",
        ),
        (LockError::Held(answers("++aaa")), Is::Held, "held by \"a\" on 3 of 5 nodes"),
        (LockError::Held(answers("xaa")), Is::Held, "held by \"a\" on 2 of 3 nodes; n1: NOAUTH"),
        // No quorum names one holder.
        (
            LockError::Held(answers("++aa-")),
            Is::Held,
            "held by another client: 2 of 5 nodes granted, 3 needed; n3: refused, held by \"a\"; \
             n4: refused, held by \"a\"; n5: refused",
        ),
        (
            LockError::NoQuorum(answers("+?x")),
            Is::Else,
            "no quorum: 1 of 3 nodes granted, 2 needed; n2: no reply within 500.0ms; n3: NOAUTH",
        ),
        (
            LockError::NoQuorum(answers("xx+")),
            Is::Permanent,
            "no quorum: 1 of 3 nodes granted, 2 needed; n1: NOAUTH; n2: NOAUTH",
        ),
        (LockError::NoQuorum(answers("...")), Is::Else, "no quorum: no node was asked"),
        (
            LockError::SameServer { first, second },
            Is::Permanent,
            "the nodes a and b are one server",
        ),
        (
            LockError::TooManyWaiters { key, most: 7 },
            Is::Else,
            "as many tasks of this manager wait for k as may: 7",
        ),
        (LockError::Invalid(InvalidRequest::Blocking), Is::Permanent, in_tasks),
        (EntropyError::new("none").into(), Is::Else, "no random bytes: none"),
        (LockError::Closed, Is::Closed, "the lock manager is closed"),
    ] {
        assert_eq!(error.to_string(), text);
        assert_eq!(format!("{error:?}"), text, "`main` may return it");
        let seen = (error.is_held(), error.is_closed(), error.is_permanent());
        let is_permanent = matches!(is, Is::Permanent | Is::Closed);
        assert_eq!(seen, (is == Is::Held, is == Is::Closed, is_permanent), "{text}");
        // The same is asked of an error of work under a lock.
        let with: WithError<u8> = error.into();
        assert_eq!((with.is_held(), with.is_closed(), with.is_permanent()), seen, "{text}");
        assert_eq!(with.without_value().to_string(), text);
    }
    let lost: WithError<u8> = Stopped { reason: LeaseEnd::Closed, value: Some(7) }.into();
    assert!(!lost.is_held() && !lost.is_closed() && !lost.is_permanent());
    assert_eq!(
        lost.without_value().to_string(),
        "the work was stopped: the lock manager is closed"
    );
}

#[test]
fn the_end_of_a_lease_says_why() {
    for (end, text) in [
        (LeaseEnd::Expired { last: QuorumFailure::default() }, "the lease expired"),
        (
            LeaseEnd::Expired { last: answers("+?.") },
            "the lease expired: 1 of 3 nodes granted, 2 needed; n2: no reply within 500.0ms; n3: not asked",
        ),
        (
            LeaseEnd::NotHeld(answers("+--")),
            "the keys are gone: 1 of 3 nodes granted, 2 needed; n2: refused; n3: refused",
        ),
        (LeaseEnd::HoldLimit, "the lease reached its hold limit"),
        (LeaseEnd::Closed, "the lock manager is closed"),
        (LeaseEnd::Released, "the lock was released"),
        (LeaseEnd::Detached, "the lock was detached"),
    ] {
        assert_eq!(end.to_string(), text);
        assert_eq!(
            ExtendError::from(end.clone()).to_string(),
            format!("the lease has ended: {text}")
        );
        let released = ReleaseError::Lost(end);
        assert_eq!(released.to_string(), format!("the lock had been lost: {text}"));
        assert!(released.is_lost());
    }
    assert!(!ReleaseError::Unconfirmed(answers("+??")).is_lost());
}

#[test]
fn an_error_after_a_round_has_the_answer_of_each_node_and_no_other_error_has() {
    let round = || answers("+??");
    let expired = || LeaseEnd::Expired { last: round() };
    let under = |reason| WithError::Lost(Stopped { reason, value: Some(7) });
    let count = |failure: Option<&QuorumFailure>| failure.map(|failure| failure.nodes().len());
    let after_a_round = [
        count(LockError::Held(round()).failure()),
        count(LockError::NoQuorum(round()).failure()),
        count(expired().failure()),
        count(LeaseEnd::NotHeld(round()).failure()),
        count(ExtendError::NoQuorum(round()).failure()),
        count(ExtendError::Lost(expired()).failure()),
        count(ReleaseError::Unconfirmed(round()).failure()),
        count(ReleaseError::Lost(expired()).failure()),
        count(AdoptError::Lost(round()).failure()),
        count(AdoptError::NoQuorum(round()).failure()),
        count(WithError::<u8>::Lock(LockError::NoQuorum(round())).failure()),
        count(under(expired()).failure()),
    ];
    assert_eq!(after_a_round, [Some(3); 12]);
    let without = [
        count(LockError::Closed.failure()),
        count(LeaseEnd::HoldLimit.failure()),
        count(LeaseEnd::Released.failure()),
        count(ExtendError::Lost(LeaseEnd::Closed).failure()),
        count(ExtendError::Ttl(InvalidTtl::TooLong { ttl: MS }).failure()),
        count(ReleaseError::Lost(LeaseEnd::Detached).failure()),
        count(AdoptError::Closed.failure()),
        count(WithError::<u8>::Lock(LockError::Closed).failure()),
        count(under(LeaseEnd::HoldLimit).failure()),
    ];
    assert_eq!(without, [None; 9]);
}

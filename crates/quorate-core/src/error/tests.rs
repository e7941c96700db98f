//! What an error says, and what a caller can ask of it.

use super::*;
use crate::seam::backend::{BackendError, BackendErrorKind, Holder};

const MS: Duration = Duration::from_millis(1);

fn holder(label: &str) -> Holder {
    Holder::new(format!("{} {label}", "ab".repeat(20)).into_bytes())
}

/// A letter for each node: `+` granted, `-` refused, `x` failed for good, `?` no reply in time, `.`
/// not asked, and any other letter a refusal that names the holder with this label.
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

/// The keys k1, k2 …
fn keys(count: u8) -> Arc<[Key]> {
    (1..=count).filter_map(|number| Key::parse(format!("k{number}").into_bytes())).collect()
}

#[test]
fn each_text_names_its_lock_by_three_keys_at_most() {
    for (count, of) in [
        (0, ""),
        (1, "k1: "),
        (3, "k1, k2, k3: "),
        (4, "k1, k2, k3 and 1 more: "),
        (9, "k1, k2, k3 and 6 more: "),
    ] {
        let (round, end) = (|| answers("+??").of(keys(count)), || LeaseEnd::HoldLimit(keys(count)));
        let stopped = || Stopped { reason: end() };
        let texts: [(String, Vec<Key>); 12] = [
            (LockError::Held(round()).to_string(), LockError::Held(round()).names().into()),
            (LockError::NoQuorum(round()).to_string(), LockError::NoQuorum(round()).names().into()),
            (end().to_string(), end().names().into()),
            (LeaseEnd::NotHeld(round()).to_string(), LeaseEnd::NotHeld(round()).names().into()),
            (ExtendError::Lost(end()).to_string(), ExtendError::Lost(end()).names().into()),
            (
                ExtendError::NoQuorum(round()).to_string(),
                ExtendError::NoQuorum(round()).names().into(),
            ),
            (ReleaseError::Lost(end()).to_string(), ReleaseError::Lost(end()).names().into()),
            (
                ReleaseError::Unconfirmed(round()).to_string(),
                ReleaseError::Unconfirmed(round()).names().into(),
            ),
            (AdoptError::Lost(round()).to_string(), AdoptError::Lost(round()).names().into()),
            (
                AdoptError::Lock(LockError::NoQuorum(round())).to_string(),
                AdoptError::Lock(LockError::NoQuorum(round())).names().into(),
            ),
            (stopped().to_string(), stopped().reason.names().into()),
            (WithError::from(stopped()).to_string(), WithError::from(stopped()).names().into()),
        ];
        for (text, names) in texts {
            assert!(text.strip_prefix(of).is_some_and(|rest| !rest.contains("k1")), "{text}");
            assert_eq!(names, *keys(count), "{text}");
        }
    }
}

/// Whatever the error is, and whatever it is wrapped in. A wrapper that is transparent to it hides
/// its type.
#[test]
fn the_end_of_a_lease_and_a_closed_manager_are_found_in_each_error_that_comes_from_them() {
    #[derive(Debug, thiserror::Error)]
    enum Import {
        #[error(transparent)]
        Lock(#[from] LockError),
        #[error(transparent)]
        Adopt(#[from] AdoptError),
        #[error("the import failed")]
        With(#[from] WithError),
        #[error(transparent)]
        Boxed(#[from] Box<dyn Error + Send + Sync>),
        #[error("stopped")]
        Stopped(#[from] Stopped),
        #[error("unlocked")]
        Released(#[source] Arc<ReleaseError>),
    }

    let (lock, adopt) = (|| LockError::from(Closed), || AdoptError::Lock(LockError::from(Closed)));
    let end = || LeaseEnd::Closed(keys(1));
    let (stopped, limit) = (|| Stopped { reason: end() }, || LeaseEnd::HoldLimit(keys(1)));
    let rows: Vec<(Box<dyn Error>, bool, bool)> = vec![
        (lock().into(), false, true),
        (adopt().into(), false, true),
        (end().into(), true, true),
        (stopped().into(), true, true),
        (WithError::from(lock()).into(), false, true),
        (WithError::from(stopped()).into(), true, true),
        (ExtendError::Lost(end()).into(), true, true),
        (ReleaseError::Lost(end()).into(), true, true),
        (Import::from(lock()).into(), false, true),
        (Import::from(adopt()).into(), false, true),
        (Import::from(WithError::from(lock())).into(), false, true),
        (Import::from(WithError::from(stopped())).into(), true, true),
        (Import::from(stopped()).into(), true, true),
        (
            Import::from(Box::<dyn Error + Send + Sync>::from(Import::from(lock()))).into(),
            false,
            true,
        ),
        (Import::Released(Arc::new(ReleaseError::Lost(end()))).into(), true, true),
        (std::io::Error::other(lock()).into(), false, true),
        (std::io::Error::other(Import::from(stopped())).into(), true, true),
        (limit().into(), true, false),
        (Stopped { reason: limit() }.into(), true, false),
        (ReleaseError::Lost(LeaseEnd::Released(keys(1))).into(), true, false),
        (ReleaseError::Unconfirmed(answers("+??")).into(), false, false),
        (LockError::Held(QuorumFailure::default()).into(), false, false),
        (LockError::from(InvalidRequest::Blocking).into(), false, false),
        (AdoptError::Lost(answers("-")).into(), false, false),
        (ExtendError::NoQuorum(answers("x")).into(), false, false),
        (Import::from(LockError::NoQuorum(answers("x"))).into(), false, false),
        ("the lock manager is closed".into(), false, false),
    ];
    for (error, is_lost, is_closed) in rows {
        assert_eq!((lost(&*error).is_some(), closed(&*error)), (is_lost, is_closed), "{error}");
    }
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
            "k: as many tasks of this manager wait for it as may: 7",
        ),
        (LockError::Invalid(InvalidRequest::Blocking), Is::Permanent, in_tasks),
        (EntropyError::new("none").into(), Is::Else, "no random bytes: none"),
        (LockError::Closed(Closed), Is::Closed, "the lock manager is closed"),
    ] {
        assert_eq!(error.to_string(), text);
        assert_eq!(format!("{error:?}"), text, "`main` may return it");
        let seen = (error.is_held(), error.is_closed(), error.is_permanent());
        let is_permanent = matches!(is, Is::Permanent | Is::Closed);
        assert_eq!(seen, (is == Is::Held, is == Is::Closed, is_permanent), "{text}");
        // The same is asked of an error of work under a lock.
        let with: WithError = error.into();
        assert_eq!((with.is_held(), with.is_closed(), with.is_permanent()), seen, "{text}");
        assert_eq!(with.to_string(), text);
    }
    let lost: WithError = Stopped { reason: LeaseEnd::Closed(keys(1)) }.into();
    assert!(!lost.is_held() && !lost.is_closed() && !lost.is_permanent());
    assert_eq!(lost.to_string(), "k1: the work was stopped: the lock manager is closed");
}

#[test]
fn the_end_of_a_lease_says_why() {
    for (end, text) in [
        (LeaseEnd::Expired { last: QuorumFailure::default() }, "the lease expired"),
        (
            LeaseEnd::Expired { last: answers("+?.") },
            "the lease expired: 1 of 3 nodes granted, 2 needed; n2: no reply within 500.0ms; n3: \
             not asked",
        ),
        (
            LeaseEnd::NotHeld(answers("+--")),
            "the keys are gone: 1 of 3 nodes granted, 2 needed; n2: refused; n3: refused",
        ),
        (LeaseEnd::HoldLimit(keys(0)), "the lease reached its hold limit"),
        (LeaseEnd::Closed(keys(0)), "the lock manager is closed"),
        (LeaseEnd::Released(keys(0)), "the lock was released"),
        (LeaseEnd::Detached(keys(0)), "the lock was detached"),
    ] {
        assert_eq!(end.to_string(), text);
        assert_eq!(
            ExtendError::from(end.clone()).to_string(),
            format!("not extended, since {text}")
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
    let under = |reason| WithError::Lost(Stopped { reason });
    let count = |failure: Option<&QuorumFailure>| failure.map(|failure| failure.nodes().len());
    // The others have those of the part that they are made of, as they have its names.
    let after_a_round = [
        count(LockError::Held(round()).failure()),
        count(LockError::NoQuorum(round()).failure()),
        count(expired().failure()),
        count(LeaseEnd::NotHeld(round()).failure()),
        count(AdoptError::Lost(round()).failure()),
        count(WithError::Lock(LockError::NoQuorum(round())).failure()),
        count(under(expired()).failure()),
    ];
    assert_eq!(after_a_round, [Some(3); 7]);
    let without = [
        count(LockError::Closed(Closed).failure()),
        count(LeaseEnd::HoldLimit(keys(1)).failure()),
        count(AdoptError::Lock(LockError::Closed(Closed)).failure()),
        count(under(LeaseEnd::HoldLimit(keys(1))).failure()),
    ];
    assert_eq!(without, [None; 4]);
}

//! The contract of a backend: all cases in their order.

use quorate_core::backend::Capabilities;
use quorate_core::runtime::BoxFuture;

use super::bench::{Bench, Checked};
use super::{Failure, Testbed, fence, guard, limits, lock, order, queue, watch};

type Case = for<'a> fn(&'a Bench<'a>) -> BoxFuture<'a, Checked>;

macro_rules! cases {
    ($($needs:ident { $($name:literal: $case:path,)+ })+) => {
        [$($((
            Capabilities::$needs,
            $name,
            (|bench| Box::pin($case(bench))) as Case,
        ),)+)+]
    };
}

/// Checks the contract of `LockBackend`, and returns the names of the cases that were run.
///
/// What only some backends can do is checked on those whose
/// [`capabilities`](quorate_core::backend::LockBackend::capabilities) say so. Every other backend
/// must fail such a call as unsupported, with nothing sent.
///
/// Run it on a node that no other program uses. The keys begin with `quorate:conformance:`. They are
/// removed before and after, as are their fencing numbers and what the restart guard keeps. A backend
/// with a wait queue takes about 2 s.
///
/// # Errors
///
/// The first [`Failure`].
///
/// # Cancel safety
///
/// If the future is dropped, keys of the open case are left on the node. The next run removes them.
pub async fn backend(testbed: &dyn Testbed) -> Result<Vec<&'static str>, Failure> {
    let cases = cases! {
        NONE {
            "a free key is granted, with the token and the ttl": lock::grants,
            "a held key is refused and left alone": lock::refuses,
            "an acquire that comes twice changes nothing, and repairs several keys": lock::repairs,
            "a key expires by itself when its ttl has passed": lock::expires,
            "a release deletes our key and no other": lock::releases,
            "an extension lengthens and never shortens": lock::extends,
            "an extension sets no key and touches no other holder's": lock::extends_ours,
            "several keys are acquired together or not at all": lock::all_or_none,
            "names are bytes, of any length": lock::binary,
            "of many at once, one is granted": lock::one_of_many,
            "forgotten scripts are sent again": lock::forgotten,
            "a dropped call disturbs no other": lock::dropped,
            "a value of another type is no lock": lock::another_type,
            "an option that is not supported fails with nothing sent": limits::unsupported,
        }
        INSPECT {
            "an inspection returns the holder and the time left, and changes nothing": limits::inspects,
        }
        SERVER_ID { "a server has one id": limits::server_id, }
        ORDERED { "calls take effect in the order of their first polls": order::calls, }
        FENCING {
            "a grant with a number sets the key and raises the number": fence::counts,
            "a fenced acquire that comes twice has the same number": fence::resent,
            "only the holder raises a number, and nobody lowers it": fence::raises,
            "a number outlives its lock, and excludes nobody": fence::outlives,
            "several keys have one number": fence::together,
            "numbers end with an error, and none is lower than before": fence::end,
            "a number of another type is an error, and holds no lock": fence::another_type,
        }
        GUARD {
            "a node without an epoch does not vote until its quarantine is over": guard::begins,
            "a quarantined node knows the locks that it has": guard::knows,
            "a node with another max_ttl changes nothing": guard::disagrees,
            "several keys are guarded together or not at all": guard::together,
            "a node that restarts with its data is quarantined": guard::restarts,
        }
        WATCH {
            "a watch says whether a key is there": watch::reads,
            "a watch is notified of an acquire, of a release and of an expiry": watch::changes,
            "a dropped watch disturbs no other": watch::dropped,
        }
        QUEUE {
            "entries wait in the order in which they joined": queue::in_order,
            "a refresh returns the lock key that is held": queue::held,
            "an entry expires 2 s after its last refresh": queue::expires,
            "the waiters hint says whether an entry is there": queue::hint,
            "the key of an entry exists until the entry leaves": queue::watched,
            "a leave takes effect after the refresh before it": order::leave,
        }
    };
    let backend = testbed.backend();
    let mut passed = Vec::new();
    for (number, (needs, case, check)) in cases.into_iter().enumerate() {
        if !backend.capabilities().contains(needs) {
            continue;
        }
        let bench = Bench::new(testbed, &*backend, number);
        bench.clear_all().await;
        check(&bench).await.map_err(|detail| Failure { case, detail })?;
        bench.clear_all().await;
        passed.push(case);
    }
    Ok(passed)
}

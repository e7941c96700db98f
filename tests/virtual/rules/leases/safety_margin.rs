//! The safety margin of a lease that ended by time: what its next holder waits for.

use crate::waiting::processes::Scene;
use crate::world::{MARGIN, MS, SECOND};
use quorate_core::{LeaseEnd, Runtime};
use quorate_memory::{Effect, Operation, Rule};

/// Why a lease ends by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    NotRenewed,
    RenewalsFail,
    HoldLimit,
}

/// A holder that stops late is alone for the margin, whatever comes next.
/// Rule H7.
#[test]
fn a_lapsed_lease_keeps_its_margin() {
    for end in [End::NotRenewed, End::RenewalsFail, End::HoldLimit] {
        for (is_other, guard_goes) in [(false, false), (false, true), (true, false), (true, true)] {
            let row = format!("{end:?}, another process: {is_other}, the guard goes: {guard_goes}");
            let scene = Scene::new(5);
            let (holder, other) = (scene.process(), scene.process());
            let mut request = holder.lock("r").ttl(10 * SECOND);
            if end == End::HoldLimit {
                request = request.hold_limit(4 * SECOND);
            }
            let guard = scene.run(request).unwrap();
            if end == End::RenewalsFail {
                guard.auto_renew();
                for node in &scene.nodes {
                    node.add_rule(Rule::new(Effect::DropRequest).on(Operation::Extend));
                }
            }
            let next = if is_other { &other } else { &holder }.hold_once("r", MS);
            let lost = scene.run(guard.lost());
            assert_eq!(
                matches!(lost, LeaseEnd::HoldLimit(_)),
                end == End::HoldLimit,
                "{row}: {lost:?}"
            );
            let ended = holder.client.now();
            assert_eq!(guard.valid_until(), ended, "{row}");
            if guard_goes {
                scene.advance(MARGIN / 5);
                drop(guard);
                scene.advance(MARGIN / 5);
                assert!(next.lock().unwrap().is_some(), "{row}: its holder has stopped");
            } else {
                scene.advance(2 * SECOND);
                let from = next.lock().unwrap().expect("the margin is over").from;
                let waited = from - ended;
                assert!(waited >= MARGIN && waited < MARGIN + 20 * MS, "{row}: {waited:?}");
            }
        }
    }
}

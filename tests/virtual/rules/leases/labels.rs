//! L1 to L3: the label of a holder, and its readers.

use quorate_core::resource::InvalidLabel;
use quorate_core::{
    BuildError, DetachedLock, InvalidRequest, LockError, LockManager, operators::LockState,
};
use quorate_memory::Value;

use crate::world::{SECOND, World};

fn labelled(world: &World, label: &str) -> LockManager {
    world.builder().label(label).build().unwrap()
}

#[test]
fn l1_a_refusal_shows_the_label_of_the_holder_and_never_its_token() {
    for fenced in [false, true] {
        for names in [&["r"][..], &["a", "r"]] {
            let world = World::complete(3);
            let request = |locks: &LockManager| {
                let request = locks.lock(names.to_vec());
                if fenced { request.fenced() } else { request }
            };
            let guard = world.sim.block_on(request(&labelled(&world, "web-3 nightly"))).unwrap();
            let value = world.nodes[0].get("r").unwrap();
            let Value::String(value) = value else { panic!("{value:?}") };
            let value = String::from_utf8(value).unwrap();
            assert!(value.ends_with(" web-3 nightly") && value.len() == 54, "{value}");

            let other = labelled(&world, "db-1");
            for wait in [SECOND, SECOND / 1_000_000_000] {
                let error = world.sim.block_on(request(&other).timeout(wait)).unwrap_err();
                assert_eq!(error.held_by(), Some("web-3 nightly"));
                let (_, count) = error.failure().unwrap().holder().unwrap();
                let text = format!(": held by \"web-3 nightly\" on {count} of 3 nodes");
                assert!(error.to_string().ends_with(&text), "{error}");
                assert!(!format!("{error:?}").contains(&value[..40]));
            }
            let seen = world.sim.block_on(other.inspect("r")).unwrap();
            assert_eq!((seen.state(), seen.label()), (LockState::Held, Some("web-3 nightly")));
            assert!(seen.nodes().iter().all(|node| node.label() == Some("web-3 nightly")));
            assert!(!format!("{seen:?}").contains(&value[..40]));

            world.sim.block_on(guard.extend()).unwrap();
            world.sim.block_on(guard.release()).unwrap();
            assert!(world.nodes.iter().all(|node| node.get("r").is_none()));
        }
    }
}

/// Any process may have stored a label, to deceive people who look at terminals and logs.
#[test]
fn l1_a_label_is_shown_escaped_everywhere() {
    let text = "web-3\" on 3 of 3 nodes\u{202e} \u{2066}\u{200f}";
    let escaped = r#""web-3\" on 3 of 3 nodes\u{202e} \u{2066}\u{200f}""#;
    let world = World::complete(3);
    let (holder, other) = (labelled(&world, text), world.manager());
    let mut shown = Vec::new();
    for readers in [false, true] {
        let request = if readers { holder.read("r") } else { holder.lock("r") };
        let guard = world.sim.block_on(request).unwrap();
        let error = world.sim.block_on(other.lock("r").no_wait()).unwrap_err();
        let seen = world.sim.block_on(other.inspect("r")).unwrap();
        shown.extend([error.to_string(), seen.to_string()]);
        let nodes = error.failure().unwrap().nodes().iter().map(|node| node.answer.to_string());
        shown.extend(nodes);
        shown.extend([format!("{error:?}"), format!("{seen:?}")]);
        world.sim.block_on(guard.release()).unwrap();
    }
    let guard = world.sim.block_on(holder.lock("r")).unwrap();
    let freed = world.sim.block_on(labelled(&world, text).revoke("r")).unwrap();
    shown.extend([freed.to_string(), format!("{freed:?}")]);
    let record = guard.detach();
    shown.push(format!("{record:?}"));
    assert!(shown.iter().filter(|one| one.contains(escaped)).count() >= 6, "{shown:#?}");
    let is_raw = |one: &String| one.contains(['\u{202e}', '\u{2066}', '\u{200f}']);
    assert!(!shown.iter().any(|one| is_raw(one) || one.contains("web-3\"")), "{shown:#?}");
}

#[test]
fn a_request_overrides_the_label_of_its_manager_and_a_record_keeps_it() {
    let world = World::complete(3);
    let locks = labelled(&world, "web-3");
    let guard = world.sim.block_on(locks.lock("r").label("orders of 2026")).unwrap();
    let seen = world.sim.block_on(locks.inspect("r")).unwrap();
    assert_eq!(seen.label(), Some("orders of 2026"));
    let record: DetachedLock = guard.detach().unwrap().encode().parse().unwrap();
    assert_eq!(record.label(), Some("orders of 2026"));
    let adopted = world.sim.block_on(labelled(&world, "db-1").adopt(&record)).unwrap();
    world.sim.block_on(adopted.release()).unwrap();
    assert_eq!(world.holders("r"), 0);
}

#[test]
fn l3_a_bad_label_is_refused_before_anything_is_sent() {
    let world = World::complete(3);
    for (label, why) in [
        ("", InvalidLabel::Empty),
        ("a\nb", InvalidLabel::Control { at: 1 }),
        (&*"x".repeat(201), InvalidLabel::TooLong { len: 201 }),
    ] {
        let built = world.builder().label(label).build();
        assert_eq!(built.unwrap_err(), BuildError::Label(why));
        let error = world.sim.block_on(world.manager().lock("r").label(label)).unwrap_err();
        assert!(
            matches!(&error, LockError::Invalid(InvalidRequest::Label(found)) if *found == why)
        );
    }
    assert!(world.log.operations().is_empty());
}

/// The value is compared as a whole: a client that knows the digits alone cannot release the lock.
#[test]
fn the_label_is_a_part_of_the_value() {
    let world = World::complete(3);
    let guard = world.sim.block_on(labelled(&world, "web-3").lock("r")).unwrap();
    let text = guard.detach().unwrap().encode();
    let digits = text.split(':').nth(3).unwrap();
    let bare = text.replace("quorate3:10000::", "quorate1:10000:").replace(":7765622d33", "");
    let record: DetachedLock = bare.parse().unwrap();
    assert!(bare.contains(digits) && record.label().is_none());
    assert!(world.sim.block_on(world.manager().adopt(&record)).is_err());
    assert_eq!(world.holders("r"), 3);
}

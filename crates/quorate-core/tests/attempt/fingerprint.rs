//! The model checker takes two states for one if their fingerprints are the same.

use crate::golden::parse_settings;
use crate::player::Player;

/// The fingerprint after these lines, at a time.
fn after(lines: &[&str], time: &str) -> u64 {
    let mut player = Player::new(parse_settings("nodes 3 ttl 10 margin tenth"), false);
    lines.iter().for_each(|line| drop(player.play(line)));
    player.fingerprint(time)
}

#[test]
fn states_that_may_go_on_differently_have_different_fingerprints() {
    let won = "0 new, n1 n2 n3 granted";
    for (one, other) in [
        ((&["0 new"][..], "0"), (&["0 new"][..], "500ms")),
        ((&["0 new, n1 granted"], "0"), (&["0 new, n1 refused"], "0")),
        ((&["0 new, n1 granted"], "0"), (&["0 new, n2 granted"], "0")),
        ((&[won], "0"), (&[won], "1")),
        // The rest of the cleanup bound.
        ((&[won, "0 cancel"], "0"), (&[won, "0 cancel"], "1")),
        // From the end of the validity on, *not there* says nothing.
        ((&[won, "1 release"], "1"), (&[won, "2 release"], "2")),
    ] {
        assert_ne!(after(one.0, one.1), after(other.0, other.1), "{one:?} and {other:?}");
    }
}

#[test]
fn states_that_go_on_in_the_same_way_have_one_fingerprint() {
    let won = "0 new, n1 n2 n3 granted";
    for (one, other) in [
        ((&["0 new"][..], "0"), (&["5 new"][..], "5")),
        ((&[won, "1 cancel"], "1"), (&[won, "2 cancel"], "2")),
        // It is over.
        ((&[won, "1 detach"], "1"), (&[won, "1 detach"], "8")),
    ] {
        assert_eq!(after(one.0, one.1), after(other.0, other.1), "{one:?} and {other:?}");
    }
}

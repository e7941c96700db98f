//! When an attempt gives its ticket on: the pure function [`is_given_on`].

/// Whether the gate was asked behind the releases, and has answered. An error is an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asking {
    NotAsked,
    /// No gate could be asked: then no process waits there.
    NoGate,
    Asked,
    Answered,
}

/// Whether a ticket is given on before a node timeout has passed. The releases have been handed to all nodes.
///
/// `is_quick`: the lock was not held, or no task here wants the key, or the gate said that no other process waits, or
/// there is no gate.
/// `is_decided`: the release is, or after a lost round the undo, or a quorum of nodes owes nothing.
///
/// | nodes | condition, first match | given on |
/// |---|---|---|
/// | pool | the release is not decided, or the gate was asked and has not answered | no |
/// | pool | else | yes |
/// | ordered | quick | yes: the next acquire leaves right behind the release |
/// | ordered | the gate was asked | when it has answered |
/// | ordered | else | when the release is decided |
pub(super) const fn is_given_on(
    is_ordered: bool,
    is_quick: bool,
    asking: Asking,
    is_decided: bool,
) -> bool {
    match asking {
        Asking::Asked => is_ordered && is_quick,
        Asking::Answered => is_ordered || is_decided,
        Asking::NotAsked | Asking::NoGate => is_ordered && is_quick || is_decided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the table, each with what may still vary.
    #[test]
    fn a_ticket_is_given_on_as_the_table_says() {
        use Asking::{Answered, Asked, NoGate, NotAsked};
        let bits = [false, true];
        for (is_quick, is_decided) in bits.into_iter().flat_map(|a| bits.map(|b| (a, b))) {
            let on_pools = |asking| is_given_on(false, is_quick, asking, is_decided);
            assert!(!on_pools(Asked));
            assert_eq!([NotAsked, NoGate, Answered].map(on_pools), [is_decided; 3]);
        }
        for asking in [NotAsked, NoGate, Asked, Answered] {
            assert!(
                bits.map(|is_decided| is_given_on(true, true, asking, is_decided)) == [true; 2]
            );
        }
        assert_eq!(
            bits.map(|is_decided| is_given_on(true, false, Answered, is_decided)),
            [true; 2]
        );
        assert_eq!(bits.map(|is_decided| is_given_on(true, false, Asked, is_decided)), [false; 2]);
        assert_eq!(bits.map(|is_decided| is_given_on(true, false, NotAsked, is_decided)), bits);
    }
}

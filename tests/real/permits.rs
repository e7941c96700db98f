//! Permits on real nodes, through each client and a pool.

use crate::working::share;

#[test]
fn s1_processes_share_permits_through_each_client() {
    share("permits");
}

/// None holds one and waits for the other.
#[test]
fn s6_two_managers_that_want_both_permits_have_them_in_turn() {
    share("both permits");
}

//! The planted bugs.
//!
//! Each is an idea that somebody could get wrong, and not a line of the code. Every rule of
//! correctness has at least one, with these exceptions:
//!
//! - W1 to W4, the rules of waiting: their bugs are planted together with the queues.
//! - A2 asks for a heading in the documentation, which a test reads; there is no code to plant in.
//! - C8's first half, an error that waits for the replies to its undo, is not in the code yet. The same
//!   is true of H1's second half, refusals that end a lease however its extension was started.
//!
//! Wrong *nodes* are not here: they are the flaws of the in-memory node (`quorate_memory::Flaw`).

/// A planted bug.
pub(crate) struct Bug {
    /// The name of its points, `planted!("…")`.
    pub(crate) name: &'static str,
    /// The rule that it breaks.
    pub(crate) rule: &'static str,
    /// The idea behind it.
    pub(crate) idea: &'static str,
    /// The check that finds it.
    pub(crate) check: Check,
}

/// The check that finds a planted bug.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// The seeded world, with worlds of this class.
    World(&'static str),
    /// A test, by the target that it is in and its path there.
    Test(Target, &'static str),
}

/// A program of tests: its package, and its name there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// The unit tests of the core.
    Core,
    /// The table of the quorum rule, in the core.
    Quorum,
    /// The rules of correctness, in virtual time.
    Rules,
    /// The same on real runtimes.
    Runtimes,
}

use Check::{Test, World};
use Target::{Core, Quorum, Rules, Runtimes};

/// Worlds that keep what the algorithm relies on: nodes keep their data, clocks run evenly.
const PROMISED: Check = World("promised");
/// Worlds in which keys vanish and clocks of nodes jump, which fencing tokens have to outlast.
const STORM: Check = World("storm");
/// Worlds whose nodes lose their data under the restart guard.
const GUARDED: Check = World("guarded");

const fn bug(name: &'static str, rule: &'static str, idea: &'static str, check: Check) -> Bug {
    Bug { name, rule, idea, check }
}

/// All of them, in the order of the rules.
#[rustfmt::skip]
pub(crate) const BUGS: &[Bug] = &[
    // Time
    bug("validity_starts_with_the_last_reply", "T1",
        "The ttl counts from the moment at which a quorum has replied.", PROMISED),
    bug("extension_starts_with_the_last_reply", "T1",
        "An extended ttl counts from the moment at which a quorum has replied.", PROMISED),
    bug("raise_restarts_the_validity", "T1",
        "The second phase of a fenced acquire starts the validity again.", PROMISED),
    bug("drift_is_ignored", "T2",
        "The clocks of the nodes run as fast as ours.", PROMISED),
    bug("acquire_wins_after_its_validity", "T2",
        "A quorum of grants is a lock, however long it took.", PROMISED),
    bug("extension_wins_after_the_lease", "T2",
        "A quorum that extends makes a lease valid that has ended meanwhile.", PROMISED),
    bug("ttl_without_validity_is_accepted", "T3",
        "Any ttl over zero can be locked for.",
        Test(Rules, "input::a_ttl_that_leaves_no_validity_is_refused_before_anything_is_sent")),
    bug("node_timeout_as_long_as_the_validity", "T3",
        "A node timeout of any length fits a ttl.",
        Test(Rules, "time::t3_settings_that_cannot_hold_a_lock_are_refused")),
    bug("durations_are_never_that_long", "T3",
        "Nobody passes a duration that overflows an instant.",
        Test(Core, "algorithm::lease::tests::t3_nothing_overflows_and_nothing_underflows")),
    bug("clock_stands_still_in_suspend", "T4",
        "The monotonic clock goes on while the machine sleeps.",
        Test(Core, "runtime::suspend::tests::a_suspend_is_counted_from_the_first_look_after_it")),
    bug("validity_by_a_clock_that_is_set", "T4",
        "A clock that is set back now and then can tell the end of a lease.", PROMISED),
    bug("timer_ends_the_round", "T5",
        "A timer that fires has reached its deadline.",
        Test(Quorum, "t5_the_deadline_decides_and_not_the_wake_up")),
    bug("timer_comes_before_the_replies", "T5",
        "What the timer says is handled before the replies that are there.",
        Test(Rules, "polling::t5_votes_that_are_there_count_before_the_clock")),
    // Quorum
    bug("half_is_a_quorum", "Q1",
        "Two of four nodes are enough.", PROMISED),
    bug("quorum_of_the_nodes_that_replied", "Q1",
        "A node that is down is not counted.", PROMISED),
    bug("refusals_count_as_grants", "Q1",
        "Every node that replies has voted for the lock.", PROMISED),
    bug("silence_counts_as_a_grant", "Q1",
        "A node that is silent at the deadline has nothing against it.", PROMISED),
    bug("slowest_node_is_waited_for", "Q2",
        "A round ends when all nodes have replied.",
        Test(Quorum, "q2_a_round_ends_with_the_first_answer_that_makes_it_certain")),
    bug("last_vote_counts", "Q3",
        "A later vote of a node in the same round is the better one.",
        Test(Quorum, "q3_only_the_first_answer_of_a_node_counts")),
    bug("errors_mean_held", "Q4",
        "A lock that could not be acquired is held by somebody.",
        Test(Rules, "quorum::q4_only_a_refusal_means_held")),
    bug("errors_count_as_grants", "Q4",
        "A node that fails does not stand in the way.", PROMISED),
    bug("clients_bound_their_calls", "Q5",
        "The client library ends a call that a node does not answer.", PROMISED),
    bug("two_names_are_two_servers", "Q6",
        "Nodes with different names are different servers.",
        Test(Rules, "quorum::q6_one_server_under_two_names_is_refused")),
    // Cleanup
    bug("token_is_drawn_once_per_manager", "C1",
        "A token names the owner, so one for a manager is enough.", PROMISED),
    bug("retry_without_undo", "C2",
        "The keys of a lost round are ours anyway, so the next round can start at once.", PROMISED),
    bug("undo_after_the_retry_delay", "C2",
        "It is enough to release just before the next round.",
        Test(Rules, "cleanup::c2_others_find_the_nodes_free_during_the_delay")),
    bug("undo_skips_silent_nodes", "C2",
        "A node that does not answer would not answer a release either.", PROMISED),
    bug("release_only_where_granted", "C2",
        "A node that has not granted has nothing to release.", PROMISED),
    bug("release_is_sent_to_a_quorum", "C2",
        "A lock is free when a quorum has released it.", PROMISED),
    bug("no_number_no_release", "C2",
        "A fenced attempt that got no number has got no key.", PROMISED),
    bug("release_overtakes_the_acquire", "C3",
        "Calls to one node may pass each other.", PROMISED),
    bug("calls_of_a_pool_keep_their_order", "C3",
        "What is sent later arrives later, on whatever connection.", PROMISED),
    bug("late_replies_are_not_awaited", "C4",
        "Once a round is decided, the calls that are left can be dropped.", PROMISED),
    bug("late_grants_are_not_recorded", "C4",
        "Only a release that found its grant has to be repeated.", PROMISED),
    bug("cancel_skips_the_undo", "C5",
        "A future that is dropped has done nothing.", PROMISED),
    bug("drop_skips_the_release", "C5",
        "Whoever wants to release calls `release`.", PROMISED),
    bug("cleanup_ends_with_the_first_ttl", "C5",
        "After the ttl of the acquire no key is left.",
        Test(Rules, "cleanup::c5_cleanup_goes_on_for_as_long_as_the_longest_extension")),
    bug("cleanup_goes_on_until_it_succeeds", "C5",
        "A node that fails comes back one day.", PROMISED),
    bug("acquire_without_a_reply_is_sent_again", "C6",
        "A request that got no reply was lost.", PROMISED),
    bug("failed_release_is_not_repeated", "C7",
        "A release that failed has been carried out, or the ttl will do it.", PROMISED),
    bug("release_of_an_expired_lease_says_held", "C7",
        "A release that finds its keys had the lock to the end.",
        Test(Rules, "cleanup::releasing::c7_an_expired_lease_is_told_though_the_nodes_still_have_it")),
    bug("close_does_not_wait", "C8",
        "What goes on in the background goes on after the program, too.", PROMISED),
    bug("close_forgets_the_leases", "C8",
        "Guards that are still alive release their locks themselves.", PROMISED),
    bug("acquire_goes_on_after_close", "C8",
        "Nobody acquires while the manager closes.", PROMISED),
    // Holding
    bug("failed_extension_releases", "H1",
        "A lease that could not be extended is over.", PROMISED),
    bug("extension_shortens_the_lease", "H2",
        "The last extension says how long the lease lasts.", PROMISED),
    bug("refused_extension_counts", "H3",
        "A node that answers an extension has extended it.", PROMISED),
    bug("repair_counts_as_a_vote", "H3",
        "A key that could be set again was still ours.", PROMISED),
    bug("repair_without_a_quorum", "H3",
        "The holder may set keys again, whatever a round said.", PROMISED),
    bug("lost_keys_are_never_set_again", "H3",
        "A node that lost its data comes back with the next lock.", PROMISED),
    bug("adopter_trusts_the_record", "H3",
        "A lock that was detached a moment ago is still held.", PROMISED),
    bug("validity_is_a_flag", "H4",
        "A lease is valid until somebody says otherwise.", PROMISED),
    bug("lost_waits_for_the_nodes", "H4",
        "A lease is lost when an extension fails.", PROMISED),
    bug("safety_margin_is_ignored", "H4",
        "The holder can stop at the very moment at which the lease ends.", PROMISED),
    bug("valid_after_it_was_lost", "H4",
        "A lease that was told as lost may be used for the rest of its validity.", PROMISED),
    bug("expired_lease_is_extended", "H4",
        "A lease that has just expired can be extended, if the nodes still have the keys.",
        Test(Rules, "holding::h3_nothing_is_sent_once_the_lease_is_over")),
    bug("extended_after_it_was_lost", "H4",
        "An extension that comes through brings a lost lease back.", PROMISED),
    bug("body_goes_on_after_the_loss", "H4",
        "The body of `with` will look at its lease.", PROMISED),
    bug("one_failed_renewal_ends_the_lease", "H5",
        "A renewal that fails has lost the lease.", PROMISED),
    bug("failed_renewal_is_not_repeated", "H5",
        "A renewal is tried once in its interval.", PROMISED),
    bug("renewal_leaves_no_second_try", "H5",
        "It is enough to renew just before the end.", PROMISED),
    bug("renewal_goes_on_behind_the_release", "H6",
        "What waits for its turn at a node can still be sent after the end of the lease.", PROMISED),
    bug("detached_and_released", "H6",
        "Every guard that is dropped has to release.", PROMISED),
    bug("renewals_at_fixed_times", "H7",
        "Leases are not acquired together, so they are not renewed together.",
        Test(Core, "algorithm::renewal::tests::h7_the_next_renewal_is_drawn_from_the_last_three_tenths")),
    bug("hold_limit_is_ignored", "H7",
        "A lease that is renewed has no end.", PROMISED),
    bug("extension_forgets_the_hold_limit", "H7",
        "The hold limit bounds the first ttl only.", PROMISED),
    // Async
    bug("drop_needs_a_runtime", "A1",
        "A guard is dropped where a runtime runs.",
        Test(Runtimes, "a1_a_guard_can_be_dropped_in_a_thread_without_a_runtime")),
    bug("body_waits_for_the_renewal", "A3",
        "The renewal and the body of `with` take turns.", PROMISED),
    bug("timeout_bounds_each_round_alone", "A4",
        "A lock may take a little longer than its timeout.", PROMISED),
    bug("permanent_errors_are_retried", "A4",
        "Whatever fails now may work later.",
        Test(Rules, "polling::a4_an_error_that_time_does_not_mend_ends_the_wait")),
    bug("last_round_names_the_error", "A4",
        "The last round knows best why there is no lock.",
        Test(Rules, "polling::a_deadline_in_mid_round_does_not_hide_who_held_it")),
    bug("keys_are_joined_without_a_separator", "A5",
        "The keys of a record can be told apart without a separator.", PROMISED),
    bug("debug_shows_the_token", "A6",
        "A token is a random number, and nothing to hide.",
        Test(Core, "resource::tests::a_token_prints_on_the_wire_and_nowhere_else")),
    // Fencing, and the restart guard
    bug("highest_reply_is_the_token", "fencing",
        "The highest number that a node gave is the token.", STORM),
    bug("token_of_less_than_a_quorum", "fencing",
        "Nearly a quorum with the same number is enough for a token.", STORM),
    bug("grant_during_a_raise_is_a_vote", "fencing",
        "Every node that holds the key has voted for the number.", STORM),
    bug("fencing_hint_is_not_sent", "fencing",
        "The nodes remember their numbers, so no clock is needed.", STORM),
    bug("record_forgets_the_token", "fencing",
        "The process that adopts a lock gets a token of its own.", PROMISED),
    bug("restarted_node_votes_at_once", "restarts",
        "A node that is back is as good as before.", GUARDED),
    bug("address_leads_to_one_server", "restarts",
        "A server id that goes back and forth belongs to a server that restarts often.",
        Test(Rules, "restarts::moves::an_address_with_several_servers_behind_it_is_reported_and_does_not_vote")),
    // Passing on
    bug("receiver_polls_a_lost_lease", "passing on",
        "A lease that was passed on still lasts when its receiver looks.",
        Test(Core, "algorithm::local_queue::tests::exploration::no_order_of_events_breaks_the_queue")),
    bug("dropped_receiver_keeps_the_lease", "passing on",
        "A receiver that is dropped before its poll has nothing to release.",
        Test(Core, "algorithm::local_queue::tests::exploration::no_order_of_events_breaks_the_queue")),
    bug("extension_before_the_pass_counts", "passing on",
        "An extension that was in flight at the pass confirms it.",
        Test(Core, "algorithm::local_queue::tests::exploration::no_order_of_events_breaks_the_queue")),
    bug("passer_is_told_lost", "passing on",
        "A key that is gone after the pass was gone before it.",
        Test(Core, "algorithm::local_queue::tests::exploration::no_order_of_events_breaks_the_queue")),
    bug("pass_although_others_wait", "passing on",
        "A lease can be passed on while another process waits.",
        Test(Core, "algorithm::local_queue::tests::exploration::no_order_of_events_breaks_the_queue")),
    bug("pass_late", "passing on",
        "A lease can be passed on as long as it is valid.",
        Test(Core, "algorithm::local_queue::tests::exploration::no_order_of_events_breaks_the_queue")),
    bug("pass_to_another_ttl", "passing on",
        "A lease fits a waiter with any ttl.",
        Test(Core, "algorithm::local_queue::tests::the_examples_hold_step_by_step")),
    bug("pass_adopted", "passing on",
        "An adopted lease can be passed on.",
        Test(Core, "algorithm::local_queue::tests::the_examples_hold_step_by_step")),
    bug("detach_forgets_the_passers", "passing on",
        "Who passed a lease on learns nothing when it is detached.",
        Test(Core, "algorithm::local_queue::tests::the_examples_hold_step_by_step")),
    bug("pass_without_bound", "passing on",
        "A lease can be passed on as often as there are waiters.",
        Test(Core, "algorithm::local_queue::tests::a_lease_is_passed_on_eight_times")),
];

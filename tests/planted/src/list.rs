//! The planted bugs.
//!
//! Each is an idea that somebody could get wrong, and not a line of the code. Every rule of
//! correctness has at least one, but for A2: it asks for a heading in the documentation, which a test reads.
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
    /// The tables of the attempt machine, in the core.
    Attempt,
    /// The rules of correctness, in virtual time.
    Rules,
    /// The same on real runtimes.
    Runtimes,
}

use Check::{Test, World};
use Target::{Attempt, Core, Quorum, Rules, Runtimes};

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
    bug("drift_is_ignored", "T2",
        "The clocks of the nodes run as fast as ours.", PROMISED),
    bug("ttl_without_validity_is_accepted", "T3",
        "Any ttl over zero can be locked for.",
        Test(Rules, "input::a_ttl_that_leaves_no_validity_is_refused_before_anything_is_sent")),
    bug("durations_are_never_that_long", "T3",
        "Nobody passes a duration that overflows an instant.",
        Test(Core, "algorithm::lease::tests::t3_nothing_overflows_and_nothing_underflows")),
    bug("clock_stands_still_in_suspend", "T4",
        "The monotonic clock goes on while the machine sleeps.",
        Test(Core, "runtime::suspend::tests::a_suspend_is_counted_from_the_first_look_after_it")),
    bug("timer_comes_before_the_replies", "T5",
        "What the timer says is handled before the replies that are there.",
        Test(Rules, "polling::t5_votes_that_are_there_count_before_the_clock")),
    // Quorum
    bug("half_is_a_quorum", "Q1",
        "Two of four nodes are enough.",
        Test(Quorum, "q1_the_verdict_is_that_of_the_table_for_every_split_of_votes")),
    bug("slowest_node_is_waited_for", "Q2",
        "A round ends when all nodes have replied.",
        Test(Quorum, "q2_a_round_ends_with_the_first_answer_that_makes_it_certain")),
    bug("errors_mean_held", "Q4",
        "A lock that could not be acquired is held by somebody.",
        Test(Rules, "quorum::q4_only_a_refusal_means_held")),
    bug("clients_bound_their_calls", "Q5",
        "The client library ends a call that a node does not answer.",
        Test(Rules, "quorum::q5_a_node_that_never_answers_costs_one_node_timeout")),
    // Cleanup
    bug("token_is_drawn_once_per_manager", "C1",
        "A token names the owner, so one for a manager is enough.",
        Test(Rules, "cleanup::c1_every_attempt_has_a_token_of_its_own")),
    bug("undo_skips_silent_nodes", "C2",
        "A node that does not answer would not answer a release either.", PROMISED),
    bug("acquire_without_a_reply_is_sent_again", "C6",
        "A request that got no reply was lost.",
        Test(Rules, "cleanup::c6_an_acquire_is_sent_once")),
    bug("close_does_not_wait", "C8",
        "What goes on in the background goes on after the program, too.", PROMISED),
    bug("close_forgets_the_leases", "C8",
        "Guards that are still alive release their locks themselves.", PROMISED),
    bug("acquire_goes_on_after_close", "C8",
        "Nobody acquires while the manager closes.", PROMISED),
    // Holding
    bug("lost_waits_for_the_nodes", "H4",
        "A lease is lost when an extension fails.", PROMISED),
    bug("valid_after_it_was_lost", "H4",
        "A lease that was told as lost may be used for the rest of its validity.", PROMISED),
    bug("expired_lease_is_extended", "H4",
        "A lease that has just expired can be extended, if the nodes still have the keys.",
        Test(Rules, "holding::h3_nothing_is_sent_once_the_lease_is_over")),
    bug("body_goes_on_after_the_loss", "H4",
        "The body of `with` will look at its lease.", PROMISED),
    bug("failed_renewal_is_not_repeated", "H5",
        "A renewal is tried once in its interval.", PROMISED),
    bug("renewal_leaves_no_second_try", "H5",
        "It is enough to renew just before the end.", PROMISED),
    bug("detached_and_released", "H6",
        "Every guard that is dropped has to release.", PROMISED),
    bug("renewals_at_fixed_times", "H7",
        "Leases are not acquired together, so they are not renewed together.",
        Test(Core, "algorithm::renewal::tests::h7_the_next_renewal_is_drawn_from_the_last_three_tenths")),
    bug("hold_limit_is_ignored", "H7",
        "A lease that is renewed has no end.", PROMISED),
    // Async
    bug("drop_needs_a_runtime", "A1",
        "A guard is dropped where a runtime runs.",
        Test(Runtimes, "a1_a_guard_can_be_dropped_in_a_thread_without_a_runtime")),
    bug("body_waits_for_the_renewal", "A3",
        "The renewal and the body of `with` take turns.", PROMISED),
    bug("permanent_errors_are_retried", "A4",
        "Whatever fails now may work later.",
        Test(Rules, "polling::a4_a_permanent_error_on_too_many_nodes_ends_the_wait")),
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
    bug("record_forgets_the_token", "fencing",
        "The process that adopts a lock gets a token of its own.", PROMISED),
    // The attempt as one state machine
    bug("validity_from_reply", "T1",
        "The validity starts with the reply of a node.",
        Test(Attempt, "golden::a_first_round_is_won_or_lost_by_a_quorum_of_the_configured_nodes")),
    bug("raise_moves_the_clock", "T1",
        "The validity starts with the second phase of a fenced acquire.",
        Test(Attempt, "golden::a_fencing_token_is_one_number_of_a_quorum")),
    bug("expired_win", "T2",
        "A quorum is a win, whenever it comes.",
        Test(Attempt, "golden::a_first_round_is_won_or_lost_by_a_quorum_of_the_configured_nodes")),
    bug("second_reply_votes", "Q3",
        "A second reply of a node counts as well.",
        Test(Attempt, "golden::a_first_round_is_won_or_lost_by_a_quorum_of_the_configured_nodes")),
    bug("old_reply_votes", "Q3",
        "A reply to an earlier extension votes in this round.",
        Test(Attempt, "golden::an_extension_moves_the_lease_or_leaves_it")),
    bug("deadline_settles_a_call", "C3",
        "A call whose deadline has passed has settled.",
        Test(Attempt, "golden::an_end_releases_each_node_that_may_have_the_key")),
    bug("release_overtakes", "C3",
        "A release need not wait for the call before it.",
        Test(Attempt, "golden::an_end_releases_each_node_that_may_have_the_key")),
    bug("late_grant_is_forgotten", "C4",
        "A grant that arrives after the decision needs no note.",
        Test(Attempt, "golden::a_first_round_is_won_or_lost_by_a_quorum_of_the_configured_nodes")),
    bug("cancel_forgets_calls", "C5",
        "A cancelled acquire leaves nothing where it is still in flight.",
        Test(Attempt, "golden::an_end_releases_each_node_that_may_have_the_key")),
    bug("never_gives_up", "C5",
        "Cleanup goes on until each node has answered.",
        Test(Attempt, "golden::examples_of_the_specification")),
    bug("release_is_sent_once", "C7",
        "A release that failed needs no second one.",
        Test(Attempt, "golden::an_end_releases_each_node_that_may_have_the_key")),
    bug("resend_without_pause", "C7",
        "A failed release is sent again at once.",
        Test(Attempt, "golden::an_end_releases_each_node_that_may_have_the_key")),
    bug("resent_refusal_is_loss", "C7",
        "\"Not ours\" to a release that was sent again means that the lock had been lost.",
        Test(Attempt, "golden::an_end_releases_each_node_that_may_have_the_key")),
    bug("expiry_is_loss", "C7",
        "\"Not there\" after the end of the lease means that the lock had been lost.",
        Test(Attempt, "golden::an_end_releases_each_node_that_may_have_the_key")),
    bug("failed_extend_releases", "H1",
        "A failed extension ends the lease.",
        Test(Attempt, "golden::an_extension_moves_the_lease_or_leaves_it")),
    bug("refusals_are_ignored", "H1",
        "A lease lasts until its end, whatever the nodes say.",
        Test(Attempt, "golden::an_extension_moves_the_lease_or_leaves_it")),
    bug("extend_shortens", "H2",
        "An extension with a shorter ttl shortens the lease.",
        Test(Attempt, "golden::an_extension_moves_the_lease_or_leaves_it")),
    bug("repair_votes", "H3",
        "A key that was set again counts in the same round.",
        Test(Attempt, "golden::an_extension_moves_the_lease_or_leaves_it")),
    bug("go_on_before_deciding", "H4",
        "A reply that settles an old call may send the next extension before the time is looked at.",
        Test(Attempt, "golden::an_extension_moves_the_lease_or_leaves_it")),
    bug("repair_after_release", "H6",
        "A late \"not ours\" is repaired, whatever has begun since.",
        Test(Attempt, "golden::an_end_releases_each_node_that_may_have_the_key")),
    bug("failed_adopt_releases", "H6",
        "A failed adoption has to release.",
        Test(Attempt, "golden::an_adopted_lock_is_released_only_once_it_is_ours")),
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
    bug("one_server_votes_twice", "Q6",
        "Two names are two servers.",
        Test(Rules, "quorum::q6_one_server_under_two_names_is_refused")),
    // Waiting
    bug("misled_waiter_never_backs_off", "W4",
        "A gate that says free is right.",
        Test(Core, "algorithm::turn::tests::the_examples_hold_step_by_step")),
    bug("out_of_turn_without_a_second_look", "W2",
        "A first entry that leaves a free lock is dead.",
        Test(Core, "algorithm::turn::tests::the_examples_hold_step_by_step")),
    bug("overtaken_entry_stays", "W3",
        "A winner leaves alone.",
        Test(Core, "wait::tests::w3_an_entry_that_does_not_take_a_free_lock_is_overtaken")),
    bug("refused_waiter_drops_the_first_entry", "W2",
        "The first entry was dead even though the attempt was refused.",
        Test(Core, "algorithm::turn::tests::the_examples_hold_step_by_step")),
    bug("noise_without_a_rest", "W4",
        "Every push is a release.",
        Test(Core, "wait::tests::w4_a_waiter_does_not_spin_when_others_write_the_key")),
    bug("absent_predecessor_is_asked_for_without_end", "W4",
        "An entry whose key is absent has just left.",
        Test(Core, "algorithm::turn::tests::the_examples_hold_step_by_step")),
    bug("push_before_the_reply_is_lost", "W1",
        "A push follows the reply to its watch.",
        Test(Core, "algorithm::turn::tests::the_examples_hold_step_by_step")),
    bug("push_of_another_key_wakes", "W4",
        "Any push is ours.",
        Test(Core, "algorithm::turn::tests::the_examples_hold_step_by_step")),
    bug("pushes_are_never_lost", "W1",
        "No slow poll is needed.",
        Test(Core, "wait::tests::w1_a_lost_push_costs_one_refresh")),
    bug("silent_gate_is_asked_again", "W1",
        "A silent gate will answer.",
        Test(Core, "algorithm::turn::tests::the_examples_hold_step_by_step")),
    bug("silent_gate_stays_the_gate_of_new_waits", "W1",
        "Each wait finds out by itself.",
        Test(Core, "wait::tests::w1_a_silent_gate_costs_one_node_timeout")),
    bug("waits_share_an_entry", "W2",
        "A constant name does.",
        Test(Core, "wait::tests::w2_the_lock_goes_from_entry_to_entry")),
    bug("cancelled_wait_stays_in_the_queue", "W3",
        "The entry expires anyway.",
        Test(Core, "wait::tests::w3_a_dropped_wait_lets_the_next_one_in_at_once")),
    bug("leave_overtakes_the_refresh", "W3",
        "LEAVE needs no order.",
        Test(Core, "wait::tests::w3_a_leave_follows_a_refresh_in_flight")),
    bug("watch_replies_nothing", "W1",
        "A change that came before the watch is reported by it.",
        Test(Core, "wait::tests::a_release_between_the_refusal_and_the_watch_is_seen")),
    bug("node_without_pushes_is_no_gate", "W2",
        "Without tracking there is no queue.",
        Test(Core, "wait::tests::a_gate_without_pushes_still_keeps_the_order")),
    bug("notified_waiter_never_rests", "W4",
        "Pushes are rare.",
        Test(Core, "wait::tests::w4_a_waiter_does_not_spin_when_its_watch_is_evicted")),
];

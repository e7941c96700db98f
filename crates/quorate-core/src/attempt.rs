//! The life of one token. Whatever happens to it is handled where it happens, by the thread on which it happens.
//!
//! A reply, a due time and a wish of the caller are one kind of thing, an *input*. Each is handled by one function:
//!
//! 1. lock the attempt's state (a reply that finds it locked goes into a list, and waits for nobody);
//! 2. the pure machine handles the input, with one reading of the clock;
//! 3. the calls that it asks for *begin*, under the lock, which fixes their order at each node;
//! 4. what it decides is kept beside it, and the end of the lease is published;
//! 5. unlock, and perform the effects: tickets are given on, tasks are woken, events are told.
//!
//! So there is no future for a call and no task for an attempt. A caller that goes away leaves nothing that must be
//! polled. A reply that comes late finds the machine, or nothing.
//!
//! | who | brings | waits for |
//! |---|---|---|
//! | a request | [`Attempt::begin`] | [`Attempt::first`]: won, or not won |
//! | a guard | [`Attempt::release`], [`Attempt::extend`], its drop | the decision |
//! | a node | the reply to a call | |
//! | the timekeeper | due times: deadlines, renewals, the end of the lease | |

mod end;
mod given_up;
mod giving;
mod identity;
mod life;
mod looks;
mod messages;
mod renewing;
mod report;
mod state;

pub(crate) use self::life::{Attempt, AttemptOptions};
pub(crate) use self::looks::NotWon;

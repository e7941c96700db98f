//! One step, and its input to an attempt.

use std::fmt;

use quorate_pure::core_source::algorithm::attempt::{CallId, Outcome};

use crate::place::{Kind, Request};
use crate::world::World;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Begin(usize),
    /// The clock ticks.
    Tick,
    /// A timer that is due.
    Timeout(usize),
    Release(usize),
    Cancel(usize),
    Detach(usize),
    Extend(usize),
    /// An extension for longer than the open round.
    ExtendLonger(usize),
    /// The manager is closed.
    Close(usize),
    /// A node answers another call.
    Back(usize, usize),
    /// A node pushes that the key was written, whether or not it was.
    Push(usize, usize),
    /// A revoke marks the key.
    Revoke(usize),
    ForeignTakes(usize),
    ForeignFrees(usize),
    Vanish(usize),
    LoseData(usize),
    /// A node executes a request.
    Execute {
        from: usize,
        node: usize,
        request: Request,
        is_stray: bool,
        fate: Fate,
    },
    /// A node does nothing, or nothing was sent.
    Fail {
        from: usize,
        node: usize,
        request: Request,
        outcome: Outcome<()>,
    },
    Reply {
        from: usize,
        node: usize,
        request: Request,
        outcome: Outcome<()>,
        is_twice: bool,
    },
    /// A connection is lost; so many requests had reached the node.
    Drop {
        from: usize,
        node: usize,
        delivered: usize,
    },
}

/// What becomes of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The reply is in flight, or has arrived.
    Replied,
    /// The reply never arrives.
    Unheard,
    /// The reply is in flight, and the request is executed once more later.
    Repeated,
}

impl Step {
    /// The place in the order of steps if everything is answered; the least is taken.
    pub(crate) const fn order_if_answered(&self) -> Option<u8> {
        match self {
            Self::Execute { is_stray: true, .. } => Some(0),
            Self::Execute { fate: Fate::Replied, .. } => Some(1),
            Self::Reply { is_twice: false, .. } => Some(2),
            Self::Timeout(_) => Some(3),
            Self::Release(_) => Some(4),
            Self::Tick => Some(5),
            _ => None,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Execute { from, node, request, is_stray, fate } => {
                let stray = if *is_stray { " late" } else { "" };
                write!(f, "{from} -> n{node}: {:?} is executed{stray}, {fate:?}", request.kind)
            }
            Self::Fail { from, node, request, outcome } => {
                write!(f, "{from} -> n{node}: {:?} fails, {outcome:?}", request.kind)
            }
            Self::Reply { from, node, request, outcome, is_twice } => {
                let twice = if *is_twice { ", twice" } else { "" };
                write!(f, "{from} <- n{node}: {:?} {outcome:?}{twice}", request.kind)
            }
            other => write!(f, "{other:?}"),
        }
    }
}

/// What follows a step.
pub(crate) struct Next {
    pub(crate) step: Step,
    pub(crate) world: World,
    pub(crate) wrong: Option<&'static str>,
}

/// What an attempt is given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input<'a> {
    Replies(&'a [(CallId, Kind, Outcome<()>)]),
    Timeout,
    Release,
    Cancel,
    Detach,
    /// In ticks.
    Extend(u8),
    Close,
    Back(usize),
    Push(usize),
}

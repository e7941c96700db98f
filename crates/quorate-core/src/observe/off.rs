//! Nobody watches: everything here is nothing, and has no size.

use std::time::Instant;

use crate::algorithm::quorum::{NodeCount, NodeId};
use crate::algorithm::round::Loss;
use crate::backend::BackendErrorKind;
use crate::cluster::Cluster;
use crate::driver::{Answer, Attempt, Operation};
use crate::error::{LockError, Lost, Released, Votes};
use crate::lease::Tenure;
use crate::resource::Key;

#[derive(Debug)]
pub(crate) struct Nodes;

impl Nodes {
    pub(crate) const fn new(_: NodeCount) -> Self {
        Self
    }
}

pub(crate) struct Holding;

impl Holding {
    pub(crate) const fn begin(_: &Attempt) -> Self {
        Self
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Watch;

impl Watch {
    pub(crate) fn begin(attempt: &Attempt, _: &Operation) -> Self {
        let Nodes = attempt.cluster.watched;
        Self
    }

    pub(crate) const fn sent(self, _: &Attempt, _: NodeId) {}

    pub(crate) const fn settled(self, _: &Attempt, _: NodeId, _: Option<&Answer>) {}
}

pub(crate) struct Cleanup;

impl Cleanup {
    pub(crate) const fn begin(_: &Attempt) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "as it is where somebody watches")]
    pub(crate) const fn ended(self, _: &Attempt, _: usize) {}
}

pub(crate) fn acquiring<F>(_: &Cluster, _: &[Key], locking: F) -> F {
    locking
}

pub(crate) const fn invalid(_: &LockError) {}

pub(crate) fn adopting<F>(_: &Cluster, _: &[Key], adopting: F) -> F {
    adopting
}

pub(crate) const fn refused(_: &Cluster, _: &[Key], _: Instant, _: Loss, _: &LockError) {}

pub(crate) const fn extended(_: &Tenure, _: Instant) {}

pub(crate) const fn not_extended(_: &Tenure, _: Instant, _: &Votes) {}

pub(crate) const fn ended(tenure: &Tenure, _: &Lost) {
    let Holding = tenure.holding;
}

pub(crate) const fn released(_: &Tenure, _: Instant, _: Released) {}

pub(crate) fn not_released(_: &Tenure, _: Instant, _: impl FnOnce() -> Votes) {}

pub(crate) const fn dropped(_: &Tenure) {}

pub(crate) const fn cannot(_: &Cluster, _: NodeId, _: &'static str, _: BackendErrorKind) {}

//! The calls of `release()` that have not resolved.

use super::messages::{ExtensionId, Found, LeaseId, Output, TaskId};

/// The calls of `release()` that have not resolved, and what each takes for an answer.
///
/// A task that released at the nodes gets what that release found. A task that passed the lease on takes its
/// answer from the first extension that began after the pass, or from the final release, whichever is decided
/// first: *held* if that succeeded, else *unconfirmed*. It never gets *lost*: the keys may have been
/// lost after the pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Endings(Vec<Ending>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ending {
    task: TaskId,
    lease: LeaseId,
    /// How many extensions had begun before the pass; `None` for the task that released at the nodes.
    passed_after: Option<u32>,
}

impl Endings {
    /// A task waits from now on. `passed_after`: it passed the lease on, after so many extensions.
    pub(super) fn begin(&mut self, task: TaskId, lease: LeaseId, passed_after: Option<u32>) {
        // An extension that is in flight may have been executed before the pass: it proves nothing.
        let counts = u32::from(planted!("extension_before_the_pass_counts"));
        let passed_after = passed_after.map(|extensions| extensions.saturating_sub(counts));
        self.0.push(Ending { task, lease, passed_after });
    }

    /// The future of a `release()` was dropped.
    pub(super) fn cancel(&mut self, task: TaskId) {
        self.0.retain(|ending| ending.task != task);
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a task waits for an answer about this lease.
    pub(super) fn has(&self, lease: LeaseId) -> bool {
        self.0.iter().any(|ending| ending.lease == lease)
    }

    /// An extension was decided: answers the tasks that passed the lease on before it began.
    pub(super) fn extended(&mut self, id: ExtensionId, is_won: bool) -> Vec<Output> {
        let failed = if planted!("passer_is_told_lost") { Found::Lost } else { Found::Unconfirmed };
        let found = if is_won { Found::Held } else { failed };
        self.resolve(|ending| {
            let passed_after = ending.passed_after.filter(|_| ending.lease == id.lease)?;
            (passed_after < id.number).then_some(found)
        })
    }

    /// The release found this: answers all tasks that wait for this lease.
    pub(super) fn released(&mut self, lease: LeaseId, found: Found) -> Vec<Output> {
        self.resolve(|ending| {
            let is_proof = ending.passed_after.is_none() || found == Found::Held;
            let told = if is_proof { found } else { Found::Unconfirmed };
            (ending.lease == lease).then_some(told)
        })
    }

    fn resolve(&mut self, answer: impl Fn(&Ending) -> Option<Found>) -> Vec<Output> {
        let answered = self.0.iter().filter_map(|ending| Some((ending.task, answer(ending)?)));
        let outputs = answered.map(|(task, found)| Output::Resolve(task, found)).collect();
        self.0.retain(|ending| answer(ending).is_none());
        outputs
    }
}

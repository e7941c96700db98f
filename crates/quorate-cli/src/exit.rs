//! Exit codes, and the errors that lead to them.

use std::fmt::Display;
use std::io;

use quorate::error::AdoptError;
use quorate::{LeaseEnd, LockError, ReleaseError};
use rustix::io::Errno;

/// Bad usage.
pub(crate) const USAGE: u8 = 64;
/// No quorum of the nodes can be reached.
pub(crate) const NO_QUORUM: u8 = 69;
/// A node has a problem, and a quorum can be locked.
pub(crate) const PROBLEM: u8 = 70;
/// The system has too few file descriptors, or processes.
const OS_ERROR: u8 = 71;
/// The report cannot be written.
pub(crate) const UNWRITTEN: u8 = 74;
/// Held by another until the wait ended.
pub(crate) const HELD: u8 = 75;
/// A permanent error.
pub(crate) const PERMANENT: u8 = 78;
/// The lock was lost.
pub(crate) const LOST: u8 = 79;
/// The command cannot be run.
pub(crate) const CANNOT_RUN: u8 = 126;
/// The command is not there.
pub(crate) const NOT_FOUND: u8 = 127;

/// Why a subcommand ends without a result: one line, and the exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) text: String,
    /// What holds the lock is the mark of work that is done.
    pub(crate) is_done: bool,
}

impl Failure {
    pub(crate) fn new(code: u8, text: impl Display) -> Self {
        Self { code, text: text.to_string(), is_done: false }
    }

    pub(crate) fn usage(text: impl Display) -> Self {
        Self::new(USAGE, text)
    }
}

/// The system refuses what every program needs.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let tip = match Errno::from_io_error(&error) {
            Some(Errno::MFILE | Errno::NFILE) => ": raise ulimit -n",
            Some(Errno::AGAIN) => ": raise ulimit -u",
            _ => "",
        };
        Self::new(OS_ERROR, format!("{error}{tip}"))
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let code = match &error {
            LockError::Held(_) => HELD,
            LockError::Invalid(_) => USAGE,
            _ if error.is_permanent() => PERMANENT,
            _ => NO_QUORUM,
        };
        let is_done = matches!(&error, LockError::Held(failure) if failure.is_done());
        Self { is_done, ..Self::new(code, error) }
    }
}

impl From<AdoptError> for Failure {
    fn from(error: AdoptError) -> Self {
        match error {
            AdoptError::Lock(error) => error.into(),
            error => Self::new(LOST, error),
        }
    }
}

impl From<LeaseEnd> for Failure {
    fn from(reason: LeaseEnd) -> Self {
        Self::new(LOST, format!("the lock was lost: {reason}"))
    }
}

impl From<ReleaseError> for Failure {
    fn from(error: ReleaseError) -> Self {
        match error {
            ReleaseError::Lost(reason) => reason.into(),
            error => Self::new(NO_QUORUM, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_refuses_is_71_and_a_limit_is_named() {
        for (errno, tip) in [
            (Errno::MFILE, "(os error 24): raise ulimit -n"),
            (Errno::NFILE, "(os error 23): raise ulimit -n"),
            (Errno::AGAIN, "(os error 11): raise ulimit -u"),
            (Errno::NOMEM, "(os error 12)"),
        ] {
            let Failure { code, text, .. } = io::Error::from(errno).into();
            assert!(code == 71 && text.ends_with(tip), "{code}: {text}");
        }
    }
}

//! `lock`, `extend` and `release`: a detached lock for the steps of a pipeline.

use std::fs::{self, File};
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use quorate::error::AdoptError;
use quorate::{DetachedLock, LockManager};
use tokio::task::spawn_blocking;

use crate::args::{Common, Lock};
use crate::exit::{Failure, UNWRITTEN};
use crate::nodes::{CLOSE, open};
use crate::say;
use crate::session::Session;

/// Acquires a lock and prints its record.
pub(crate) async fn lock(common: &Common, lock: &Lock) -> Result<u8, Failure> {
    if is_discarded().unwrap_or(false) {
        let text = "the record would be lost: standard output is /dev/null, or closed";
        return Err(Failure::new(UNWRITTEN, text));
    }
    let mut session = Session::open(common, &lock.held)?;
    let result = print(&mut session, lock).await;
    // The slower nodes have the lock as well.
    session.close(&result).await;
    result
}

/// Whether standard output is /dev/null, which std opens in place of one that is closed.
fn is_discarded() -> io::Result<bool> {
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?).metadata()?;
    let null = fs::metadata("/dev/null")?;
    Ok(output.file_type().is_char_device() && output.rdev() == null.rdev())
}

async fn print(session: &mut Session, lock: &Lock) -> Result<u8, Failure> {
    let Lock { names, held } = lock;
    let request = session.manager.lock(names);
    let request = if held.fenced { request.fenced() } else { request };
    let guard = session.acquire(request, names, held.wait()).await?;
    if held.ttl.is_none() {
        session.warn(format!("nobody renews this lock: it ends after {:?}. See --ttl", held.ttl()));
    }
    if io::stdout().is_terminal() {
        session.warn("the record is a secret: any process that has it can release the lock");
    }
    let record = guard.detach()?;
    let text = record.encode();
    // Standard output may block: then a signal takes the lock back.
    let failure = tokio::select! {
        biased;
        written = spawn_blocking(move || say::print(text)) => {
            let written = written.map_err(io::Error::other).and_then(|written| written);
            let Err(error) = written else { return Ok(0) };
            let text = format!("the record was not written, the lock is free: {error}");
            Failure::new(UNWRITTEN, text)
        }
        failure = session.signals.end() => failure,
    };
    // Nobody has the record.
    session.manager.release(&record).await?;
    Err(failure)
}

/// Extends the lock whose record is on standard input. The record stays valid.
pub(crate) async fn extend(common: &Common) -> Result<u8, Failure> {
    let (manager, record) = read(common)?;
    manager.adopt(&record).await?.detach()?;
    let _ = manager.close(CLOSE).await;
    Ok(0)
}

/// Releases the lock whose record is on standard input.
pub(crate) async fn release(common: &Common) -> Result<u8, Failure> {
    let (manager, record) = read(common)?;
    let released = match manager.adopt(&record).await {
        Ok(guard) => guard.release().await.map_err(Failure::from),
        // One that was revoked is not adopted, and is free with its release.
        Err(AdoptError::Lost(_)) if manager.release(&record).await.is_ok() => Ok(()),
        Err(error) => Err(error.into()),
    };
    let _ = manager.close(CLOSE).await;
    released.map(|()| 0)
}

fn read(common: &Common) -> Result<(LockManager, DetachedLock), Failure> {
    let text = io::read_to_string(io::stdin()).map_err(Failure::usage)?;
    let record = text.trim().parse().map_err(Failure::usage)?;
    Ok((open(common, None)?, record))
}

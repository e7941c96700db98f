//! `lock`, `extend` and `release`: a detached lock for the steps of a pipeline.

use std::io::{self, IsTerminal as _, Read as _, Write as _};

use quorate::{DetachedLock, LockGuard, LockManager};
use tokio::task::spawn_blocking;

use crate::args::{Common, Held, Wait};
use crate::exit::{Failure, LOST, UNWRITTEN};
use crate::nodes::{CLOSE, builder, label, manager};
use crate::run::acquire;
use crate::say;
use crate::signals::{self, Signals};
use crate::warnings::Warnings;

/// Acquires a lock and prints its record.
pub(crate) async fn lock(
    common: &Common,
    names: &[String],
    wait: &Wait,
    held: &Held,
) -> Result<u8, Failure> {
    let manager = builder(common)?.ttl(held.ttl()).label(label(held.label.as_deref()));
    let manager = manager.build()?;
    let mut signals = Signals::new().map_err(Failure::usage)?;
    let request = manager.lock(names.to_vec());
    let request = if held.fenced { request.fenced() } else { request };
    let guard = match acquire(&manager, request, names, wait.limit(), &mut signals).await {
        Ok(guard) => guard,
        Err(failure) => {
            let _ = manager.close(CLOSE).await;
            return Err(failure);
        }
    };
    if held.ttl.is_none() && !common.quiet {
        say::line(format!("nobody renews this lock: it ends after {:?}. See --ttl", held.ttl()));
    }
    if io::stdout().is_terminal() && !common.quiet {
        say::line("the record is a secret: any process that has it can release the lock");
    }
    let record = guard.detach().map_err(|reason| Failure::new(LOST, reason))?;
    let text = record.encode();
    // Standard output may block: then a signal takes the lock back.
    let writing = spawn_blocking(move || {
        let mut output = io::stdout();
        writeln!(output, "{text}").and_then(|()| output.flush())
    });
    let failure = tokio::select! {
        biased;
        written = writing => match written.map_err(io::Error::other).and_then(|written| written) {
            Ok(()) => None,
            Err(error) => Some(Failure::new(
                UNWRITTEN,
                format!("the record was not written, the lock is free: {error}"),
            )),
        },
        signal = signals.next() => Some(Failure::new(signals::code_of(signal), "")),
    };
    if failure.is_some() {
        // Nobody has the record.
        manager.adopt(&record).await?.release().await?;
    }
    // The slower nodes have the lock as well.
    let _ = manager.close(CLOSE).await;
    Warnings::new(&manager, common.quiet).look();
    failure.map_or(Ok(0), Err)
}

/// Extends the lock whose record is on standard input. The record stays valid.
pub(crate) async fn extend(common: &Common) -> Result<u8, Failure> {
    let (manager, guard) = adopt(common).await?;
    guard.detach().map_err(|reason| Failure::new(LOST, reason))?;
    let _ = manager.close(CLOSE).await;
    Ok(0)
}

/// Releases the lock whose record is on standard input.
pub(crate) async fn release(common: &Common) -> Result<u8, Failure> {
    let (manager, guard) = adopt(common).await?;
    let released = guard.release().await;
    let _ = manager.close(CLOSE).await;
    Ok(released.map(|()| 0)?)
}

async fn adopt(common: &Common) -> Result<(LockManager, LockGuard), Failure> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map_err(Failure::usage)?;
    let record = DetachedLock::decode(text.trim()).map_err(Failure::usage)?;
    let manager = manager(common)?;
    let guard = manager.adopt(&record).await?;
    Ok((manager, guard))
}

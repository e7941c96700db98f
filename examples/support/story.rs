//! The same program for every kind of node.

use std::error::Error;
use std::time::Duration;

use quorate::{LockError, LockManager, Released};

/// Takes a lock, meets contention, extends, releases; says what happens.
///
/// # Errors
///
/// Whatever goes wrong, with each node's own reason.
#[expect(clippy::print_stdout, reason = "the story is what the examples are for")]
pub async fn tell(manager: &LockManager) -> Result<(), Box<dyn Error>> {
    let guard = manager.lock("orders:42").wait(Duration::from_secs(2)).await?;
    println!("locked orders:42, valid for {:.1?}", guard.remaining());

    match manager.try_lock("orders:42").await {
        Err(error @ LockError::Held { .. }) => println!("a second lock is refused: {error}"),
        Err(error) => return Err(error.into()),
        Ok(_) => return Err("two at once".into()),
    }

    guard.extend().await?;
    println!("extended, valid for {:.1?}", guard.remaining());

    let released = guard.release().await?;
    println!("released: it was {released:?} to the end");

    let again = manager.try_lock("orders:42").await?;
    println!("and free for the next one");
    match again.release().await? {
        Released::Held => Ok(()),
        other => Err(format!("it was {other:?} to the end").into()),
    }
}

//! The same program for every kind of node.

use std::error::Error;
use std::time::Duration;

use quorate::{LockError, LockManager};

/// Acquires a lock, is refused a second one, extends, releases, and prints each step.
///
/// # Errors
///
/// Any failure, with the reason of each node.
#[expect(clippy::print_stdout, reason = "the story is what the examples are for")]
pub async fn tell(manager: &LockManager) -> Result<(), Box<dyn Error>> {
    let guard = manager.lock("orders:42").timeout(Duration::from_secs(2)).await?;
    println!("locked orders:42, valid for {:.1?}", guard.remaining());

    match manager.lock("orders:42").no_wait().await {
        Err(error @ LockError::Held(_)) => println!("a second lock is refused: {error}"),
        Err(error) => return Err(error.into()),
        Ok(_) => return Err("two at once".into()),
    }

    guard.extend().await?;
    println!("extended, valid for {:.1?}", guard.remaining());

    guard.release().await?;
    println!("released: it was held until then");

    let again = manager.lock("orders:42").no_wait().await?;
    println!("and free for the next one");
    again.release().await?;
    Ok(())
}

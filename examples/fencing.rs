//! A holder that oversleeps its lease, and a store that does not let it write:
//! `cargo run --example fencing`.

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::error::Error;
use std::time::Duration;

use quorate::memory::MemoryNode;
use quorate::runtime::TokioRuntime;
use quorate::{FencedCell, FencingToken, LockGuard, LockManager, StaleToken};

/// What the lock protects. In a database, the check is a condition of the `UPDATE`.
struct Stock {
    pieces: FencedCell<u32>,
}

impl Stock {
    fn sell(&self, token: FencingToken) -> Result<u32, StaleToken> {
        self.pieces.write(token, |pieces| {
            *pieces -= 1;
            *pieces
        })
    }
}

fn token_of(guard: &LockGuard) -> Result<FencingToken, &'static str> {
    guard.fencing_token().ok_or("the lock was asked for without a token")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = TokioRuntime::new();
    let nodes = MemoryNode::cluster(5, runtime.clone());
    let locks = || LockManager::builder(nodes.clone()).runtime(runtime.clone()).build();
    let (ours, theirs) = (locks()?, locks()?);
    let stock = Stock { pieces: FencedCell::new(10) };

    let sleeper = ours.lock("stock:7").fenced().ttl(Duration::from_millis(200)).await?;
    assert!(sleeper.is_valid());
    println!("the first holder has looked at its lease, and is paused");
    tokio::time::sleep(Duration::from_millis(250)).await;

    let holder = theirs.lock("stock:7").fenced().await?;
    assert!(token_of(&sleeper)? < token_of(&holder)?);
    println!("the second holder sells: {} pieces left", stock.sell(token_of(&holder)?)?);

    match stock.sell(token_of(&sleeper)?) {
        Err(stale) if stale.highest == token_of(&holder)? => {
            println!("the first holder wakes up and is refused");
        }
        other => return Err(format!("sold to a stale holder: {other:?}").into()),
    }

    println!("the second holder sells: {} pieces left", stock.sell(token_of(&holder)?)?);
    holder.release().await?;
    println!("the second holder releases");
    Ok(())
}

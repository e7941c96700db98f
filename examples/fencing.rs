//! A holder that oversleeps its lease, and a store that does not let it write:
//! `cargo run --example fencing`.

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::error::Error;
use std::time::Duration;

use quorate::memory::MemoryNode;
use quorate::runtime::TokioRuntime;
use quorate::{FencedCell, FencingToken, LockManager, StaleToken};

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

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let runtime = TokioRuntime::new();
    let nodes = MemoryNode::cluster(5, runtime.clone());
    let locks = || LockManager::builder(nodes.clone()).runtime(runtime.clone()).build();
    let (ours, theirs) = (locks()?, locks()?);
    let stock = Stock { pieces: FencedCell::new(10) };

    let (sleeper, late) = ours.lock("stock:7").ttl(Duration::from_millis(200)).with_token().await?;
    assert!(sleeper.is_valid());
    println!("the first holder has looked at its lease, and is paused");
    tokio::time::sleep(Duration::from_millis(250)).await;

    let (holder, token) = theirs.lock("stock:7").with_token().await?;
    assert!(late < token);
    println!("the second holder sells: {} pieces left", stock.sell(token)?);

    match stock.sell(late) {
        Err(stale) if stale.highest == token => {
            println!("the first holder wakes up and is refused");
        }
        other => return Err(format!("sold to a stale holder: {other:?}").into()),
    }

    println!("the second holder sells: {} pieces left", stock.sell(token)?);
    holder.release().await?;
    println!("the second holder releases");
    Ok(())
}

//! A process that may be stopped between its look at the lease and its write.
//!
//! It says that it holds the lock and waits for a line. Its keys may expire meanwhile. Then it writes all the
//! same, and says whether that was refused.

use std::io;

use quorate::LockManager;
use quorate_tests::resource::Resource;
use quorate_tests::wait::{LIMIT, LONG_TTL, NODE_TIMEOUT, until_it_says};

use crate::{Outcome, connect};

#[tokio::main]
pub(crate) async fn run(words: &[&str]) -> Outcome {
    let [client, port, lock, times, addresses @ ..] = words else {
        return Err("stale redis|fred PORT RESOURCE TIMES ADDRESS…".into());
    };
    // As in the tests: a slow machine makes no node silent.
    let builder = LockManager::builder(connect(client, addresses)?).wait_timeout(10 * LIMIT);
    let manager = builder.ttl(LONG_TTL).node_timeout(NODE_TIMEOUT).build()?;
    let mut resource = Resource::open(port.parse()?, lock)?;
    for _ in 0..times.parse()? {
        let guard = manager.lock(*lock).fenced().await?;
        let token = guard.fencing_token().ok_or("it has none")?;
        let seen = resource.read(token.get())?;
        if !guard.is_valid() {
            return Err("the lease had ended before it began".into());
        }
        println!("holds {token}");
        io::stdin().read_line(&mut String::new())?;
        let passed = resource.write(token.get(), seen)?;
        println!("{} with {token}", if passed { "written" } else { "refused" });
    }
    // A node that failed a release may answer again.
    until_it_says("all is released", async || manager.close(LIMIT).await.is_clean()).await;
    Ok(())
}

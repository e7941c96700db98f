//! A process that leads whenever it can, and prints the terms and the work of its body.
//!
//! Each line ends with a moment on the clock that all processes share: `leads TOKEN AT`, `works TOKEN AT` while the
//! lease is valid, `late TOKEN AT` for work after that, and `over TOKEN AT` when the body is dropped. A line on its
//! input makes the body return, and then the process ends.

#![expect(clippy::disallowed_methods, reason = "its body works from time to time")]

use std::time::Duration;

use quorate::{FencingToken, Lease, LockManager};
use quorate_tests::clock::now;
use quorate_tests::wait::{LIMIT, LONG_TTL};
use tokio::io::{AsyncBufReadExt as _, BufReader, stdin};

use crate::{Outcome, connect};

/// Between two pieces of work.
const PAUSE: Duration = Duration::from_millis(5);

#[tokio::main]
pub(crate) async fn run(words: &[&str]) -> Outcome {
    let [client, ttl, addresses @ ..] = words else {
        return Err("lead redis|fred TTL-MS ADDRESS…".into());
    };
    let ttl = Duration::from_millis(ttl.parse()?).min(LONG_TTL);
    let manager = LockManager::builder(connect(client, addresses)?).ttl(ttl).build()?;
    let mut input = BufReader::new(stdin()).lines();
    let body = async |lease: Lease| {
        let term = Term(lease.fencing_token());
        term.says("leads");
        loop {
            tokio::select! {
                _ = input.next_line() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
            // The moment is read before the look at the lease: a stop in between makes it no later.
            let at = now();
            term.says_at(if lease.is_valid() { "works" } else { "late" }, at);
        }
    };
    manager.lock("leader").fenced().lead(body).await?;
    let report = manager.close(LIMIT).await;
    if report.is_clean() { Ok(()) } else { Err(report.to_string().into()) }
}

/// A term of this process. It says when its body is dropped.
struct Term(Option<FencingToken>);

impl Term {
    fn says(&self, what: &str) {
        self.says_at(what, now());
    }

    fn says_at(&self, what: &str, at: u64) {
        println!("{what} {} {at}", self.0.map_or(0, FencingToken::get));
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        self.says("over");
    }
}

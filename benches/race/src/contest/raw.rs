//! The upper limit: RESP by hand, one connection to each node, all ready commands in one write.
//!
//! It supports two commands, and neither errors nor timeouts nor reconnection.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;

use super::by_hand::Held;
use super::{Contestant, RELEASE_SHA1, settle, token};
use crate::Outcome;

pub(crate) struct Raw {
    nodes: Vec<Arc<Node>>,
    ttl: String,
}

/// One connection to a node.
#[derive(Default)]
struct Node {
    lane: Mutex<Lane>,
    has_work: Notify,
}

#[derive(Default)]
struct Lane {
    is_closed: bool,
    to_send: Vec<u8>,
    /// The rounds of the commands without a reply, in the order of sending.
    waiting: VecDeque<Arc<Ballot>>,
}

/// The votes of one round: yes in the low half, no in the high half.
struct Ballot {
    votes: AtomicU32,
    count: u32,
    waker: AtomicWaker,
}

impl Contestant for Raw {
    type Held = Held;

    async fn connect(_: &str, addresses: Vec<String>, ttl: Duration) -> Outcome<Self> {
        let mut nodes = Vec::new();
        for address in addresses {
            let node = Arc::new(Node::default());
            match TcpStream::connect(address.trim_start_matches("redis://")).await {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    let (reader, writer) = stream.into_split();
                    tokio::spawn(Arc::clone(&node).read(reader));
                    tokio::spawn(Arc::clone(&node).write(writer));
                }
                Err(_) => node.close(),
            }
            nodes.push(node);
        }
        Ok(Self { nodes, ttl: ttl.as_millis().to_string() })
    }

    async fn acquire(&self, key: &str) -> Option<Held> {
        let held = Held { key: key.to_owned(), token: token()? };
        if self.round(&["SET", key, &held.token, "NX", "PX", &self.ttl]).await {
            return Some(held);
        }
        self.release(held).await;
        None
    }

    async fn release(&self, held: Held) -> bool {
        self.round(&["EVALSHA", &RELEASE_SHA1, "1", &held.key, &held.token]).await
    }

    async fn close(&self) {
        settle(|| self.nodes.iter().map(|node| node.lane().waiting.len()).sum()).await;
    }
}

impl Raw {
    async fn round(&self, command: &[&str]) -> bool {
        let mut bytes = Vec::with_capacity(192);
        // Writing to a vector does not fail.
        let _ = write!(bytes, "*{}\r\n", command.len());
        for word in command {
            let _ = write!(bytes, "${}\r\n{word}\r\n", word.len());
        }
        let count = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let waker = AtomicWaker::new();
        let ballot = Arc::new(Ballot { votes: AtomicU32::new(0), count, waker });
        for node in &self.nodes {
            node.send(&bytes, &ballot);
        }
        poll_fn(|context| {
            ballot.waker.register(context.waker());
            ballot.outcome().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

impl Ballot {
    fn vote(&self, yes: bool) {
        self.votes.fetch_add(if yes { 1 } else { 1 << 16 }, Ordering::AcqRel);
        if self.outcome().is_some() {
            self.waker.wake();
        }
    }

    fn outcome(&self) -> Option<bool> {
        let votes = self.votes.load(Ordering::Acquire);
        let (yes, no, quorum) = (votes & 0xffff, votes >> 16, self.count / 2 + 1);
        if yes >= quorum {
            return Some(true);
        }
        (no > self.count - quorum).then_some(false)
    }
}

impl Node {
    fn lane(&self) -> MutexGuard<'_, Lane> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, bytes: &[u8], ballot: &Arc<Ballot>) {
        let mut lane = self.lane();
        if lane.is_closed {
            drop(lane);
            ballot.vote(false);
            return;
        }
        lane.to_send.extend_from_slice(bytes);
        lane.waiting.push_back(Arc::clone(ballot));
        drop(lane);
        self.has_work.notify_one();
    }

    fn close(&self) {
        let mut lane = self.lane();
        lane.is_closed = true;
        let waiting = std::mem::take(&mut lane.waiting);
        drop(lane);
        waiting.iter().for_each(|ballot| ballot.vote(false));
    }

    async fn write(self: Arc<Self>, mut stream: OwnedWriteHalf) {
        let mut batch = Vec::new();
        loop {
            self.has_work.notified().await;
            std::mem::swap(&mut batch, &mut self.lane().to_send);
            if stream.write_all(&batch).await.is_err() {
                return;
            }
            batch.clear();
        }
    }

    async fn read(self: Arc<Self>, mut stream: OwnedReadHalf) {
        let mut bytes = Vec::with_capacity(1 << 16);
        while matches!(stream.read_buf(&mut bytes).await, Ok(1..)) {
            let mut done = 0;
            while let Some((yes, length)) = reply(&bytes[done..]) {
                done += length;
                let ballot = self.lane().waiting.pop_front();
                if let Some(ballot) = ballot {
                    ballot.vote(yes);
                }
            }
            bytes.drain(..done);
        }
        self.close();
    }
}

/// Parses a reply of one line: `+OK`, `:1`, `$-1` or an error. Returns whether it is a grant, and its
/// length.
fn reply(bytes: &[u8]) -> Option<(bool, usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((matches!(&bytes[..end], b"+OK" | b":1"), end + 2))
}

//! What is kept for a node that hangs. In a process of its own, whose memory tells.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "clippy takes helpers for no test")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use quorate_core::{Claim, Key, LockBackend, Resource, Token, Ttl, Vote, runtime};

/// Twice as many as can be under way.
const KEPT: usize = 2 * 8 * 64;

/// As many as come and go while the node hangs, and the size of each.
const GONE: usize = 40_000;
const SIZE: usize = 10_000;

#[test]
fn what_is_held_back_for_a_hung_node_is_thrown_out_when_its_callers_have_gone() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(come_and_go());
}

async fn come_and_go() {
    let node = HungNode::start();
    let backend = quorate_redis::builder()
        .connect_timeout(Duration::from_secs(120))
        .connect([format!("redis://{}", node.address)])
        .unwrap()
        .remove(0);
    assert_eq!(backend.acquire(&claim("before")).await.unwrap(), Vote::Granted);

    let claims: Vec<_> = (0..KEPT).map(|n| claim(&format!("kept:{n}"))).collect();
    let mut kept = join_all(claims.iter().map(|claim| backend.acquire(claim)));
    // Until as much is under way as can be, whichever task of the client's has its turn when.
    for _ in 0..100 {
        assert!((&mut kept).now_or_never().is_none());
        tokio::task::yield_now().await;
    }
    let name = "x".repeat(SIZE);
    let (before, mut most) = (memory(), 0);
    for n in 0..GONE {
        let claim = claim(&name);
        assert!(backend.acquire(&claim).now_or_never().is_none());
        if n % 50 == 0 {
            tokio::task::yield_now().await;
            most = most.max(memory());
        }
    }
    let (grown, all) = (most.saturating_sub(before), GONE * SIZE);
    assert!(grown < all / 4, "{grown} bytes are kept of {all} that nobody waits for");

    node.wake.send(()).unwrap();
    for vote in kept.await {
        assert_eq!(vote.unwrap(), Vote::Granted);
    }
    assert_eq!(backend.acquire(&claim("after")).await.unwrap(), Vote::Granted);
    assert_eq!(node.heard.load(Ordering::SeqCst), KEPT + 2, "what nobody waits for is not sent");
}

/// Of this process, in RAM, in bytes.
fn memory() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() * 1024
}

fn claim(name: &str) -> Claim {
    let key = Key::new(b"", &Resource::new(name).unwrap());
    let token = Token::draw(runtime::os_random).unwrap();
    Claim::new([key], token, Ttl::try_from(Duration::from_secs(10)).unwrap())
}

/// Says yes to everything, but reads nothing from the first `kept:…` on, until it is woken.
struct HungNode {
    address: SocketAddr,
    /// How many acquires it got.
    heard: Arc<AtomicUsize>,
    wake: Sender<()>,
}

impl HungNode {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (heard, (wake, woken)) = (Arc::<AtomicUsize>::default(), channel());
        let counts = Arc::clone(&heard);
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            serve(&stream, &counts, &woken);
        });
        Self { address, heard, wake }
    }
}

/// Until the other end goes.
fn serve(mut stream: &TcpStream, heard: &AtomicUsize, woken: &Receiver<()>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut is_awake = false;
    loop {
        let command = read_command(&mut reader)?;
        if command[0] == "SET" {
            if command[1].starts_with("kept:") && !is_awake {
                is_awake = woken.recv().is_ok();
            }
            heard.fetch_add(1, Ordering::SeqCst);
        }
        stream.write_all(b"+OK\r\n").ok()?;
    }
}

/// Reads an array of bulk strings, which is what clients send.
fn read_command(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let count = read_number(reader, '*')?;
    let parts = (0..count).map(|_| {
        let len = read_number(reader, '$')?;
        let mut part = vec![0; len + 2];
        reader.read_exact(&mut part).ok()?;
        part.truncate(len);
        String::from_utf8(part).ok()
    });
    parts.collect()
}

fn read_number(reader: &mut impl BufRead, kind: char) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.trim_end().strip_prefix(kind)?.parse().ok()
}

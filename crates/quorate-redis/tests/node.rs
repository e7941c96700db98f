//! Nodes that are dead, or not Redis, or answer `+OK` to everything: no server is needed.

#![expect(clippy::unwrap_used, reason = "clippy takes helpers for no test")]

use std::future::IntoFuture;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use futures_util::future::join_all;
use quorate_core::runtime::TokioRuntime;
use quorate_core::{
    BackendErrorKind, Claim, Key, LockBackend, LockManager, Resource, Token, Ttl, Vote, runtime,
};
use quorate_redis::{RedisBackend, bb8, redis};

#[test]
fn a_node_that_is_down_tells_the_reason_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let node = one(&format!("redis://:hunter2@{address}"));
    for _ in 0..3 {
        let error = block_on(node.acquire(&claim("orders:42"))).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Connection);
        assert!(error.to_string().contains("refused"), "{error}");
    }
}

#[test]
fn a_node_that_says_nothing_is_given_up_after_the_connect_timeout() {
    // Connections are made by the kernel and never accepted.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let nodes =
        quorate_redis::builder().connect_timeout(Duration::from_millis(20)).connect([url]).unwrap();
    let obstacle = || nodes[0].obstacle().unwrap().to_string();
    assert_eq!(obstacle(), "there is no connection yet");
    let error = block_on(nodes[0].acquire(&claim("orders:42"))).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::TimedOut);
    assert_eq!(error.to_string(), "no connection within 20ms");
    assert_eq!(obstacle(), "no connection within 20ms");
}

#[test]
fn a6_what_is_not_redis_is_told_without_the_password_it_echoes() {
    let peer = Peer::start(|_, stream| {
        let mut request = [0; 1024];
        let read = stream.read(&mut request)?;
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?;
        stream.write_all(&request[..read])
    });
    let node = one(&format!("redis://ann:hunter2@{}", peer.address));
    let error = block_on(node.acquire(&claim("orders:42"))).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Protocol);
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[test]
fn calls_need_no_tokio_and_share_one_connection() {
    let peer = Peer::start(|_, stream| agree(stream));
    let node = Arc::new(one(&format!("redis://{}", peer.address)));
    let callers: Vec<_> = (0..32)
        .map(|n| {
            let node = Arc::clone(&node);
            thread::spawn(move || block_on(node.acquire(&claim(&format!("orders:{n}")))))
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.join().unwrap().unwrap(), Vote::Granted);
    }
    assert_eq!(peer.connections(), 1);
}

#[test]
fn commands_that_leave_together_each_get_their_own_answer() {
    let peer = Peer::start(|_, stream| {
        answer(stream, |command| match command {
            taken if taken.contains("SET\r\n") && taken.contains("odd") => Some("$-1\r\n"),
            script if script.contains("EVALSHA\r\n") => Some(":0\r\n"),
            _ => Some("+OK\r\n"),
        })
    });
    let node = one(&format!("redis://{}", peer.address));
    let first = claim("orders:42");
    assert_eq!(block_on(node.acquire(&first)).unwrap(), Vote::Granted);
    let claims: Vec<_> =
        (0..200).map(|n| claim(&format!("{}:{n}", ["even", "odd"][n % 2]))).collect();
    // All of them are there when the first of them leaves.
    let votes = block_on(join_all(claims.iter().map(|claim| node.acquire(claim))));
    for (n, vote) in votes.into_iter().enumerate() {
        assert_eq!(vote.unwrap(), [Vote::Granted, Vote::Refused][n % 2], "of {n}");
    }
    assert_eq!(peer.connections(), 1);
}

#[test]
fn of_what_leaves_together_all_is_unknown_when_the_connection_breaks_and_nothing_is_sent_twice() {
    let seen: Arc<AtomicUsize> = Arc::default();
    let broken = Arc::clone(&seen);
    let peer = Peer::start(move |_, stream| {
        answer(stream, |command| {
            let breaks = command.contains("orders:20\r\n");
            broken.fetch_add(usize::from(breaks), Ordering::SeqCst);
            (!breaks).then_some("+OK\r\n")
        })
    });
    let node = one(&format!("redis://{}", peer.address));
    let first = claim("orders:42");
    assert_eq!(block_on(node.acquire(&first)).unwrap(), Vote::Granted);
    let claims: Vec<_> = (0..40).map(|n| claim(&format!("orders:{n}"))).collect();
    let votes = block_on(join_all(claims.iter().map(|claim| node.acquire(claim))));
    assert!(votes[20].is_err());
    for vote in votes {
        match vote {
            Ok(vote) => assert_eq!(vote, Vote::Granted),
            Err(error) => assert_eq!(error.kind(), BackendErrorKind::Connection, "{error}"),
        }
    }
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    let vote = block_on(node.acquire(&claim("orders:43")));
    assert_eq!(vote.unwrap(), Vote::Granted);
}

/// Two commands by themselves, and eight requests of 64, can be under way; the rest has not left when the
/// first one fails.
#[test]
fn what_has_not_left_when_the_connection_breaks_goes_over_a_new_one() {
    const LEFT: usize = 2 + 8 * 64;
    let peer = Peer::start(|connection, stream| {
        answer(stream, |command| {
            let breaks = connection == 1 && command.contains("many:0\r\n");
            (!breaks).then_some("+OK\r\n")
        })
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let node = one(&format!("redis://{}", peer.address));
        assert_eq!(node.acquire(&claim("orders:42")).await.unwrap(), Vote::Granted);
        let claims: Vec<_> = (0..LEFT + 100).map(|n| claim(&format!("many:{n}"))).collect();
        let votes = join_all(claims.iter().map(|claim| node.acquire(claim))).await;
        let (left, kept) = votes.split_at(LEFT);
        assert!(left[0].is_err());
        for vote in kept {
            assert_eq!(vote.clone().unwrap(), Vote::Granted);
        }
    });
    assert_eq!(peer.connections(), 2);
}

/// The same for calls that the backend is given to carry: here nobody polls for them.
#[test]
fn a_carried_call_that_has_not_left_goes_over_a_new_connection() {
    const LEFT: usize = 2 + 8 * 64;
    let peer = Peer::start(|connection, stream| {
        answer(stream, |command| {
            let breaks = connection == 1 && command.contains("many:0\r\n");
            let said = match command.split("\r\n").nth(2) {
                Some("INFO") => "-NOPERM not for you\r\n",
                Some("EVALSHA") => ":1\r\n",
                _ => "+OK\r\n",
            };
            (!breaks).then_some(said)
        })
    });
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let node = one(&format!("redis://{}", peer.address));
        let builder = LockManager::builder(TokioRuntime::new(), [node]).ttl(10 * LIMIT);
        let manager = builder.node_timeout(LIMIT).build().unwrap();
        let _ = manager.lock("orders:42").await.unwrap().release().await.unwrap();
        let locks = (0..LEFT + 100).map(|n| manager.try_lock(format!("many:{n}")).into_future());
        let locks = join_all(locks).await;
        let (left, kept) = locks.split_at(LEFT);
        assert!(left[0].is_err());
        for lock in kept {
            assert!(lock.is_ok(), "{lock:?}");
        }
    });
    assert_eq!(peer.connections(), 2);
}

/// What undoes it may have gone before it then.
#[test]
fn a_carried_call_that_was_given_up_does_not_leave_over_a_new_connection() {
    let (let_in, door) = channel::<()>();
    let door = Mutex::new(door);
    let heard = Arc::<Mutex<Vec<String>>>::default();
    let hears = Arc::clone(&heard);
    let peer = Peer::start(move |connection, stream| {
        let is_shut = AtomicBool::new(connection == 2);
        answer(stream, |command| {
            let words: Vec<_> = command.split("\r\n").skip(2).step_by(2).collect();
            if is_shut.swap(false, Ordering::SeqCst) {
                // It is made as soon as everybody has gone.
                door.lock().unwrap().recv().unwrap();
            }
            if connection == 2 {
                hears.lock().unwrap().extend(words.get(1).map(|key| (*key).to_owned()));
            }
            let breaks = connection == 1 && words.get(1) == Some(&"many:0");
            let said = match words.first() {
                Some(&"INFO") => "-NOPERM not for you\r\n",
                Some(&"EVALSHA") => ":1\r\n",
                _ => "+OK\r\n",
            };
            (!breaks).then_some(said)
        })
    });
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let node = one(&format!("redis://{}", peer.address));
        let manager = LockManager::builder(TokioRuntime::new(), [node])
            .node_timeout(Duration::from_millis(100))
            .cleanup_timeout(Duration::from_millis(200))
            .build()
            .unwrap();
        let settled = || manager.settle(LIMIT);
        drop(manager.lock("orders:42").wait(LIMIT).await.unwrap());
        assert_eq!(settled().await, 0);
        let locks = (0..2 + 8 * 64 + 100).map(|n| manager.try_lock(format!("many:{n}")));
        let locks = join_all(locks.map(IntoFuture::into_future)).await;
        assert!(locks.iter().all(Result::is_err), "nobody has answered");
        assert_eq!(settled().await, 0);
        let_in.send(()).unwrap();
        drop(manager.lock("orders:42").wait(LIMIT).await.unwrap());
    });
    let heard = heard.lock().unwrap();
    assert!(heard.iter().any(|key| key == "orders:42"));
    let late: Vec<_> = heard.iter().filter(|key| key.starts_with("many:")).collect();
    assert_eq!(late, [""; 0]);
}

#[test]
fn each_of_several_connections_is_made_once() {
    let peer = Peer::start(|_, stream| agree(stream));
    let nodes = quorate_redis::builder()
        .connections(3)
        .connect_timeout(LIMIT)
        .connect([format!("redis://{}", peer.address)])
        .unwrap();
    for n in 0..64 {
        let vote = block_on(nodes[0].acquire(&claim(&format!("orders:{n}"))));
        assert_eq!(vote.unwrap(), Vote::Granted);
        assert!(nodes[0].obstacle().is_none(), "one is enough for a call to have left");
    }
    assert_eq!(peer.connections(), 3);
}

#[test]
fn a_connection_that_broke_is_replaced_by_the_next_call_and_nothing_is_sent_twice() {
    let peer = Peer::start(|connection, stream| match connection {
        // Says yes to the login, and goes when the first lock comes.
        1 => answer(stream, |command| (!command.contains("SET\r\n")).then_some("+OK\r\n")),
        _ => agree(stream),
    });
    let node = one(&format!("redis://{}", peer.address));
    let error = block_on(node.acquire(&claim("orders:42"))).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Connection);
    assert_eq!(peer.connections(), 1);
    assert_eq!(node.obstacle().unwrap().to_string(), "there is no connection yet");
    let vote = block_on(node.acquire(&claim("orders:42")));
    assert_eq!(vote.unwrap(), Vote::Granted);
    assert_eq!(peer.connections(), 2);
    assert!(node.obstacle().is_none());
}

#[test]
fn a_call_outlives_the_runtime_of_the_call_before() {
    let peer = Peer::start(|_, stream| agree(stream));
    let node = one(&format!("redis://{}", peer.address));
    for _ in 0..2 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let vote = runtime.block_on(node.acquire(&claim("orders:42")));
        assert_eq!(vote.unwrap(), Vote::Granted);
    }
}

#[test]
fn c6_a_hung_node_keeps_a_call_pending() {
    let peer = Peer::start(|_, stream| {
        answer(stream, |command| Some(if command.contains("SET\r\n") { "" } else { "+OK\r\n" }))
    });
    let node = one(&format!("redis://{}", peer.address));
    let claim = claim("orders:42");
    let mut call = pin!(node.acquire(&claim));
    let mut context = Context::from_waker(Waker::noop());
    // Until the command has arrived there; the login is two commands.
    while peer.commands.load(Ordering::SeqCst) < 3 {
        assert!(call.as_mut().poll(&mut context).is_pending());
        thread::yield_now();
    }
    assert!(call.as_mut().poll(&mut context).is_pending());
}

#[test]
fn a6_debug_shows_neither_user_nor_password() {
    let client = redis::Client::open("redis://ann:hunter2@a.example:7000/2").unwrap();
    let node = RedisBackend::new(client.clone());
    assert_eq!(node.name(), Some("a.example:7000/2"));
    let pool = bb8::Pool::builder().idle_timeout(None).max_lifetime(None).build_unchecked(client);
    let pooled = RedisBackend::from_pool("b.example", pool);
    assert_eq!(pooled.name(), Some("b.example"));
    for told in [format!("{node:?}"), format!("{pooled:#?}")] {
        assert!(!told.contains("hunter2") && !told.contains("ann"), "{told}");
    }
}

/// Something at the other end of a TCP connection.
struct Peer {
    address: std::net::SocketAddr,
    connections: Arc<AtomicUsize>,
    commands: Arc<AtomicUsize>,
}

/// One accepted connection, which counts the commands that arrive on it.
struct Stream(TcpStream, Arc<AtomicUsize>);

impl Peer {
    /// Treats each connection, the first being 1, as `behave` says, and closes it then.
    fn start(
        behave: impl Fn(usize, &mut Stream) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            commands: Arc::default(),
        };
        let (connections, commands) = (Arc::clone(&peer.connections), Arc::clone(&peer.commands));
        let behave = Arc::new(behave);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let number = connections.fetch_add(1, Ordering::SeqCst) + 1;
                let mut stream = Stream(stream.unwrap(), Arc::clone(&commands));
                let behave = Arc::clone(&behave);
                thread::spawn(move || behave(number, &mut stream));
            }
        });
        peer
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

fn agree(stream: &mut Stream) -> std::io::Result<()> {
    answer(stream, |_| Some("+OK\r\n"))
}

/// Answers each command, until `say` has nothing to say or the other end goes.
fn answer(stream: &mut Stream, say: impl Fn(&str) -> Option<&'static str>) -> std::io::Result<()> {
    let mut received = String::new();
    loop {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk)?;
        if read == 0 {
            return Ok(());
        }
        received += std::str::from_utf8(&chunk[..read]).unwrap();
        while let Some(end) = end_of_command(&received) {
            let command: String = received.drain(..end).collect();
            stream.1.fetch_add(1, Ordering::SeqCst);
            let Some(said) = say(&command) else {
                return Ok(());
            };
            stream.write_all(said.as_bytes())?;
        }
    }
}

/// `*2\r\n$3\r\nGET\r\n$1\r\nk\r\n` ends after `1 + 2 × 2` lines; no argument here holds a line end.
fn end_of_command(received: &str) -> Option<usize> {
    let (head, _) = received.strip_prefix('*')?.split_once("\r\n")?;
    let lines = 1 + 2 * head.parse::<usize>().unwrap();
    let (end, _) = received.match_indices("\r\n").nth(lines - 1)?;
    Some(end + 2)
}

/// The limit of every wait, and of every attempt to connect. Only a broken backend takes that long.
const LIMIT: Duration = Duration::from_secs(120);

fn one(url: &str) -> RedisBackend {
    quorate_redis::builder().connect_timeout(LIMIT).connect([url]).unwrap().remove(0)
}

fn claim(name: &str) -> Claim {
    let key = Key::new(b"", &Resource::new(name).unwrap());
    let token = Token::draw(runtime::os_random).unwrap();
    Claim::new([key], token, Ttl::try_from(Duration::from_secs(10)).unwrap())
}

/// An executor that has never heard of tokio.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

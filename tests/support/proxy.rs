//! The network in front of one node, as bad as a test wants it: slow, cut, reset, one way only.
//!
//! One thread and `poll` for all connections: a change of the [`Mode`] takes effect between two
//! chunks, and is in force when [`Proxy::set`] returns.

use std::io::{self, PipeReader, PipeWriter, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Deref;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};

use crate::redis_server::free_port;
use crate::wait::{LIMIT, receive};

mod link;
mod relay;

use relay::Relay;

/// What happens to the connections through a proxy: to open ones, and to new ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Everything passes.
    #[default]
    Pass,
    /// Every byte arrives that much later, in order. What is held back when the mode changes
    /// follows the new one: nothing has been lost yet.
    Delay {
        /// From the client to the node.
        to_node: Duration,
        /// From the node to the client.
        to_client: Duration,
    },
    /// What is sent in this direction is taken and acknowledged, and never arrives.
    ///
    /// TCP loses nothing in the middle of a stream, so when the mode changes, a connection that
    /// lost something is reset.
    BlackHole(Direction),
    /// Connections end as when a process exits (`FIN`).
    Cut(When),
    /// Connections end as when a machine has forgotten them (`RST`).
    Reset(When),
    /// Nothing listens: new connections are refused, and open ones are reset.
    Refuse,
}

/// One of the two directions of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: a connection has two ends")]
pub enum Direction {
    /// What the client sends.
    ToNode,
    /// What the node answers.
    ToClient,
}

/// When a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "complete by definition: at once or later")]
pub enum When {
    /// At once, and new ones as soon as they are there.
    Now,
    /// When the client next sends something. The node does not get that.
    Used,
}

/// A TCP proxy on 127.0.0.1 in front of one node. Everything ends when it is dropped.
///
/// While the node itself refuses connections, those to the proxy are accepted and reset.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    traffic: Arc<Traffic>,
    orders: Option<Sender<Order>>,
    bell: PipeWriter,
    relay: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts one that lets everything pass to `node_port` of 127.0.0.1.
    ///
    /// # Panics
    ///
    /// If there is no free port.
    #[must_use]
    pub fn start(node_port: u16) -> Self {
        let listener = listen_anywhere();
        let port = listener.local_addr().expect("a bound socket").port();
        let traffic = Arc::new(Traffic::default());
        let (orders, inbox) = mpsc::channel();
        let (doorbell, bell) = io::pipe().expect("a pipe");
        let relay = Relay::new(port, listener, node_port, Arc::clone(&traffic));
        let inbox = Inbox { orders: inbox, doorbell };
        let relay = thread::spawn(move || relay.run(inbox));
        Self { port, traffic, orders: Some(orders), bell, relay: Some(relay) }
    }

    /// The port that it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The URL that clients take.
    #[must_use]
    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Changes the mode, for open connections too. It is in force when this returns.
    ///
    /// # Panics
    ///
    /// If [`Mode::Refuse`] is left and another process has taken the port meanwhile.
    pub fn set(&self, mode: Mode) {
        self.order(What::Mode(mode));
    }

    /// Makes the open connections stuck: each hands `bytes` more to its client, and then nothing. What the
    /// client sends arrives, and connections made later work.
    ///
    /// # Panics
    ///
    /// If the proxy has ended.
    pub fn stick_after(&self, bytes: usize) {
        self.order(What::Stick(bytes));
    }

    fn order(&self, what: What) {
        let (done, is_done) = mpsc::channel();
        let orders = self.orders.as_ref().expect("it is there until drop");
        orders.send(Order { what, done }).expect("the proxy runs");
        (&self.bell).write_all(b"!").expect("the proxy runs");
        receive(&is_done).expect("the proxy runs");
    }

    /// How many bytes have been handed on in one direction, over all connections.
    #[must_use]
    pub fn passed(&self, direction: Direction) -> u64 {
        self.traffic.passed(direction)
    }

    /// Waits until more than `bytes` have been handed on in one direction.
    ///
    /// # Panics
    ///
    /// If that does not happen.
    pub fn wait_until_more_passed(&self, direction: Direction, bytes: u64) {
        self.traffic.wait_until_more(direction, bytes);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.orders.take();
        let _ = (&self.bell).write_all(b"!");
        if let Some(relay) = self.relay.take() {
            // A proxy that panicked has said why on its own thread.
            let _ = relay.join();
        }
    }
}

/// What to do, and where to report that it is done.
struct Order {
    what: What,
    done: Sender<()>,
}

enum What {
    Mode(Mode),
    /// The open connections hand on so many bytes more to their clients.
    Stick(usize),
}

/// Orders, and the pipe that signals when there is one.
struct Inbox {
    orders: Receiver<Order>,
    doorbell: PipeReader,
}

/// How much was handed on.
#[derive(Debug, Default)]
struct Traffic {
    /// To the node, to the client.
    passed: Mutex<[u64; 2]>,
    grew: Condvar,
}

impl Traffic {
    fn add(&self, direction: Direction, bytes: usize) {
        let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        passed[direction as usize] += bytes as u64;
        drop(passed);
        self.grew.notify_all();
    }

    fn passed(&self, direction: Direction) -> u64 {
        self.passed.lock().unwrap_or_else(PoisonError::into_inner)[direction as usize]
    }

    #[expect(clippy::disallowed_methods, reason = "the event is waited for")]
    fn wait_until_more(&self, direction: Direction, bytes: u64) {
        let passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
        let too_few = |passed: &mut [u64; 2]| passed[direction as usize] <= bytes;
        let (passed, waited) = self
            .grew
            .wait_timeout_while(passed, LIMIT, too_few)
            .unwrap_or_else(PoisonError::into_inner);
        let [to_node, to_client] = *passed;
        assert!(!waited.timed_out(), "only {to_node} bytes to the node, {to_client} back");
    }
}

/// Takes a port from the same line as the nodes: none is given out twice in a process, so no node of
/// another test comes to have it while the proxy refuses.
fn listen_anywhere() -> Listener {
    loop {
        if let Ok(listener) = listen_on(free_port()) {
            return listener;
        }
    }
}

fn listen_on(port: u16) -> io::Result<Listener> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    socket.set_nonblocking(true)?;
    Ok(Listener(socket))
}

/// Listens until it is dropped, and no longer.
///
/// A process that another thread is just forking has a copy of every socket until it execs: closing
/// ours would leave that one listening. A shutdown ends both.
struct Listener(TcpListener);

impl Deref for Listener {
    type Target = TcpListener;

    fn deref(&self) -> &TcpListener {
        &self.0
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Not every system knows that of a socket that listens.
        let _ = shutdown(&self.0, Shutdown::Read);
    }
}

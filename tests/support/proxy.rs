//! The network in front of one node, as bad as a test wants it: slow, cut, reset, one way only.

use std::io;
use std::net::{Ipv4Addr, TcpListener as Socket};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::redis_server::free_port;
use crate::wait::receive;

mod link;

use link::{Link, reset};

/// What happens to the connections through a proxy: to open ones, and to new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Everything passes.
    Pass,
    /// Every byte arrives that much later, in order. What is held back when the mode changes passes.
    Delay(Duration),
    /// What is sent in this direction is taken and acknowledged, and never arrives.
    ///
    /// TCP loses nothing in the middle of a stream. So a connection that lost something is reset when the mode changes.
    BlackHole(Direction),
    /// Connections end as when a process exits: open ones at once, and new ones as soon as they are there.
    Cut,
    /// A connection is reset when the client next sends something. The node does not get that.
    Reset,
    /// Nothing listens: new connections are refused, and open ones are reset.
    Refuse,
}

/// One of the two directions of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What the client sends.
    ToNode,
    /// What the node answers.
    ToClient,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// As when a process exits.
    Cut,
    /// As when a machine has forgotten it.
    Reset,
}

/// A TCP proxy on 127.0.0.1 in front of one node. Everything ends when it is dropped.
///
/// While the node itself refuses connections, those to the proxy are accepted and reset.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    orders: Option<mpsc::UnboundedSender<(Mode, Sender<()>)>>,
    relay: Option<thread::JoinHandle<()>>,
}

impl Proxy {
    /// Starts one that lets everything pass to `node_port` of 127.0.0.1.
    pub fn start(node_port: u16) -> Self {
        // No port of this process is given out twice: no node of another test comes to have it while the proxy refuses.
        // A connection may have it as its own end, of this process too.
        loop {
            if let Ok(proxy) = Self::start_at(free_port(), node_port) {
                return proxy;
            }
        }
    }

    /// Starts one on the port of another one that is gone: its address leads to another node then.
    pub fn start_at(port: u16, node_port: u16) -> io::Result<Self> {
        // Before there is a runtime, which a caller inside another one could not drop.
        let socket = bind(port)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mode = watch::Sender::new(Mode::Pass);
        let (orders, inbox) = mpsc::unbounded_channel();
        let relay = async move {
            let listener = Some(listen_on(socket));
            Relay { port, node_port, listener, mode, links: Vec::new() }.run(inbox).await;
        };
        let relay = thread::spawn(move || runtime.block_on(relay));
        Ok(Self { port, orders: Some(orders), relay: Some(relay) })
    }

    /// The port that it listens on.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The URL that clients take.
    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Changes the mode, for open connections too. It is in force when this returns.
    pub fn set(&self, mode: Mode) {
        let (done, is_done) = channel();
        let orders = self.orders.as_ref().expect("it is there until drop");
        orders.send((mode, done)).expect("the proxy runs");
        receive(&is_done).expect("the proxy runs");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.orders.take();
        // A proxy that panicked has said why on its own thread.
        let _ = self.relay.take().map(thread::JoinHandle::join);
    }
}

/// The one thread of a proxy.
struct Relay {
    port: u16,
    node_port: u16,
    /// None while connections are refused.
    listener: Option<TcpListener>,
    mode: watch::Sender<Mode>,
    links: Vec<(Weak<Link>, JoinHandle<()>)>,
}

impl Relay {
    /// Works until the other end of `inbox` is gone.
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<(Mode, Sender<()>)>) {
        loop {
            tokio::select! {
                client = accept(self.listener.as_ref()) => self.link(client).await,
                order = inbox.recv() => {
                    let Some((mode, done)) = order else { return self.end(End::Cut, |_| true).await };
                    self.change(mode).await;
                    // The caller does not listen any more if a test has panicked.
                    let _ = done.send(());
                }
            }
        }
    }

    async fn link(&mut self, client: TcpStream) {
        let Ok(node) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.node_port)).await else {
            return reset(&client);
        };
        for socket in [&client, &node] {
            socket.set_nodelay(true).expect("an open socket");
        }
        let lost = AtomicBool::new(false);
        let link = Link { node, client, lost };
        let mode = *self.mode.borrow();
        if mode == Mode::Cut {
            return link.end(End::Cut);
        }
        let link = Arc::new(link);
        let mode = self.mode.subscribe();
        self.links.push((
            Arc::downgrade(&link),
            tokio::spawn(async move {
                let there = link.pump(Direction::ToNode, mode.clone());
                let back = link.pump(Direction::ToClient, mode);
                let ended = tokio::try_join!(there, back);
                link.end(ended.err().unwrap_or(End::Cut));
            }),
        ));
    }

    async fn change(&mut self, mode: Mode) {
        if self.mode.send_replace(mode) != mode {
            self.end(End::Reset, |link| link.lost.load(SeqCst)).await;
        }
        match mode {
            Mode::Cut => self.end(End::Cut, |_| true).await,
            Mode::Refuse => self.end(End::Reset, |_| true).await,
            _ => {}
        }
        if mode != Mode::Refuse {
            let port = self.port;
            let bind = || bind(port).expect("the port is still free");
            self.listener.get_or_insert_with(|| listen_on(bind()));
        } else if let Some(listener) = self.listener.take() {
            // A process that another thread is just forking has a copy until it execs. A shutdown ends both.
            let _ = shutdown(&listener, Shutdown::Read);
        }
    }

    async fn end(&mut self, how: End, which: impl Fn(&Link) -> bool) {
        for (link, task) in std::mem::take(&mut self.links) {
            match link.upgrade() {
                Some(link) if which(&link) => {
                    task.abort();
                    let _ = task.await;
                    link.end(how);
                }
                Some(_) => self.links.push((link, task)),
                None => {}
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        // An error is a client that had gone before it was accepted.
        if let Ok((client, _)) = listener.accept().await {
            return client;
        }
    }
}

fn bind(port: u16) -> io::Result<Socket> {
    let socket = Socket::bind((Ipv4Addr::LOCALHOST, port))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn listen_on(socket: Socket) -> TcpListener {
    TcpListener::from_std(socket).expect("a socket that does not block")
}

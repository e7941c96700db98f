//! The one thread of a proxy: waits for sockets, moves bytes, obeys orders.

use std::io::{self, Read as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::TryRecvError;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::link::{Fate, Link};
use super::{Inbox, Listener, Mode, Order, Traffic, What, When, listen_on};
use crate::wait::now;

pub(super) struct Relay {
    port: u16,
    node_port: u16,
    mode: Mode,
    /// None while connections are refused.
    listener: Option<Listener>,
    links: Vec<Link>,
    traffic: Arc<Traffic>,
}

impl Relay {
    pub(super) const fn new(
        port: u16,
        listener: Listener,
        node_port: u16,
        traffic: Arc<Traffic>,
    ) -> Self {
        let listener = Some(listener);
        Self { port, node_port, mode: Mode::Pass, listener, links: Vec::new(), traffic }
    }

    /// Works until the other end of `inbox` is gone.
    pub(super) fn run(mut self, mut inbox: Inbox) {
        loop {
            self.wait(&inbox);
            // Connections first: what had come before an order is under the old mode.
            self.accept();
            self.move_bytes();
            match inbox.orders.try_recv() {
                Ok(Order { what, done }) => {
                    let _ = inbox.doorbell.read(&mut [0]);
                    match what {
                        What::Mode(mode) => self.change(mode),
                        What::Stick(bytes) => {
                            self.links.iter_mut().for_each(|link| link.stick_after(bytes));
                        }
                    }
                    // The caller does not listen any more if a test has panicked.
                    let _ = done.send(());
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return end_all(self.links, Fate::Cut),
            }
        }
    }

    fn wait(&self, inbox: &Inbox) {
        let mut sockets = vec![PollFd::new(&inbox.doorbell, PollFlags::IN)];
        sockets.extend(self.listener.iter().map(|socket| PollFd::new(&**socket, PollFlags::IN)));
        sockets.extend(self.links.iter().flat_map(Link::interests));
        let next = self.links.iter().filter_map(|link| link.next_due(self.mode)).min();
        let left = next.map(|due| due.saturating_duration_since(now()));
        let left = left.map(|left| Timespec::try_from(left).expect("delays are short"));
        match poll(&mut sockets, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("poll: {error}"),
        }
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        loop {
            match listener.accept() {
                Ok((client, _)) => {
                    let node = TcpStream::connect((Ipv4Addr::LOCALHOST, self.node_port));
                    let fate = match (&node, self.mode) {
                        (Err(_), _) | (_, Mode::Reset(When::Now)) => Fate::Reset,
                        (_, Mode::Cut(When::Now)) => Fate::Cut,
                        _ => Fate::Live,
                    };
                    match (node, fate) {
                        (Ok(node), Fate::Live) => self.links.push(Link::new(client, node)),
                        (Ok(node), fate) => Link::new(client, node).end(fate),
                        (Err(_), _) => super::link::reset(client),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // A client that had gone before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => panic!("accept: {error}"),
            }
        }
    }

    fn move_bytes(&mut self) {
        let (mode, now) = (self.mode, now());
        for mut link in std::mem::take(&mut self.links) {
            match link.work(mode, now, &self.traffic) {
                Fate::Live => self.links.push(link),
                fate => link.end(fate),
            }
        }
    }

    fn change(&mut self, mode: Mode) {
        let old = std::mem::replace(&mut self.mode, mode);
        if old != mode {
            let (torn, whole) = self.links.drain(..).partition(Link::has_lost_bytes);
            self.links = whole;
            end_all(torn, Fate::Reset);
        }
        match mode {
            Mode::Cut(When::Now) => end_all(std::mem::take(&mut self.links), Fate::Cut),
            Mode::Reset(When::Now) | Mode::Refuse => {
                end_all(std::mem::take(&mut self.links), Fate::Reset);
            }
            _ => {}
        }
        if mode == Mode::Refuse {
            self.listener = None;
        } else if self.listener.is_none() {
            self.listener = Some(listen_on(self.port).expect("the port is still free"));
        }
    }
}

fn end_all(links: Vec<Link>, fate: Fate) {
    for link in links {
        link.end(fate);
    }
}

//! One connection through a proxy: two sockets, and the bytes in flight between them.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt::set_socket_linger;

use super::{Direction, Mode, Traffic, When};

pub(super) struct Link {
    client: TcpStream,
    node: TcpStream,
    to_node: Way,
    to_client: Way,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Live,
    Cut,
    Reset,
}

impl Link {
    pub(super) fn new(client: TcpStream, node: TcpStream) -> Self {
        for socket in [&client, &node] {
            socket.set_nonblocking(true).expect("an open socket");
            socket.set_nodelay(true).expect("an open socket");
        }
        let (to_node, to_client) = (Way::new(Direction::ToNode), Way::new(Direction::ToClient));
        Self { client, node, to_node, to_client }
    }

    /// What to wait for.
    pub(super) fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let client = (&self.client, &self.to_node, &self.to_client);
        let node = (&self.node, &self.to_client, &self.to_node);
        [client, node].into_iter().filter_map(|(socket, inward, outward)| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, !inward.has_ended);
            flags.set(PollFlags::OUT, outward.is_blocked);
            // If nothing is wanted of a socket, `poll` would report again and again that it ended.
            (!flags.is_empty()).then(|| PollFd::new(socket, flags))
        })
    }

    /// When to come back though no socket wants it.
    pub(super) fn next_due(&self, mode: Mode) -> Option<Instant> {
        [&self.to_node, &self.to_client].into_iter().filter_map(|way| way.next_due(mode)).min()
    }

    /// Whether bytes were swallowed, so that what follows would make no sense.
    pub(super) const fn has_lost_bytes(&self) -> bool {
        self.to_node.has_lost || self.to_client.has_lost
    }

    /// Hands `bytes` more to the client, and swallows the rest.
    pub(super) const fn stick_after(&mut self, bytes: usize) {
        self.to_client.allowance = Some(bytes);
    }

    /// Moves what can be moved.
    pub(super) fn work(&mut self, mode: Mode, now: Instant, traffic: &Traffic) -> Fate {
        let there = self.to_node.work(&self.client, &self.node, mode, now, traffic);
        let back = self.to_client.work(&self.node, &self.client, mode, now, traffic);
        match (there, back) {
            (Ok(Flow::Ends(fate)), _) => fate,
            (Ok(Flow::Over), Ok(Flow::Over)) => Fate::Cut,
            (Ok(_), Ok(_)) => Fate::Live,
            // Whichever end reset it, the other end is to know.
            (Err(_), _) | (_, Err(_)) => Fate::Reset,
        }
    }

    /// The node learns it no later than the client.
    pub(super) fn end(self, fate: Fate) {
        for socket in [self.node, self.client] {
            match fate {
                Fate::Reset => reset(socket),
                Fate::Live | Fate::Cut => cut(socket),
            }
        }
    }
}

/// Closes with an `RST`.
pub(super) fn reset(socket: TcpStream) {
    // Fails if the other end was quicker.
    let _ = set_socket_linger(&socket, Some(Duration::ZERO));
    drop(socket);
}

/// Closes with a `FIN`, even if another process has a copy of the socket.
fn cut(mut socket: TcpStream) {
    let _ = socket.shutdown(Shutdown::Write);
    // Unread bytes would make it an `RST`.
    let mut buffer = [0; 4096];
    while socket.read(&mut buffer).is_ok_and(|read| read > 0) {}
}

/// One direction of a connection.
struct Way {
    direction: Direction,
    /// Chunks and when they came.
    held: VecDeque<(Instant, Vec<u8>)>,
    /// The source will send no more.
    has_ended: bool,
    /// And the destination knows.
    is_over: bool,
    is_blocked: bool,
    has_lost: bool,
    /// How many bytes more are taken before the rest is swallowed.
    allowance: Option<usize>,
}

enum Flow {
    Open,
    /// All of it has arrived, the end too.
    Over,
    /// The mode ends the whole connection.
    Ends(Fate),
}

impl Way {
    const fn new(direction: Direction) -> Self {
        Self {
            direction,
            held: VecDeque::new(),
            has_ended: false,
            is_over: false,
            is_blocked: false,
            has_lost: false,
            allowance: None,
        }
    }

    fn next_due(&self, mode: Mode) -> Option<Instant> {
        // A blocked one is woken by its socket.
        self.held.front().filter(|_| !self.is_blocked).map(|(came, _)| *came + self.delay(mode))
    }

    const fn delay(&self, mode: Mode) -> Duration {
        match (mode, self.direction) {
            (Mode::Delay { to_node, .. }, Direction::ToNode) => to_node,
            (Mode::Delay { to_client, .. }, Direction::ToClient) => to_client,
            _ => Duration::ZERO,
        }
    }

    fn work(
        &mut self,
        source: &TcpStream,
        destination: &TcpStream,
        mode: Mode,
        now: Instant,
        traffic: &Traffic,
    ) -> io::Result<Flow> {
        if let Some(fate) = self.take(source, mode, now)? {
            return Ok(Flow::Ends(fate));
        }
        self.hand_on(destination, mode, now, traffic)?;
        if self.has_ended && self.held.is_empty() && !self.is_over && !self.has_lost {
            // Fails if the other end was quicker.
            let _ = destination.shutdown(Shutdown::Write);
            self.is_over = true;
        }
        Ok(if self.is_over { Flow::Over } else { Flow::Open })
    }

    /// Reads all that there is.
    fn take(
        &mut self,
        mut source: &TcpStream,
        mode: Mode,
        now: Instant,
    ) -> io::Result<Option<Fate>> {
        let mut buffer = [0; 16 * 1024];
        while !self.has_ended {
            let read = match source.read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.has_ended = read == 0;
            match mode {
                Mode::BlackHole(direction) if direction == self.direction => self.has_lost = true,
                Mode::Cut(When::Used) if read > 0 && self.direction == Direction::ToNode => {
                    return Ok(Some(Fate::Cut));
                }
                Mode::Reset(When::Used) if read > 0 && self.direction == Direction::ToNode => {
                    return Ok(Some(Fate::Reset));
                }
                _ if read > 0 => self.hold(now, &buffer[..read]),
                _ => {}
            }
        }
        Ok(None)
    }

    fn hold(&mut self, now: Instant, chunk: &[u8]) {
        let taken = self.allowance.map_or(chunk.len(), |left| left.min(chunk.len()));
        self.allowance = self.allowance.map(|left| left - taken);
        self.has_lost |= taken < chunk.len();
        if taken > 0 {
            self.held.push_back((now, chunk[..taken].to_vec()));
        }
    }

    /// Writes all that is due.
    fn hand_on(
        &mut self,
        mut destination: &TcpStream,
        mode: Mode,
        now: Instant,
        traffic: &Traffic,
    ) -> io::Result<()> {
        self.is_blocked = false;
        let delay = self.delay(mode);
        while let Some((came, chunk)) = self.held.front_mut() {
            if *came + delay > now {
                break;
            }
            match destination.write(chunk) {
                Ok(written) => {
                    traffic.add(self.direction, written);
                    chunk.drain(..written);
                    if chunk.is_empty() {
                        self.held.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_blocked = true;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

//! One connection through a proxy.

#![expect(clippy::disallowed_methods, reason = "a slow network")]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::{Direction, End, Mode};

/// One connection through a proxy. The node learns of its end no later than the client.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) node: TcpStream,
    pub(super) client: TcpStream,
    /// Bytes were swallowed, so that what follows would make no sense.
    pub(super) lost: AtomicBool,
}

impl Link {
    /// Hands on what is sent in one direction, its end as well.
    pub(super) async fn pump(
        &self,
        way: Direction,
        mut mode: watch::Receiver<Mode>,
    ) -> Result<(), End> {
        let (source, destination) = match way {
            Direction::ToNode => (&self.client, &self.node),
            Direction::ToClient => (&self.node, &self.client),
        };
        let mut buffer = [0; 16 * 1024];
        loop {
            source.readable().await.map_err(|_| End::Reset)?;
            let mut read = match source.try_read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                // Whichever end reset it, the other end is to know.
                Err(_) => return Err(End::Reset),
            };
            let came = Instant::now();
            let now = *mode.borrow_and_update();
            match now {
                Mode::Reset if read > 0 && way == Direction::ToNode => return Err(End::Reset),
                Mode::BlackHole(direction) if direction == way => self.lost.store(true, SeqCst),
                _ => {}
            }
            let has_ended = read == 0;
            loop {
                let current = *mode.borrow_and_update();
                let Mode::Delay(delay) = current else { break };
                tokio::select! {
                    () = tokio::time::sleep_until((came + delay).into()) => break,
                    _ = mode.changed() => {}
                }
            }
            if now == Mode::BlackHole(way) {
                read = 0;
            }
            let mut left = &buffer[..read];
            while !left.is_empty() {
                destination.writable().await.map_err(|_| End::Reset)?;
                match destination.try_write(left) {
                    Ok(written) => left = &left[written..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return Err(End::Reset),
                }
            }
            if has_ended && self.lost.load(SeqCst) {
                return std::future::pending().await;
            } else if has_ended {
                // Fails if the other end was quicker.
                let _ = shutdown(destination, Shutdown::Write);
                return Ok(());
            }
        }
    }

    pub(super) fn end(&self, how: End) {
        for socket in [&self.node, &self.client] {
            match how {
                End::Reset => reset(socket),
                End::Cut => {
                    let _ = shutdown(socket, Shutdown::Write);
                    // Unread bytes would make it an `RST`.
                    let mut buffer = [0; 4096];
                    while recv(socket, &mut buffer, RecvFlags::DONTWAIT)
                        .is_ok_and(|(read, _)| read > 0)
                    {}
                }
            }
        }
    }
}

/// Makes the close an `RST`.
pub(super) fn reset(socket: &TcpStream) {
    // Fails if the other end was quicker.
    let _ = set_socket_linger(socket, Some(Duration::ZERO));
}

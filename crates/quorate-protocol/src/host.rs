//! A host of an address: its name is looked up, and each of its addresses is tried.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::future::pending;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, thread};

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, Either, FutureExt as _, Shared, select};
use futures_util::stream::FuturesUnordered;
use quorate_core::{BackendError, BackendErrorKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::error_reply::speaks_no_tls;

/// Host and port, as an address names them.
#[derive(Clone, Copy, Debug)]
pub struct Host<'a> {
    name: &'a str,
    port: u16,
    is_tls: bool,
}

impl<'a> Host<'a> {
    /// The host `name`, which may be an IP address, also in brackets. `is_tls`: it is reached over
    /// TLS.
    #[must_use]
    pub fn new(name: &'a str, port: u16, is_tls: bool) -> Self {
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        Self { name: bare.unwrap_or(name), port, is_tls }
    }

    /// Connects by `connect` to the first of its addresses where that works.
    ///
    /// An address is tried when the one before has failed, or has taken its part of `limit`, at
    /// most 100 ms. So an address that is dead costs little. The name is looked up on a thread of
    /// its own, which no runtime waits for at its end, as it would for the system's look-up in its
    /// pool.
    ///
    /// # Errors
    ///
    /// The name has no address ([`BackendErrorKind::Connection`]), or `connect` failed for each.
    /// Then the error is a permanent one if there is one, else the last one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops those of `connect`. A look-up goes on, and the next one for this
    /// name joins it.
    pub async fn connect<C, F>(
        self,
        limit: Duration,
        connect: impl Fn(SocketAddr) -> F,
    ) -> Result<C, BackendError>
    where
        F: Future<Output = Result<C, BackendError>>,
    {
        let addresses = self.addresses().await?;
        let part = limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut left = addresses.iter().copied();
        let (mut begun, mut failure) = (FuturesUnordered::new(), None);
        loop {
            if let Some(address) = left.next() {
                begun.push(self.attempt(address, part, connect(address)));
            }
            let lead = if left.len() == 0 { Duration::MAX } else { part.min(LEAD) };
            match timeout(lead, begun.next()).await {
                Ok(Some(Ok(connection))) => return Ok(connection),
                Ok(Some(Err(error))) => {
                    let is_worse = failure.as_ref().is_none_or(|known: &BackendError| {
                        error.kind().is_permanent() || !known.kind().is_permanent()
                    });
                    if is_worse {
                        failure = Some(error);
                    }
                }
                Ok(None) => return Err(failure.unwrap_or_else(|| unknown("it has no address"))),
                Err(_) => {}
            }
        }
    }

    /// One attempt. A server without TLS may wait for the end of what it takes for a line, and
    /// never reply.
    async fn attempt<C>(
        self,
        address: SocketAddr,
        part: Duration,
        connecting: impl Future<Output = Result<C, BackendError>>,
    ) -> Result<C, BackendError> {
        let without_tls = async {
            if self.is_tls {
                sleep(SILENT_TLS.min(part / 2)).await;
                if replies_in_plain_text(address).await.unwrap_or(false) {
                    return;
                }
            }
            pending().await
        };
        match select(pin!(connecting), pin!(without_tls)).await {
            Either::Left((made, _)) => made,
            Either::Right(_) => Err(speaks_no_tls()),
        }
    }

    /// Its addresses, in the order of the system. An IP address is not looked up.
    async fn addresses(self) -> Result<Vec<SocketAddr>, BackendError> {
        if let Ok(address) = self.name.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, self.port)]);
        }
        let begun = match running().entry((self.name.to_owned(), self.port)) {
            Entry::Occupied(entry) => entry.get().clone(),
            Entry::Vacant(entry) => {
                let begun =
                    look_up(entry.key().clone(), |name| Ok(name.to_socket_addrs()?.collect()));
                entry.insert(begun.map_err(|error| of_look_up(&error))?).clone()
            }
        };
        begun.await
    }
}

/// Whether a server replies to a `PING` without TLS as Redis does. A server with TLS sends an
/// alert, or hangs up.
async fn replies_in_plain_text(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"PING\r\n").await?;
    let mut reply = [0; 128];
    let length = stream.read(&mut reply).await?;
    Ok(is_plain(&String::from_utf8_lossy(&reply[..length])))
}

/// Whether a server that replies this to a `PING` without TLS speaks none. One with TLS may say so
/// in plain text, as Dragonfly does.
fn is_plain(reply: &str) -> bool {
    PLAIN.iter().any(|start| reply.starts_with(start)) && !reply.contains("TLS")
}

/// How the reply to a `PING` without login begins.
const PLAIN: [&str; 5] = ["+PONG", "-NOAUTH", "-DENIED", "-LOADING", "-ERR"];

/// The addresses of a name, once they are known.
type LookUp = Shared<BoxFuture<'static, Result<Vec<SocketAddr>, BackendError>>>;

/// The look-ups that run, or have just ended. One for each name: a name server that does not answer
/// costs one thread, and a late answer counts.
static RUNNING: Mutex<BTreeMap<(String, u16), LookUp>> = Mutex::new(BTreeMap::new());

fn running() -> MutexGuard<'static, BTreeMap<(String, u16), LookUp>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to look a name up, on a thread that nothing waits for. `RUNNING` is locked meanwhile, so
/// that the thread removes what is there.
fn look_up(
    name: (String, u16),
    resolve: impl FnOnce((&str, u16)) -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<LookUp> {
    let (found, answer) = oneshot::channel();
    thread::Builder::new().name("quorate-name".to_owned()).spawn(move || {
        // Nobody may wait for it any more.
        match resolve((&name.0, name.1)) {
            Ok(addresses) => {
                let _ = found.send(Ok(addresses));
                // For the next connect.
                thread::sleep(KEPT);
                running().remove(&name);
            }
            Err(error) => {
                running().remove(&name);
                let _ = found.send(Err(of_look_up(&error)));
            }
        }
    })?;
    let ended = || unknown("the look-up of the name has ended");
    Ok(async move { answer.await.unwrap_or_else(|_| Err(ended())) }.boxed().shared())
}

fn of_look_up(error: &io::Error) -> BackendError {
    unknown(&error.to_string())
}

fn unknown(text: &str) -> BackendError {
    BackendError::new(BackendErrorKind::Connection, text)
}

/// For how long the addresses of a name are kept: longer than a back-off between two connects.
const KEPT: Duration = Duration::from_secs(2);

/// For how long an address is tried alone, before the next one is tried beside it (RFC 8305).
const LEAD: Duration = Duration::from_millis(100);

/// For how long a server is silent to a client that speaks TLS before it is asked without.
const SILENT_TLS: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::mpsc;

    use tokio::runtime::Builder;
    use tokio::time::Instant;

    use super::*;

    fn addresses(host: &Host<'_>, last: &[u8]) {
        let addresses = last.iter().map(|last| SocketAddr::from(([127, 0, 0, *last], host.port)));
        let found = ready(Ok(addresses.collect())).boxed().shared();
        running().insert((host.name.to_owned(), host.port), found);
    }

    fn failed(kind: BackendErrorKind, text: &str) -> Result<u8, BackendError> {
        Err(BackendError::new(kind, text.to_owned()))
    }

    fn last(address: SocketAddr) -> u8 {
        match address.ip() {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(_) => 0,
        }
    }

    /// 9 replies at once, 8 after 300 ms, 7 never; each other number fails after as many
    /// milliseconds.
    async fn dial(address: SocketAddr) -> Result<u8, BackendError> {
        match last(address) {
            9 => {}
            8 => sleep(Duration::from_millis(300)).await,
            7 => pending().await,
            number => {
                sleep(Duration::from_millis(u64::from(number))).await;
                let kind =
                    if number == 2 { BackendErrorKind::Auth } else { BackendErrorKind::Connection };
                return failed(kind, &number.to_string());
            }
        }
        Ok(last(address))
    }

    #[tokio::test(start_paused = true)]
    async fn each_address_of_a_name_is_tried_and_one_that_is_dead_costs_its_part() {
        for (port, (list, limit, expected, after)) in (1..).zip([
            (&[9][..], 1000, Ok(9), 0),
            (&[7, 9], 1000, Ok(9), 100),
            (&[7, 9], 150, Ok(9), 75),
            (&[7, 7, 7, 7, 9], 1000, Ok(9), 400),
            (&[1, 9], 1000, Ok(9), 1),
            (&[8, 7, 7], 1000, Ok(8), 300),
            (&[8, 9], 1000, Ok(9), 100),
            (&[8, 7], 1000, Ok(8), 300),
            (&[1, 3, 4], 1000, Err("4"), 8),
            (&[1, 2, 4], 1000, Err("2"), 7),
            (&[], 1000, Err("it has no address"), 0),
        ]) {
            let (host, start) = (Host::new("some.example", port, false), Instant::now());
            addresses(&host, list);
            let made = host.connect(Duration::from_millis(limit), dial).await;
            assert_eq!(
                made.map_err(|error| error.to_string()),
                expected.map_err(str::to_owned),
                "{list:?}"
            );
            assert_eq!(start.elapsed(), Duration::from_millis(after), "{list:?}");
        }
    }

    #[tokio::test]
    async fn an_ip_address_is_not_looked_up_and_a_name_is_looked_up_once_at_a_time() {
        for (name, expected) in
            [("10.0.0.1", "10.0.0.1:7"), ("::1", "[::1]:7"), ("[::1]", "[::1]:7")]
        {
            let found = Host::new(name, 7, true).addresses().await.unwrap();
            assert_eq!(found, [expected.parse().unwrap()]);
        }
        for _ in 0..2 {
            assert!(Host::new("no such name", 7, false).addresses().await.is_err());
            assert!(!running().contains_key(&("no such name".to_owned(), 7)));
        }
    }

    /// A runtime waits at its end for what blocks in its pool. The next one has the answer.
    #[test]
    fn an_end_waits_for_no_look_up_and_a_late_answer_counts() {
        let (answer, asked) = mpsc::channel();
        let (name, host) = ("slow.example", Host::new("slow.example", 7, false));
        let begun = look_up((name.to_owned(), 7), move |_| asked.recv().map_err(io::Error::other));
        running().insert((name.to_owned(), 7), begun.unwrap());
        let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
        runtime().block_on(async {
            assert!(host.addresses().now_or_never().is_none());
        });
        let addresses = runtime().block_on(async {
            let joined = host.addresses();
            answer.send(vec![SocketAddr::from(([127, 0, 0, 1], 7))]).unwrap();
            joined.await
        });
        assert_eq!(addresses.unwrap().len(), 1);
        assert!(host.addresses().now_or_never().is_some(), "kept for the next connect");
    }

    #[test]
    fn a_server_with_tls_that_replies_in_plain_text_speaks_tls() {
        for (reply, expected) in [
            ("+PONG\r\n", true),
            ("-NOAUTH Authentication required.\r\n", true),
            ("-ERR max number of clients reached\r\n", true),
            ("-ERR Bad TLS header, double check if you enabled TLS for your client.\r\n", false),
            ("\u{15}\u{3}\u{1}", false),
            ("", false),
        ] {
            assert_eq!(is_plain(reply), expected, "{reply}");
        }
    }
}

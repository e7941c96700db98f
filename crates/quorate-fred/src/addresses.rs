//! The addresses of a name, if it has several.
//!
//! fred tries them one after the other, always the same first, and each for as long as the kernel
//! does. One that swallows what it is sent would keep the others from being tried at all: the attempt
//! is over before. (A resolver of ours could not race them either, and fred takes one only with a
//! feature that brings another client for DNS.) So if the name alone has not led to a connection
//! within a moment, all addresses are tried at once.

use std::future::ready;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use fred::types::config::{Config, Server, ServerConfig};
use futures_util::future::{BoxFuture, Either, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use quorate_core::{BackendError, BackendErrorKind};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::link::{Link, Timer};

/// For how long the name is tried alone. A node at hand has answered by then.
const MOMENT: Duration = Duration::from_millis(250);

type Outcome = Result<Arc<Link>, BackendError>;

/// Connects to the node of `config` within `timeout`.
///
/// `dial` makes an attempt to connect that takes no longer than it is told.
pub(crate) async fn reach<D>(
    config: Config,
    timeout: Duration,
    runtime: Handle,
    dial: impl Fn(Config, Duration) -> D,
    addresses: impl Future<Output = Vec<SocketAddr>> + Send,
) -> Outcome
where
    D: Future<Output = Outcome> + Send + 'static,
{
    let (begun, moment) = (Instant::now(), MOMENT.min(timeout / 4));
    let by_name = dial(config.clone(), timeout).boxed();
    let by_name = match select(by_name, Timer::start(moment, &runtime)).await {
        Either::Left((outcome, _)) => return outcome,
        Either::Right((_, by_name)) => by_name,
    };
    let (by_name, addresses) = match select(by_name, addresses.boxed()).await {
        Either::Left((outcome, _)) => return outcome,
        Either::Right((addresses, by_name)) => (by_name, addresses),
    };
    if addresses.len() < 2 {
        return by_name.await;
    }
    // The look-up may have taken longer than the moment.
    let left = || timeout.saturating_sub(begun.elapsed());
    let by_address = addresses.into_iter().map(|address| dial(at(&config, address), left()));
    any(by_name, by_address.collect(), || moment.min(left()), &runtime).await
}

/// The addresses of the host of `config`.
pub(crate) async fn of(config: &Config, runtime: &Handle) -> Vec<SocketAddr> {
    let ServerConfig::Centralized { server: Server { host, port, .. } } = &config.server else {
        return Vec::new();
    };
    let text = format!("{host}:{port}");
    let looked_up = runtime.spawn_blocking(move || text.to_socket_addrs().map(Vec::from_iter));
    looked_up.await.ok().and_then(Result::ok).unwrap_or_default()
}

/// The first connection, or what the name has led to. If that is none, what a node said at another
/// address is told, after a `moment`: one that turns some of us away may be letting another in.
async fn any<D>(
    by_name: BoxFuture<'static, Outcome>,
    mut by_address: FuturesUnordered<D>,
    moment: impl Fn() -> Duration + Send + Sync,
    runtime: &Handle,
) -> Outcome
where
    D: Future<Output = Outcome> + Send + 'static,
{
    let others = async {
        let said = loop {
            match by_address.next().await? {
                outcome if is_without_connection(&outcome) => {}
                Ok(link) => return Some(Ok(link)),
                said => break said,
            }
        };
        let timer = Timer::start(moment(), runtime);
        let mut connections = by_address.filter(|outcome| ready(outcome.is_ok()));
        match select(connections.next(), timer).await {
            Either::Left((Some(connection), _)) => return Some(connection),
            Either::Left((None, timer)) => drop(timer.await),
            Either::Right(_) => {}
        }
        Some(said)
    };
    match select(by_name, others.boxed()).await {
        Either::Left((outcome, others)) if is_without_connection(&outcome) => {
            others.await.unwrap_or(outcome)
        }
        Either::Left((outcome, _)) | Either::Right((Some(outcome), _)) => outcome,
        Either::Right((None, by_name)) => by_name.await,
    }
}

fn is_without_connection(outcome: &Outcome) -> bool {
    use BackendErrorKind::{Connection, TimedOut};
    matches!(outcome, Err(error) if matches!(error.kind(), Connection | TimedOut))
}

/// The same node at one of its addresses. Its certificate is for the name.
fn at(config: &Config, address: SocketAddr) -> Config {
    let mut config = config.clone();
    if let ServerConfig::Centralized { server } = &mut config.server {
        server.port = address.port();
        let address = address.to_string();
        // In brackets if it is one of IPv6, as in a URL.
        let host = address.rsplit_once(':').map_or(&*address, |(host, _)| host);
        let name = std::mem::replace(&mut server.host, host.into());
        #[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
        server.tls_server_name.get_or_insert(name);
        #[cfg(not(any(feature = "tls-native-tls", feature = "tls-rustls")))]
        drop(name);
    }
    config
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::thread::{self, JoinHandle};

    use fred::types::config::PerformanceConfig;
    use tokio::time::sleep;

    use super::*;
    use crate::link::dial;

    /// Takes connections, and never says anything: what swallows requests to connect is as silent.
    fn silent() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Answers the first who comes with `answers`, before it is asked.
    fn answering(answers: &'static [u8]) -> (JoinHandle<TcpStream>, SocketAddr) {
        let (listener, address) = silent();
        let node = thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            connection.write_all(answers).unwrap();
            connection
        });
        (node, address)
    }

    /// Dials a name whose first address is `first`.
    async fn reached(
        first: SocketAddr,
        timeout: Duration,
        addresses: Vec<SocketAddr>,
    ) -> Result<(), BackendError> {
        let config = Config::from_url(&format!("redis://{first}")).unwrap();
        let runtime = Handle::current();
        let dial = |config, timeout| {
            dial(config, PerformanceConfig::default(), timeout, &Handle::current())
        };
        let addresses = ready(addresses);
        reach(config, timeout, runtime, dial, addresses).await.map(drop)
    }

    const LONG: Duration = Duration::from_secs(120);

    #[tokio::test]
    async fn a_name_is_reached_if_one_of_its_addresses_answers() {
        let (_kept, swallows) = silent();
        // To PING, CLIENT ID and INFO.
        let (node, answers) = answering(b"+PONG\r\n:1\r\n$-1\r\n");
        reached(swallows, LONG, vec![swallows, answers]).await.unwrap();
        node.join().unwrap();
    }

    #[tokio::test]
    async fn what_a_node_says_at_another_address_is_told() {
        let (_kept, swallows) = silent();
        let (node, loads) = answering(b"-LOADING Redis is loading the dataset in memory\r\n");
        let error = reached(swallows, LONG, vec![swallows, loads]).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Loading, "{error}");
        node.join().unwrap();
    }

    /// As it does in protected mode with all that do not come from its own machine.
    #[tokio::test]
    async fn a_node_that_turns_one_of_us_away_may_let_another_in() {
        let (name, first) = silent();
        let (turns_away, other) = silent();
        let node = thread::spawn(move || {
            let (mut connection, _) = name.accept().unwrap();
            let (mut another, _) = turns_away.accept().unwrap();
            another.write_all(b"-DENIED Redis is running in protected mode\r\n").unwrap();
            another.shutdown(Shutdown::Write).unwrap();
            // It has been heard.
            let _ = another.read_to_end(&mut Vec::new());
            connection.write_all(b"+PONG\r\n:1\r\n$-1\r\n").unwrap();
            (connection, name)
        });
        reached(first, LONG, vec![first, other]).await.unwrap();
        drop(node.join().unwrap());
    }

    #[tokio::test]
    async fn if_no_address_answers_there_is_no_connection() {
        let ((_kept, swallows), (refuses, at_once)) = (silent(), silent());
        drop(refuses);
        let timeout = Duration::from_millis(200);
        let error = reached(swallows, timeout, vec![swallows, at_once]).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::TimedOut);
    }

    /// However long it takes to look the name up.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_is_over_after_the_timeout_whatever_took_the_time() {
        let (config, begun) = (Config::from_url("redis://a.example").unwrap(), Instant::now());
        let dial = |_, timeout| async move {
            sleep(timeout).await;
            Err(BackendError::new(BackendErrorKind::TimedOut, "no connection"))
        };
        let addresses = async {
            sleep(LONG / 2).await;
            vec!["10.0.0.1:7000".parse().unwrap(), "10.0.0.2:7000".parse().unwrap()]
        };
        let runtime = Handle::current();
        assert!(reach(config, LONG, runtime, dial, addresses).await.is_err());
        assert!(begun.elapsed() <= LONG + Duration::from_millis(10), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn a_host_has_the_addresses_that_the_system_knows() {
        let config = |url| Config::from_url(url).unwrap();
        let runtime = Handle::current();
        for url in ["redis://127.0.0.1:7000", "redis://[::1]:7000"] {
            let addresses = of(&config(url), &runtime).await;
            assert_eq!(addresses.len(), 1, "{url}");
            assert_eq!(format!("redis://{}", addresses[0]), url);
        }
    }

    #[test]
    fn an_address_stands_for_its_name() {
        let named = Config::from_url("redis://ann:hunter2@a.example/3").unwrap();
        for address in ["10.0.0.1:7000", "[fe80::1%2]:7000"] {
            let config = at(&named, address.parse().unwrap());
            let ServerConfig::Centralized { server } = &config.server else { panic!() };
            assert_eq!(format!("{}:{}", server.host, server.port), address);
            #[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
            assert_eq!(server.tls_server_name.as_deref(), Some("a.example"));
            assert_eq!((&config.password, config.database), (&named.password, Some(3)));
        }
    }
}

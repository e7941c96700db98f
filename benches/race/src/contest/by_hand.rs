//! What a careful user writes with a client alone: the commands of quorate, and a return at a quorum.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fred::interfaces::{ClientLike, KeysInterface};
use fred::types::config::{Config, ConnectionConfig, TcpConfig};
use fred::types::{
    ClusterHash, CustomCommand, Expiration, Resp3Frame, SetOptions, Value as FredValue,
};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use quorate::runtime::os_random;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, Value,
};

use super::{Contestant, RELEASE_SHA1};
use crate::Outcome;

pub(crate) trait Client: Clone + Send + Sync + 'static {
    type Command: Clone + Send + Sync;

    /// Connects; `None` if the node is down.
    fn connect(address: &str) -> impl Future<Output = Outcome<Option<Self>>> + Send;

    fn set(held: &Held, ttl: u64) -> Self::Command;

    fn delete(held: Held) -> Self::Command;

    fn call(self, command: Self::Command) -> impl Future<Output = bool> + Send + 'static;
}

pub(crate) struct ByHand<C> {
    nodes: Vec<Option<C>>,
    ttl: u64,
    background: Arc<()>, // A clone is held by each fan-out that goes on in the background.
}

#[derive(Clone)]
pub(crate) struct Held {
    key: String,
    token: String,
}

impl<C: Client> Contestant for ByHand<C> {
    type Held = Held;

    async fn connect(_: &str, addresses: Vec<String>, ttl: Duration) -> Outcome<Self> {
        let mut nodes = Vec::new();
        for address in addresses {
            nodes.push(C::connect(&address).await?);
        }
        Ok(Self { nodes, ttl: u64::try_from(ttl.as_millis())?, background: Arc::default() })
    }

    async fn acquire(&self, key: &str) -> Option<Held> {
        let held = Held { key: key.to_owned(), token: token()? };
        if self.round(&C::set(&held, self.ttl)).await {
            return Some(held);
        }
        self.release(held).await;
        None
    }

    /// Sent on the same connections, directly after the acquire.
    async fn release(&self, held: Held) -> bool {
        self.round(&C::delete(held)).await
    }

    async fn close(&self) {
        let deadline = Instant::now() + Duration::from_secs(1);
        while Arc::strong_count(&self.background) > 1 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl<C: Client> ByHand<C> {
    /// Returns whether a quorum of the nodes did it. The other calls continue in the background: the
    /// client may never send the command of a call that is dropped.
    async fn round(&self, command: &C::Command) -> bool {
        let nodes = self.nodes.iter().flatten().cloned();
        let mut open: FuturesUnordered<_> = nodes.map(|node| node.call(command.clone())).collect();
        let (count, mut yes) = (self.nodes.len(), 0);
        let quorum = count / 2 + 1;
        let mut no = count - open.len();
        while yes < quorum && no <= count - quorum {
            match open.next().await {
                Some(true) => yes += 1,
                Some(false) => no += 1,
                None => break,
            }
        }
        if !open.is_empty() {
            let running = Arc::clone(&self.background);
            tokio::spawn(async move {
                while open.next().await.is_some() {}
                drop(running);
            });
        }
        yes >= quorum
    }
}

/// Draws a token: 20 random bytes in hexadecimal digits, as quorate does.
fn token() -> Option<String> {
    let mut bytes = [0; 20];
    os_random(&mut bytes).ok()?;
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    Some(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect())
}

/// redis-rs: one multiplexed connection to each node.
#[derive(Clone)]
pub(crate) struct Redis(MultiplexedConnection);

impl Client for Redis {
    type Command = Arc<Cmd>;

    async fn connect(address: &str) -> Outcome<Option<Self>> {
        // The settings of quorate-redis: no response timeout, a long queue, TCP_NODELAY.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(1)))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        let info: ConnectionInfo = address.into_connection_info()?;
        let tcp = info.tcp_settings().clone().set_nodelay(true);
        let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
        let client = redis::Client::open(info.set_tcp_settings(tcp).set_redis_settings(bare))?;
        Ok(client.get_multiplexed_async_connection_with_config(&config).await.ok().map(Self))
    }

    fn set(held: &Held, ttl: u64) -> Arc<Cmd> {
        let mut command = redis::cmd("SET");
        command.arg(&held.key).arg(&held.token).arg("NX").arg("PX").arg(ttl);
        Arc::new(command)
    }

    fn delete(held: Held) -> Arc<Cmd> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&*RELEASE_SHA1).arg(1).arg(held.key).arg(held.token);
        Arc::new(command)
    }

    async fn call(mut self, command: Arc<Cmd>) -> bool {
        matches!(self.0.send_packed_command(&command).await, Ok(Value::Okay | Value::Int(1)))
    }
}

/// fred: one client for each node. `SET` goes through fred's own method: fred sends each custom command in a separate
/// write.
#[derive(Clone)]
pub(crate) struct Fred(fred::clients::Client);

impl Client for Fred {
    /// With a ttl it is an acquire, else a release.
    type Command = (Held, Option<u64>);

    async fn connect(address: &str) -> Outcome<Option<Self>> {
        let config = Config { fail_fast: true, ..Config::from_url(address)? };
        let connection = ConnectionConfig {
            connection_timeout: Duration::from_secs(1),
            internal_command_timeout: Duration::from_secs(1),
            max_command_attempts: 1,
            tcp: TcpConfig { nodelay: Some(true), ..TcpConfig::default() },
            ..ConnectionConfig::default()
        };
        let client = fred::clients::Client::new(config, None, Some(connection), None);
        Ok(client.init().await.is_ok().then_some(Self(client)))
    }

    fn set(held: &Held, ttl: u64) -> Self::Command {
        (held.clone(), Some(ttl))
    }

    fn delete(held: Held) -> Self::Command {
        (held, None)
    }

    async fn call(self, (held, ttl): Self::Command) -> bool {
        if let Some(ttl) = ttl {
            let expires = i64::try_from(ttl).ok().map(Expiration::PX);
            let answer = self.0.set(held.key, held.token, expires, Some(SetOptions::NX), false);
            return matches!(answer.await, Ok(FredValue::String(ok)) if &*ok == "OK");
        }
        let arguments: Vec<FredValue> = vec![
            FredValue::from_static_str(&RELEASE_SHA1),
            FredValue::from_static_str("1"),
            held.key.into(),
            held.token.into(),
        ];
        let command = CustomCommand::new_static("EVALSHA", ClusterHash::FirstKey, false);
        let answer = self.0.custom_raw(command, arguments).await;
        matches!(answer, Ok(Resp3Frame::Number { data: 1, .. }))
    }
}

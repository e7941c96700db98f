//! redis-rs by hand: one multiplexed connection to each node, the same commands as quorate.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo,
    Value,
};

use super::{Background, Contestant, RELEASE_SHA1, fan, token};
use crate::Outcome;

pub(crate) struct BareRedis {
    nodes: Vec<Option<MultiplexedConnection>>,
    ttl: Duration,
    background: Background,
}

pub(crate) struct Held {
    key: String,
    token: String,
}

impl Contestant for BareRedis {
    type Held = Held;

    async fn connect(addresses: Vec<String>, ttl: Duration) -> Outcome<Self> {
        // The settings of quorate-redis: no response timeout, a long queue, TCP_NODELAY.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(Duration::from_secs(1)))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        let mut nodes = Vec::new();
        for address in addresses {
            let info: ConnectionInfo = address.as_str().into_connection_info()?;
            let tcp = info.tcp_settings().clone().set_nodelay(true);
            let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
            let info = info.set_tcp_settings(tcp).set_redis_settings(bare);
            let client = Client::open(info)?;
            nodes.push(client.get_multiplexed_async_connection_with_config(&config).await.ok());
        }
        Ok(Self { nodes, ttl, background: Background::default() })
    }

    async fn acquire(&self, key: &str) -> Option<Held> {
        let held = Held { key: key.to_owned(), token: token()? };
        let mut command = redis::cmd("SET");
        let ttl = self.ttl.as_millis();
        command.arg(key).arg(&held.token).arg("NX").arg("PX").arg(u64::try_from(ttl).ok()?);
        if self.round(command).await {
            return Some(held);
        }
        self.release(held).await;
        None
    }

    /// Sent on the same connections, directly after the acquire.
    async fn release(&self, held: Held) -> bool {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&*RELEASE_SHA1).arg(1).arg(held.key).arg(held.token);
        self.round(command).await
    }

    async fn close(&self, bound: Duration) -> usize {
        self.background.settle(bound).await
    }
}

impl BareRedis {
    async fn round(&self, command: Cmd) -> bool {
        let command = Arc::new(command);
        let calls = self.nodes.iter().map(|node| call(node.clone(), Arc::clone(&command)));
        fan::quorum(&self.background, calls).await
    }
}

async fn call(node: Option<MultiplexedConnection>, command: Arc<Cmd>) -> bool {
    let Some(mut connection) = node else {
        return false;
    };
    matches!(connection.send_packed_command(&command).await, Ok(Value::Okay | Value::Int(1)))
}

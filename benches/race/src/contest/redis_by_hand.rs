//! redis-rs by hand: one multiplexed connection to each node.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, Value,
};

use super::RELEASE_SHA1;
use super::by_hand::{Client, Held};
use crate::Outcome;

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

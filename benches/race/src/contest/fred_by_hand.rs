//! fred by hand: one client for each node.
//!
//! `SET` goes through fred's own method: fred sends each custom command in a separate write.

use std::time::Duration;

use fred::interfaces::{ClientLike, KeysInterface};
use fred::types::config::{Config, ConnectionConfig, TcpConfig};
use fred::types::{ClusterHash, CustomCommand, Expiration, Resp3Frame, SetOptions, Value};

use super::RELEASE_SHA1;
use super::by_hand::{Client, Held};
use crate::Outcome;

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
            return matches!(answer.await, Ok(Value::String(ok)) if &*ok == "OK");
        }
        let arguments: Vec<Value> = vec![
            Value::from_static_str(&RELEASE_SHA1),
            Value::from_static_str("1"),
            held.key.into(),
            held.token.into(),
        ];
        let command = CustomCommand::new_static("EVALSHA", ClusterHash::FirstKey, false);
        let answer = self.0.custom_raw(command, arguments).await;
        matches!(answer, Ok(Resp3Frame::Number { data: 1, .. }))
    }
}

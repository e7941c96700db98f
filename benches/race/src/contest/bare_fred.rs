//! fred by hand: one client for each node, the same commands as quorate.
//!
//! `SET` goes through fred's own method: fred sends each custom command in a separate write.

use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::{ClientLike, KeysInterface};
use fred::types::config::{Config, ConnectionConfig, TcpConfig};
use fred::types::{ClusterHash, CustomCommand, Expiration, Resp3Frame, SetOptions, Value};

use super::{Background, Contestant, RELEASE_SHA1, fan, token};
use crate::Outcome;

pub(crate) struct BareFred {
    nodes: Vec<Option<Client>>,
    ttl: Duration,
    background: Background,
}

#[derive(Clone)]
pub(crate) struct Held {
    key: String,
    token: String,
}

impl Contestant for BareFred {
    type Held = Held;

    async fn connect(addresses: Vec<String>, ttl: Duration) -> Outcome<Self> {
        let mut nodes = Vec::new();
        for address in addresses {
            let config = Config { fail_fast: true, ..Config::from_url(&address)? };
            let connection = ConnectionConfig {
                connection_timeout: Duration::from_secs(1),
                internal_command_timeout: Duration::from_secs(1),
                max_command_attempts: 1,
                tcp: TcpConfig { nodelay: Some(true), ..TcpConfig::default() },
                ..ConnectionConfig::default()
            };
            let client = Client::new(config, None, Some(connection), None);
            nodes.push(client.init().await.is_ok().then_some(client));
        }
        Ok(Self { nodes, ttl, background: Background::default() })
    }

    async fn acquire(&self, key: &str) -> Option<Held> {
        let held = Held { key: key.to_owned(), token: token()? };
        let ttl = i64::try_from(self.ttl.as_millis()).ok()?;
        let calls = self.nodes.iter().map(|node| set(node.clone(), held.clone(), ttl));
        if fan::quorum(&self.background, calls).await {
            return Some(held);
        }
        self.release(held).await;
        None
    }

    /// Sent on the same connections, directly after the acquire.
    async fn release(&self, held: Held) -> bool {
        let calls = self.nodes.iter().map(|node| delete(node.clone(), held.clone()));
        fan::quorum(&self.background, calls).await
    }

    async fn close(&self, bound: Duration) -> usize {
        self.background.settle(bound).await
    }
}

async fn set(node: Option<Client>, held: Held, ttl: i64) -> bool {
    let Some(client) = node else {
        return false;
    };
    let expires = Some(Expiration::PX(ttl));
    let answer = client.set(held.key, held.token, expires, Some(SetOptions::NX), false);
    matches!(answer.await, Ok(Value::String(ok)) if &*ok == "OK")
}

async fn delete(node: Option<Client>, held: Held) -> bool {
    let Some(client) = node else {
        return false;
    };
    let arguments: Vec<Value> = vec![
        Value::from_static_str(&RELEASE_SHA1),
        Value::from_static_str("1"),
        held.key.into(),
        held.token.into(),
    ];
    let command = CustomCommand::new_static("EVALSHA", ClusterHash::FirstKey, false);
    let answer = client.custom_raw(command, arguments).await;
    matches!(answer, Ok(Resp3Frame::Number { data: 1, .. }))
}

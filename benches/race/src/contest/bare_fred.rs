//! fred by hand: one client for each node, the same commands.

use std::time::Duration;

use fred::clients::Client;
use fred::interfaces::ClientLike;
use fred::types::config::{Config, ConnectionConfig, TcpConfig};
use fred::types::{ClusterHash, CustomCommand, Resp3Frame, Value};
use quorate_core::protocol::RELEASE;

use super::{Background, Contestant, fan, token};
use crate::Outcome;

pub(crate) struct BareFred {
    nodes: Vec<Option<Client>>,
    ttl: Duration,
    background: Background,
}

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
        let arguments: Vec<Value> = vec![
            key.into(),
            held.token.as_str().into(),
            Value::from_static_str("NX"),
            Value::from_static_str("PX"),
            self.ttl.as_millis().to_string().into(),
        ];
        if self.round("SET", arguments).await {
            return Some(held);
        }
        self.release(held).await;
        None
    }

    /// On the same connections, so behind the acquire.
    async fn release(&self, held: Held) -> bool {
        let arguments = vec![
            Value::from_static_str(RELEASE.sha1()),
            Value::from_static_str("1"),
            held.key.into(),
            held.token.into(),
        ];
        self.round("EVALSHA", arguments).await
    }

    async fn settle(&self, bound: Duration) -> usize {
        self.background.settle(bound).await
    }
}

impl BareFred {
    async fn round(&self, command: &'static str, arguments: Vec<Value>) -> bool {
        let calls = self.nodes.iter().map(|node| call(node.clone(), command, arguments.clone()));
        fan::quorum(&self.background, calls).await
    }
}

async fn call(node: Option<Client>, command: &'static str, arguments: Vec<Value>) -> bool {
    let Some(client) = node else {
        return false;
    };
    let command = CustomCommand::new_static(command, ClusterHash::FirstKey, false);
    match client.custom_raw(command, arguments).await {
        Ok(Resp3Frame::SimpleString { data, .. }) => &data[..] == b"OK",
        Ok(Resp3Frame::Number { data, .. }) => data == 1,
        _ => false,
    }
}

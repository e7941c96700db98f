//! The primary of a Sentinel group: which address it has is asked at each connect.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream};
use quorate_core::{BackendError, BackendErrorKind};
use quorate_protocol::{Command, ConnectError, Connection as _, Value, error_of_reply};
use redis::{Client, ConnectionAddr, ConnectionInfo};
use tokio::time::timeout;

use crate::address::{IntoClient, refused};
use crate::connection::RedisConnection;
use crate::server::Server;

/// A group of servers whose sentinels say which of them is the primary.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    name: String,
    sentinels: Vec<Server>,
}

/// Reads the address of a primary, of which the host is the name of its group, and those of the sentinels.
pub(crate) fn read(
    primary: &str,
    sentinels: impl IntoIterator<Item = impl IntoClient>,
) -> Result<(ConnectionInfo, Group), ConnectError> {
    let url =
        if primary.contains("://") { primary.to_owned() } else { format!("redis://{primary}") };
    let info = url.as_str().into_client()?.get_connection_info().clone();
    let (ConnectionAddr::Tcp(name, _) | ConnectionAddr::TcpTls { host: name, .. }) = info.addr()
    else {
        return Err(ConnectError::invalid(&url, "the primary of a group has no socket"));
    };
    if redis::parse_redis_url(&url).is_some_and(|url| url.port().is_some()) {
        let reason = "the host is the name of a group, and its sentinels know the port";
        return Err(ConnectError::invalid(&url, reason));
    }
    let name = name.clone();
    let sentinels: Vec<Server> =
        sentinels.into_iter().map(Server::new).collect::<Result<_, _>>()?;
    if sentinels.is_empty() {
        return Err(ConnectError::invalid(&url, "a group has one sentinel at least"));
    }
    Ok((info, Group { name, sentinels }))
}

impl Group {
    /// The name of a node: that of its group and of its first sentinel, since most groups are called the same, and its
    /// database.
    pub(crate) fn node_name(&self, database: i64) -> String {
        let sentinel = self.sentinels.first().map_or("", |sentinel| &sentinel.name);
        let database = if database == 0 { String::new() } else { format!("/{database}") };
        format!("{}@{sentinel}{database}", self.name)
    }

    /// The address of the primary as each sentinel knows it, with the place of the sentinel in the list, as they answer: one that is
    /// silent delays none. Each has half of `limit`, since there is a primary to connect to.
    pub(crate) fn primaries(
        &self,
        limit: Duration,
    ) -> impl Stream<Item = (usize, Result<(String, u16), BackendError>)> + Unpin {
        let asked =
            |(place, sentinel)| async move { (place, self.primary(sentinel, limit / 2).await) };
        self.sentinels.iter().enumerate().map(asked).collect::<FuturesUnordered<_>>()
    }

    async fn primary(
        &self,
        sentinel: &Server,
        limit: Duration,
    ) -> Result<(String, u16), BackendError> {
        let asked = timeout(limit, self.ask(sentinel)).await.unwrap_or_else(|_| {
            let text = format!("no reply within {limit:?}");
            Err(BackendError::new(BackendErrorKind::TimedOut, text))
        });
        asked.map_err(|error| {
            // What is wrong with a sentinel ends no request: another one may know the primary.
            let text = format!("sentinel {}: {error}", sentinel.name);
            BackendError::new(BackendErrorKind::Connection, text)
        })
    }

    async fn ask(&self, sentinel: &Server) -> Result<(String, u16), BackendError> {
        let connection = sentinel.open(sentinel.clients().await?, drop).await?;
        let command = Command::new("SENTINEL", 40 + self.name.len());
        let command = command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let nonsense = || BackendError::new(BackendErrorKind::Protocol, "the reply is no address");
        match ask(&connection, command).await? {
            Value::Nil => {
                let text = format!("it knows no group {:?}", self.name);
                Err(BackendError::new(BackendErrorKind::Other, text))
            }
            Value::List(parts) => match &parts[..] {
                [Value::Text(host), Value::Text(port)] => {
                    let port = std::str::from_utf8(port).ok().and_then(|port| port.parse().ok());
                    let host = String::from_utf8(host.clone()).ok();
                    host.zip(port).ok_or_else(nonsense)
                }
                _ => Err(nonsense()),
            },
            _ => Err(nonsense()),
        }
    }
}

/// Refuses a server that is no primary: a sentinel may not have heard of the failover yet.
pub(crate) async fn check_role(connection: &RedisConnection) -> Result<(), BackendError> {
    match ask(connection, Command::new("ROLE", 0)).await? {
        Value::List(parts) if parts.first().is_some_and(|role| is_text(role, b"master")) => Ok(()),
        _ => {
            let text = "the server that the sentinels name is no primary";
            Err(BackendError::new(BackendErrorKind::ReadOnly, text))
        }
    }
}

fn is_text(value: &Value, text: &[u8]) -> bool {
    matches!(value, Value::Text(found) if found == text)
}

/// The reply to one command.
async fn ask(connection: &RedisConnection, command: Command) -> Result<Value, BackendError> {
    match connection.send(vec![command]).await.pop().transpose()? {
        Some(Value::Error(text)) => Err(error_of_reply(&text)),
        Some(reply) => Ok(reply),
        None => Err(BackendError::new(BackendErrorKind::Protocol, "there is no reply")),
    }
}

/// The client with another place.
pub(crate) fn moved(client: &Client, host: &str, port: u16) -> Result<Client, ConnectError> {
    let info = client.get_connection_info().clone();
    let addr = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
            host: host.to_owned(),
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    };
    Client::open(info.set_addr(addr)).map_err(|error| refused(&format!("{host}:{port}"), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENTINELS: [&str; 1] = ["redis://10.0.0.1:26379"];

    #[test]
    fn the_host_of_a_primary_is_the_name_of_its_group() {
        for (primary, name) in [
            ("orders", "orders@10.0.0.1:26379"),
            ("redis://orders", "orders@10.0.0.1:26379"),
            ("redis://locker:hunter2@My_Orders-1/2", "My_Orders-1@10.0.0.1:26379/2"),
            ("locker:hunter2@orders", "orders@10.0.0.1:26379"),
        ] {
            let (info, group) = read(primary, SENTINELS).unwrap();
            assert_eq!(group.node_name(info.redis_settings().db()), name);
        }
    }

    #[test]
    fn a6_what_is_no_group_is_refused_and_shows_no_secret() {
        for (primary, why) in [
            ("redis://:hunter2@orders:6379", "the host is the name of a group"),
            ("unix:///run/redis.sock?pass=hunter2", "has no socket"),
            ("redis://ann@orders", "a user needs a password"),
        ] {
            let error = read(primary, SENTINELS).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("hunter2"), "{error}");
        }
        let none = read("orders", [""; 0]).unwrap_err().to_string();
        assert!(none.ends_with("a group has one sentinel at least"), "{none}");
        assert!(read("orders", ["redis-sentinel://10.0.0.1"]).is_err());
    }

    #[test]
    fn a_client_moves_and_keeps_all_else() {
        let client = Client::open("redis://ann:pw@orders/2").unwrap();
        let moved = moved(&client, "::1", 7000).unwrap();
        let info = moved.get_connection_info();
        assert_eq!(info.addr(), &ConnectionAddr::Tcp("::1".to_owned(), 7000));
        assert_eq!((info.redis_settings().db(), info.redis_settings().password()), (2, Some("pw")));
    }
}

//! The primary of a Sentinel group: which address it has is asked at each connect.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, Stream};
use quorate_core::{BackendError, BackendErrorKind};
use quorate_protocol::{Command as _, ConnectError, Connection as _, Value, within};
use redis::{ConnectionAddr, ConnectionInfo};

use crate::address;
use crate::connection::{Packed, RedisConnection};
use crate::server::Server;

/// A group of servers whose sentinels say which of them is the primary.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    name: String,
    pub(crate) sentinels: Vec<Server>,
}

/// Splits the address of a group into that of its primary, which has the name of the group as its
/// host, and those of its sentinels. `None` for any other address.
pub(crate) fn split(address: &str) -> Result<Option<(String, Vec<String>)>, ConnectError> {
    let (scheme, rest) = address.split_once("://").unwrap_or_default();
    let scheme = scheme.to_ascii_lowercase();
    let Some(scheme) = scheme.strip_suffix("+sentinel") else { return Ok(None) };
    let (rest, fragment) = rest.split_at(rest.find('#').unwrap_or(rest.len()));
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let (login, place) = place.split_at(place.rfind('@').map_or(0, |at| at + 1));
    let (mut user, mut password) = ("", "");
    let mut is_known = true;
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("sentinel_username", text)) => user = text,
            Some(("sentinel_password", text)) => password = text,
            _ => is_known = false,
        }
    }
    let place = place.split_once('/').filter(|(_, group)| !group.is_empty());
    let (Some((hosts, group)), true) = (place, is_known && !parameters.contains('@')) else {
        let reason = "a group is written \
                      redis+sentinel://[[user]:password@]host[:port],…/GROUP[/database], \
                      with the parameters sentinel_username and sentinel_password; ? and # in a \
                      password are written %3F and %23";
        return Err(ConnectError::invalid(address, reason));
    };
    let sentinels = hosts.split(',').map(|host| {
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u32>().is_ok());
        let port = if has_port { "" } else { ":26379" };
        format!("{scheme}://{user}:{password}@{host}{port}{fragment}")
    });
    Ok(Some((format!("{scheme}://{login}{group}{fragment}"), sentinels.collect())))
}

impl Group {
    /// Reads the address of a primary, of which the host is the name of its group.
    pub(crate) fn read(
        primary: &str,
        sentinels: Vec<Server>,
    ) -> Result<(Self, ConnectionInfo), ConnectError> {
        let url =
            if primary.contains("://") { primary.to_owned() } else { format!("redis://{primary}") };
        let invalid = |reason: &str| ConnectError::invalid(&url, reason);
        let info = address::read(&url)?;
        let (ConnectionAddr::Tcp(name, _) | ConnectionAddr::TcpTls { host: name, .. }) =
            info.addr()
        else {
            return Err(invalid("the primary of a group has no socket"));
        };
        if redis::parse_redis_url(&url).is_some_and(|url| url.port().is_some()) {
            return Err(invalid(
                "the host is the name of a group, and its sentinels know the port",
            ));
        }
        if sentinels.is_empty() {
            return Err(invalid("a group has one sentinel at least"));
        }
        Ok((Self { name: name.clone(), sentinels }, info))
    }

    /// The name of a node: that of its group and of its first sentinel, since most groups are
    /// called the same, and its database.
    pub(crate) fn node_name(&self, database: i64) -> String {
        let sentinel = self.sentinels.first().map_or("", |sentinel| &sentinel.name);
        let database = if database == 0 { String::new() } else { format!("/{database}") };
        format!("{}@{sentinel}{database}", self.name)
    }

    /// The address of the primary as each sentinel knows it, with the place of the sentinel in the
    /// list, as they answer: one that is silent delays none. Each has half of `limit`, since there
    /// is a primary to connect to.
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
        within(limit, "reply", self.ask(sentinel, limit)).await.map_err(|error| {
            // What is wrong with a sentinel ends no request: another one may know the primary.
            let kind = match error.kind() {
                BackendErrorKind::Tls => BackendErrorKind::Tls,
                _ => BackendErrorKind::Connection,
            };
            BackendError::new(kind, format!("sentinel {}: {error}", sentinel.name))
        })
    }

    async fn ask(&self, sentinel: &Server, limit: Duration) -> Result<(String, u16), BackendError> {
        let connection = sentinel.open(sentinel.info(None), limit, drop).await?;
        let command = Packed::new("SENTINEL");
        let command = command.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let nonsense = || BackendError::new(BackendErrorKind::Protocol, "the reply is no address");
        match connection.ask(command).await? {
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
    match connection.ask(Packed::new("ROLE")).await? {
        Value::List(parts) if parts.first().is_some_and(|role| is_text(role, b"master")) => Ok(()),
        _ => {
            let text = "the server that the sentinels name is no primary";
            Err(BackendError::new(BackendErrorKind::ReadOnly, text))
        }
    }
}

/// Says what to do if the certificate of the primary does not have the name that the sentinels
/// know.
pub(crate) fn explain(error: BackendError, host: &str) -> BackendError {
    let text = error.to_string();
    // rustls, and OpenSSL.
    if !["not valid for", "mismatch"].iter().any(|word| text.contains(word)) {
        return error;
    }
    let why = "which the sentinels name: let it have that name too, or set resolve-hostnames and \
               announce-hostnames of the sentinels";
    let text = format!("the certificate of the primary does not have {host:?}, {why} ({text})");
    BackendError::new(error.kind(), text)
}

fn is_text(value: &Value, text: &[u8]) -> bool {
    matches!(value, Value::Text(found) if found == text)
}

/// The settings with another place.
pub(crate) fn moved(info: ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let addr = match info.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.set_addr(addr)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentinels(addresses: &[&str]) -> Vec<Server> {
        let server = |address: &&str| {
            let info = address::read(address).unwrap();
            Server::new(address::name(&info), info).unwrap()
        };
        addresses.iter().map(server).collect()
    }

    #[test]
    fn the_host_of_a_primary_is_the_name_of_its_group() {
        for (primary, name) in [
            ("orders", "orders@10.0.0.1:26379"),
            ("redis://orders", "orders@10.0.0.1:26379"),
            ("redis://locker:hunter2@My_Orders-1/2", "My_Orders-1@10.0.0.1:26379/2"),
            ("locker:hunter2@orders", "orders@10.0.0.1:26379"),
        ] {
            let (group, info) =
                Group::read(primary, sentinels(&["redis://10.0.0.1:26379"])).unwrap();
            assert_eq!(group.node_name(info.redis_settings().db()), name);
        }
        let none = Group::read("orders", Vec::new()).unwrap_err().to_string();
        assert!(none.ends_with("a group has one sentinel at least"), "{none}");
    }

    #[test]
    fn the_address_of_a_group_has_the_login_of_its_servers_and_that_of_its_sentinels() {
        for (address, primary, sentinels) in [
            ("redis+sentinel://s1/orders", "redis://orders", &["redis://:@s1:26379"][..]),
            (
                "Valkeys+Sentinel://ann:p%40,w@s1:7000,[::1],[::2]:7001/My_Orders-1/2\
                 ?sentinel_password=a+b&sentinel_username=bob#insecure",
                "valkeys://ann:p%40,w@My_Orders-1/2#insecure",
                &[
                    "valkeys://bob:a+b@s1:7000#insecure",
                    "valkeys://bob:a+b@[::1]:26379#insecure",
                    "valkeys://bob:a+b@[::2]:7001#insecure",
                ],
            ),
        ] {
            let (found, sentinels_found) = split(address).unwrap().unwrap();
            assert_eq!(found, primary);
            assert_eq!(sentinels_found, sentinels);
        }
        for other in
            ["redis://a+sentinel", "unix:///run/a+sentinel://b", "a", "redis-sentinel://a/b"]
        {
            assert_eq!(split(other), Ok(None), "{other}");
        }
    }

    #[test]
    fn settings_move_and_keep_all_else() {
        let info = address::read("redis://ann:pw@orders/2").unwrap();
        let info = moved(info, "::1".to_owned(), 7000);
        assert_eq!(info.addr(), &ConnectionAddr::Tcp("::1".to_owned(), 7000));
        assert_eq!((info.redis_settings().db(), info.redis_settings().password()), (2, Some("pw")));
    }
}

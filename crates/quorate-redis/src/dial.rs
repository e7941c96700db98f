//! How a node is connected to: a server, or the one that is the primary of its group.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use quorate_core::{BackendError, BackendErrorKind};
use quorate_protocol::{ConnectError, Credentials, Dial, Push, within};
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
use redis::TlsCertificates;
use redis::{Client, ConnectionInfo};

use crate::address;
use crate::connection::RedisConnection;
use crate::sentinel::{self, Group};
use crate::server::Server;

/// How to connect to one node through redis-rs.
///
/// `Debug` shows names and nothing secret.
#[derive(Clone, Debug)]
pub struct RedisDial {
    server: Server,
    /// Of a primary whose address its sentinels know.
    group: Option<Group>,
}

/// What a node can be made of: a URL, redis-rs' own settings, or a client.
///
/// URLs are those of redis-rs, and those of groups:
///
/// - `redis://[[user]:password@]host[:port][/database]`, or `valkey://`;
/// - `rediss://…`, or `valkeys://`, with the feature `tls-rustls` or `tls-native-tls`; with
///   `#insecure` behind it, the certificate is not checked;
/// - `redis+unix:///path[?db=..&user=..&pass=..]`, `valkey+unix://` or `unix://`;
/// - `redis+sentinel://[[user]:password@]host[:port],…/GROUP[/database]`, the primary of a group
///   that these [sentinels](crate::sentinel) know; `rediss+sentinel://…`, where the sentinels and
///   the servers are reached over TLS; the same with `valkey`. The login is that of the servers.
///   That of the sentinels, if they have one, is `?sentinel_username=..&sentinel_password=..`. The
///   port is 26379 by default.
///
/// Characters that mean something in a URL are percent-encoded in users and passwords. A part that
/// redis-rs would ignore is refused, such as `?db=3` of a host, or a user without a password (for
/// one that is `nopass`, any password will do). So is a space before or after the URL. A
/// `?protocol=` changes nothing: RESP3 is used where the server has it.
pub trait IntoDial {
    /// How to connect to the node. Does no I/O.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if a text is no address, or that of a cluster, or of TLS without a
    /// feature for it, or if there is a user without a password.
    fn into_dial(self) -> Result<RedisDial, ConnectError>;
}

impl IntoDial for &str {
    fn into_dial(self) -> Result<RedisDial, ConnectError> {
        match sentinel::split(self)? {
            Some((primary, sentinels)) => RedisDial::sentinel(primary, sentinels),
            None => address::read(self)?.into_dial(),
        }
    }
}

impl IntoDial for String {
    fn into_dial(self) -> Result<RedisDial, ConnectError> {
        self.as_str().into_dial()
    }
}

impl IntoDial for ConnectionInfo {
    fn into_dial(self) -> Result<RedisDial, ConnectError> {
        Ok(RedisDial { server: Server::new(address::name(&self), self)?, group: None })
    }
}

impl IntoDial for Client {
    fn into_dial(self) -> Result<RedisDial, ConnectError> {
        self.get_connection_info().clone().into_dial()
    }
}

impl<T: Clone + IntoDial> IntoDial for &T {
    fn into_dial(self) -> Result<RedisDial, ConnectError> {
        self.clone().into_dial()
    }
}

impl RedisDial {
    /// The primary of a group. See [`sentinel`](crate::sentinel).
    ///
    /// # Errors
    ///
    /// [`ConnectError`] names an address that cannot be used, without its secrets.
    pub fn sentinel(
        primary: impl AsRef<str>,
        sentinels: impl IntoIterator<Item = impl IntoDial>,
    ) -> Result<Self, ConnectError> {
        let sentinels = sentinels.into_iter().map(|sentinel| match sentinel.into_dial()? {
            Self { server, group: None } => Ok(server),
            group => Err(ConnectError::NotOneNode { address: group.server.name }),
        });
        let (group, info) = Group::read(primary.as_ref(), sentinels.collect::<Result<_, _>>()?)?;
        let server = Server::new(group.node_name(info.redis_settings().db()), info)?;
        Ok(Self { server, group: Some(group) })
    }

    /// What errors and events call the node: its address without secrets.
    #[must_use]
    pub fn node_name(&self) -> &str {
        &self.server.name
    }

    /// Uses these certificates for TLS, where it has none of its own: to the server, or the servers
    /// of the group and its sentinels.
    ///
    /// # Errors
    ///
    /// [`ConnectError::InvalidCertificates`] if they cannot be read.
    #[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
    pub fn with_certificates(mut self, of: &TlsCertificates) -> Result<Self, ConnectError> {
        let sentinels = self.group.iter_mut().flat_map(|group| &mut group.sentinels);
        for server in sentinels.chain([&mut self.server]) {
            server.certify(of)?;
        }
        Ok(self)
    }

    /// Makes a connection to the primary of a group, with these settings but for the address.
    ///
    /// It leads to the first address that a sentinel names, and whose server says that
    /// it is a primary. Other answers are not awaited: a silent sentinel costs no time. So it can
    /// lead to an old primary that lives on, if a sentinel beside it has not heard of the failover.
    async fn open(
        &self,
        group: &Group,
        info: ConnectionInfo,
        limit: Duration,
        push: impl Fn(Push) + Send + Sync + 'static,
    ) -> Result<RedisConnection, BackendError> {
        let push = Arc::new(push);
        let mut failures = Vec::new();
        let mut answers = group.primaries(limit);
        while let Some((place, found)) = answers.next().await {
            let push = Arc::clone(&push);
            let failure = match found {
                Ok((host, port)) => {
                    let opening = async {
                        let info = sentinel::moved(info.clone(), host.clone(), port);
                        let push = move |pushed| push(pushed);
                        let connection = self.server.open(info, limit / 2, push).await?;
                        sentinel::check_role(&connection).await?;
                        Ok(connection)
                    };
                    // A sentinel may name a primary that is gone. Then there is time to ask another
                    // one.
                    let opened = within(limit / 2, "connection", opening).await;
                    match opened.map_err(|error| sentinel::explain(error, &host)) {
                        Ok(connection) => return Ok(connection.of_primary(host, port)),
                        // Another sentinel changes nothing about a wrong password. It may have
                        // another name for the server.
                        Err(error) if error.kind().is_permanent() && !is_of_tls(&error) => {
                            return Err(error);
                        }
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            failures.push((place, failure));
        }
        failures.sort_by_key(|(place, _)| *place);
        // No waiting heals TLS, if that is what is wrong with all of them.
        let is_of_tls = failures.iter().all(|(_, failure)| is_of_tls(failure));
        let reasons: Vec<_> = failures.iter().map(|(_, failure)| failure.to_string()).collect();
        let kind = if is_of_tls { BackendErrorKind::Tls } else { BackendErrorKind::Connection };
        Err(BackendError::new(kind, reasons.join("; ")))
    }
}

fn is_of_tls(error: &BackendError) -> bool {
    error.kind() == BackendErrorKind::Tls
}

impl Dial for RedisDial {
    type Connection = RedisConnection;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.server.name)
    }

    async fn connect(
        &self,
        login: Option<&Credentials>,
        limit: Duration,
        push: impl Fn(Push) + Send + Sync + 'static,
    ) -> Result<RedisConnection, BackendError> {
        let info = self.server.info(login);
        match &self.group {
            Some(group) => self.open(group, info, limit, push).await,
            None => self.server.open(info, limit, push).await,
        }
    }

    fn can_move(&self) -> bool {
        self.group.is_some()
    }

    /// Whether more sentinels name another address than this one. A single sentinel may be cut off,
    /// and name the primary of before; the end of a connection loses all that is in flight on it
    /// (C3).
    async fn has_moved(&self, connection: &RedisConnection, limit: Duration) -> bool {
        let Some(group) = &self.group else { return false };
        let mut answers = group.primaries(limit);
        let (mut here, mut elsewhere, mut open) = (0, 0, group.sentinels.len());
        // Sentinels that are silent are awaited only while they can change the result.
        while here < elsewhere + open && elsewhere <= here + open {
            let Some((_, found)) = answers.next().await else { break };
            open -= 1;
            match found {
                Ok(primary) if connection.primary() == Some(&primary) => here += 1,
                Ok(_) => elsewhere += 1,
                Err(_) => {}
            }
        }
        elsewhere > here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_without_a_password_is_refused() {
        for text in [
            "redis://ann@a.example",
            "redis://ann:@a.example",
            "redis://ann@a.example/3?protocol=3",
            "unix:///run/redis.sock?user=ann",
        ] {
            let client = || Client::open(text).unwrap();
            for given in [
                text.into_dial(),
                client().into_dial(),
                (&client()).into_dial(),
                client().get_connection_info().clone().into_dial(),
            ] {
                let error = given.unwrap_err().to_string();
                assert!(
                    error.ends_with("a user needs a password; any will do for nopass"),
                    "{error}"
                );
            }
        }
        for text in [
            "redis://:hunter2@a.example",
            "redis://ann:x@a.example",
            "redis://@a.example",
            "unix:///run/redis.sock?user=ann&pass=",
            "unix:///run/redis.sock?user=",
        ] {
            assert!(text.into_dial().is_ok(), "{text}");
        }
    }

    #[test]
    fn the_address_of_a_group_is_that_of_a_node() {
        for (address, name) in [
            ("redis+sentinel://s1/orders", "orders@s1:26379"),
            ("redis+sentinel://:hunter2@s1:7000,s2/orders/2", "orders@s1:7000/2"),
            ("redis+sentinel://s1/orders?sentinel_password=hunter2", "orders@s1:26379"),
        ] {
            let dial = address.into_dial().unwrap();
            assert_eq!(dial.name(), name);
            assert!(!format!("{dial:?}").contains("hunter2"), "{dial:?}");
        }
        let inner = RedisDial::sentinel("orders", ["redis+sentinel://:hunter2@s1/orders"]);
        let inner = inner.unwrap_err();
        assert_eq!(inner, ConnectError::NotOneNode { address: "orders@s1:26379".to_owned() });
    }

    #[test]
    fn a6_what_is_no_group_is_refused_and_shows_no_secret() {
        let of_primary = |primary: &str| RedisDial::sentinel(primary, ["redis://10.0.0.1:26379"]);
        let all_of_it = "with the parameters sentinel_username and sentinel_password";
        for (dial, why) in [
            (of_primary("redis://:hunter2@orders:6379"), "the host is the name of a group"),
            (of_primary("unix:///run/redis.sock?pass=hunter2"), "has no socket"),
            (of_primary("redis://ann@orders"), "a user needs a password"),
            (RedisDial::sentinel("orders", ["redis-sentinel://10.0.0.1"]), "not one node"),
            ("redis+sentinel://:hunter2@s1:26379".into_dial(), all_of_it),
            ("redis+sentinel://:hunter2@s1/".into_dial(), all_of_it),
            ("redis+sentinel://:1?hunter2@s1/orders".into_dial(), all_of_it),
            ("redis+sentinel://:1#hunter2@s1/orders".into_dial(), all_of_it),
            ("redis+sentinel://s1/orders?password=hunter2".into_dial(), all_of_it),
            (
                "redis+sentinel://ann:12/orders?sentinel_password=hunter2@s1/x".into_dial(),
                all_of_it,
            ),
            ("redis+sentinel://:1/hunter2@s1/orders".into_dial(), "it is not a URL"),
            ("redis+sentinel://:hunter2@s1/orders/x".into_dial(), "Invalid database number"),
            ("redis+sentinel://:hunter2@s1,:x/orders".into_dial(), "it is not a URL"),
            ("redis+sentinel://:hunter2@s1/orders:6379".into_dial(), "the host is the name"),
            ("redis+sentinel://ann@s1/orders".into_dial(), "a user needs a password"),
            (
                "redis+sentinel://s1/orders?sentinel_username=ann".into_dial(),
                "a user needs a password",
            ),
            ("redis+sentinel://:hunter2@s1/orders#x".into_dial(), "known are the parameters"),
            ("unix+sentinel://:hunter2@s1/orders".into_dial(), "Missing path"),
            ("http+sentinel://:hunter2@s1/orders".into_dial(), "the scheme is unknown"),
        ] {
            let error = dial.unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(why) && !shown.contains("hunter2"), "{why}: {shown}");
        }
    }
}

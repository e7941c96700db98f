//! Addresses: what they become, and how they are told without their secrets.

use std::borrow::Cow;

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisError};

use crate::error::{ConnectError, NO_PASSWORD};

/// What a node can be made of: a URL, redis-rs' own types, or a client.
///
/// URLs are those of redis-rs, with a `?protocol=resp3` if wanted:
///
/// - `redis://[[user]:password@]host[:port][/database]`, or `valkey://`;
/// - `rediss://…`, or `valkeys://`, with the feature `tls-rustls` or `tls-native-tls`; with
///   `#insecure` behind it, the certificate is not checked;
/// - `redis+unix:///path[?db=..&user=..&pass=..]`, `valkey+unix://` or `unix://`.
///
/// Characters that mean something in a URL are percent-encoded in users and passwords. What redis-rs
/// would ignore is refused, such as `?db=3` of a host, or a user without a password: for one that is
/// `nopass`, any password will do. So is a space before or after the URL.
pub trait IntoClient {
    /// A client that has not connected yet.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if a text is no address, or that of a group of nodes, or of TLS without a
    /// feature for it, or if there is a user without a password.
    fn into_client(self) -> Result<Client, ConnectError>;
}

impl IntoClient for &str {
    fn into_client(self) -> Result<Client, ConnectError> {
        check(self)?;
        let client = Client::open(self).map_err(|error| refused(self, &error))?;
        with_a_login_that_works(client, || without_secrets(self))
    }
}

/// Whether there is a user without a password, which redis-rs leaves out.
pub(crate) fn lacks_password(info: &ConnectionInfo) -> bool {
    let login = info.redis_settings();
    login.password().is_none() && login.username().is_some_and(|user| !user.is_empty())
}

fn with_a_login_that_works(
    client: Client,
    address: impl FnOnce() -> String,
) -> Result<Client, ConnectError> {
    if lacks_password(client.get_connection_info()) {
        let reason = NO_PASSWORD.to_owned();
        return Err(ConnectError::InvalidAddress { address: address(), reason });
    }
    // No node has one: each attempt to connect would fail, and be made again.
    if client.get_connection_info().redis_settings().db() < 0 {
        let reason = "the number of a database is not negative".to_owned();
        return Err(ConnectError::InvalidAddress { address: address(), reason });
    }
    Ok(client)
}

/// Refuses what redis-rs would not read as it is meant, or would not say what is wrong with.
fn check(text: &str) -> Result<(), ConnectError> {
    // redis-rs drops them.
    if text.trim() != text || text.contains(char::is_control) {
        return Err(invalid(
            text.trim(),
            "there are spaces around it, or control characters in it",
        ));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err(invalid(text, "it has no scheme such as redis://"));
    };
    let address = || without_secrets(text);
    let scheme = scheme.to_ascii_lowercase();
    let kind = match scheme.as_str() {
        "redis" | "valkey" => Kind::Tcp,
        "rediss" | "valkeys" => Kind::Tls,
        "redis+unix" | "valkey+unix" | "unix" => Kind::Unix,
        _ if scheme.ends_with("-cluster") || scheme.ends_with("-sentinel") => {
            return Err(ConnectError::NotOneNode { address: address() });
        }
        _ => return Err(invalid(text, "the scheme is unknown")),
    };
    if has_more_than_is_read(kind, rest) {
        return Err(invalid(
            text,
            "known are the parameters protocol and, of a unix socket, db, user and pass; ? and # \
             in a password are written %3F and %23",
        ));
    }
    let before_path = rest.split('/').next().unwrap_or_default();
    match kind {
        Kind::Unix if before_path.contains('@') => {
            Err(invalid(text, "the login of a unix socket is written ?user=..&pass=.."))
        }
        Kind::Unix if !before_path.is_empty() => {
            Err(invalid(text, "the path of a unix socket begins right behind the two slashes"))
        }
        Kind::Tls if !HAS_TLS => Err(ConnectError::MissingFeature {
            address: address(),
            feature: "tls-rustls or tls-native-tls",
        }),
        _ => Ok(()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tcp,
    Tls,
    Unix,
}

/// Whether redis-rs would ignore a parameter, such as `?db=3` of a host, or what follows a `#`. The lock
/// would be in another place than the one that was meant.
fn has_more_than_is_read(kind: Kind, rest: &str) -> bool {
    let known: &[&str] = match kind {
        Kind::Unix => &["db", "user", "pass", "protocol"],
        Kind::Tcp | Kind::Tls => &["protocol"],
    };
    let (rest, fragment) = match rest.split_once('#') {
        Some((rest, fragment)) => (rest, Some(fragment)),
        None => (rest, None),
    };
    // Of TLS it is read, and refused if it is not known.
    let is_ignored = fragment.is_some() && kind != Kind::Tls;
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let mut others = query.split('&').filter(|part| !part.is_empty());
    is_ignored
        || others.any(|part| part.split('=').next().is_none_or(|name| !known.contains(&name)))
}

macro_rules! by_reference {
    ($($text:ty),+) => {$(
        impl IntoClient for $text {
            fn into_client(self) -> Result<Client, ConnectError> {
                AsRef::<str>::as_ref(&self).into_client()
            }
        }
    )+};
}

macro_rules! by_value {
    ($($address:ty),+) => {$(
        impl IntoClient for $address {
            fn into_client(self) -> Result<Client, ConnectError> {
                open(self)
            }
        }
    )+};
}

by_reference!(String, &String, &&str, Box<str>, Cow<'_, str>);
by_value!(ConnectionAddr, ConnectionInfo);

impl<T: Into<String>> IntoClient for (T, u16) {
    fn into_client(self) -> Result<Client, ConnectError> {
        open(self)
    }
}

impl IntoClient for Client {
    fn into_client(self) -> Result<Client, ConnectError> {
        let name = name(self.get_connection_info());
        with_a_login_that_works(self, || name)
    }
}

impl IntoClient for &Client {
    fn into_client(self) -> Result<Client, ConnectError> {
        self.clone().into_client()
    }
}

fn open(address: impl IntoConnectionInfo) -> Result<Client, ConnectError> {
    Client::open(address).map_err(|error| refused("", &error))?.into_client()
}

/// "Redis URL did not parse - InvalidClientConfig: detail": the detail quotes the address.
fn refused(address: &str, error: &RedisError) -> ConnectError {
    invalid(address, error.to_string().split(" - ").next().unwrap_or_default())
}

fn invalid(address: &str, reason: &str) -> ConnectError {
    ConnectError::InvalidAddress { address: without_secrets(address), reason: reason.to_owned() }
}

const HAS_TLS: bool = cfg!(any(feature = "tls-rustls", feature = "tls-native-tls"));

/// The name of a node: `host:port`, `host:port/database`, or the path of its socket.
pub(crate) fn name(info: &ConnectionInfo) -> String {
    let database = info.redis_settings().db();
    match info.addr() {
        ConnectionAddr::Unix(path) if database != 0 => {
            format!("{}?db={database}", path.display())
        }
        ConnectionAddr::Unix(path) => path.display().to_string(),
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            match database {
                0 => format!("{host}:{port}"),
                _ => format!("{host}:{port}/{database}"),
            }
        }
        address => address.to_string(),
    }
}

/// As much of a malformed address as cannot be a secret: scheme, host and port, or a path.
///
/// A password may hold any character here, since the text did not parse.
fn without_secrets(text: &str) -> String {
    const HIDDEN: &str = "…";
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest))
            if scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-')) =>
        {
            (&text[..scheme.len() + 3], rest)
        }
        Some(_) => return HIDDEN.to_owned(),
        None => ("", text),
    };
    if scheme.to_ascii_lowercase().contains("unix") {
        if !rest.starts_with('/') {
            return format!("{scheme}{HIDDEN}");
        }
        let path = rest.split('?').next().unwrap_or_default();
        return format!("{scheme}{path}");
    }
    let place = match rest.split_once('@') {
        Some((login, place)) if !login.contains(['/', '?', '#']) && !place.contains('@') => place,
        Some(_) => return format!("{scheme}{HIDDEN}"),
        None => rest,
    };
    let place = place.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !place.ends_with(']') => (host, Some(port)),
        _ => (place, None),
    };
    let plain = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
    match port {
        _ if !plain => format!("{scheme}{HIDDEN}"),
        None => format!("{scheme}{host}"),
        Some(port) if !host.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
            format!("{scheme}{host}:{port}")
        }
        Some(_) => format!("{scheme}{host}:{HIDDEN}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> (String, String) {
        match text.into_client().expect_err(text) {
            ConnectError::InvalidAddress { address, reason } => (address, reason),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn an_address_that_is_none_is_told_why() {
        const STRAY: &str = "there are spaces around it, or control characters in it";
        const NO_SCHEME: &str = "it has no scheme such as redis://";
        for (text, shown, why) in [
            ("", "", NO_SCHEME),
            ("10.0.0.1:6379", "10.0.0.1:6379", NO_SCHEME),
            ("unix:/run/redis.sock?database=3", "unix:", NO_SCHEME),
            ("http://10.0.0.1", "http://10.0.0.1", "the scheme is unknown"),
            ("x-redis://10.0.0.1", "x-redis://10.0.0.1", "the scheme is unknown"),
            ("redis://10.0.0.1:99999", "redis://10.0.0.1:99999", "Redis URL did not parse"),
            (" redis://10.0.0.1", "redis://10.0.0.1", STRAY),
            ("redis://10.0.0.1 ", "redis://10.0.0.1", STRAY),
            ("redis://10.0.0.1\n", "redis://10.0.0.1", STRAY),
            ("redis://10.0.\n0.1", "redis://10.0.\n0.1", STRAY),
            (
                "unix://ann:hunter2@localhost/run/redis.sock",
                "unix://…",
                "the login of a unix socket is written ?user=..&pass=..",
            ),
        ] {
            assert_eq!(refusal(text), (shown.to_owned(), why.to_owned()));
        }
    }

    #[test]
    fn a_group_of_nodes_is_no_node() {
        for (text, address) in [
            ("redis-sentinel://:hunter2@10.0.0.1:26379", "redis-sentinel://10.0.0.1:26379"),
            ("rediss-cluster://10.0.0.1?node=10.0.0.2", "rediss-cluster://10.0.0.1"),
        ] {
            let address = address.to_owned();
            assert_eq!(text.into_client().unwrap_err(), ConnectError::NotOneNode { address });
        }
    }

    #[test]
    fn tls_is_never_dropped_in_silence() {
        for text in ["rediss://:hunter2@10.0.0.1", "VALKEYS://:hunter2@10.0.0.1"] {
            match text.into_client() {
                Ok(client) => {
                    let address = client.get_connection_info().addr();
                    assert!(matches!(address, ConnectionAddr::TcpTls { insecure: false, .. }));
                }
                Err(error) => {
                    assert!(!HAS_TLS && matches!(error, ConnectError::MissingFeature { .. }));
                    assert!(!error.to_string().contains("hunter2"), "{error}");
                }
            }
        }
    }

    #[test]
    fn what_redis_rs_would_ignore_is_refused() {
        for text in [
            "redis://a.example?db=3",
            "redis://a.example/?protocol=3&db=3",
            "valkey://a.example/#3",
            "redis://ann:127?hunter2@a.example",
            "redis://ann:127#hunter2@a.example",
            "rediss://a.example?db=3",
            "redis+unix:///run/redis.sock?database=3",
            "unix:///run/redis.sock?password=hunter2",
            "unix:///run/redis.sock#3",
            "UNIX:///run/redis.sock?database=3",
        ] {
            let told = text.into_client().expect_err(text).to_string();
            assert!(told.contains("known are the parameters protocol"), "{told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
        assert!("redis://a.example/3?protocol=resp3".into_client().is_ok());
        assert!("redis://a.example?".into_client().is_ok());
        assert_eq!("rediss://a.example#insecure".into_client().is_ok(), HAS_TLS);
    }

    #[test]
    fn a_user_without_a_password_is_refused() {
        for text in [
            "redis://ann@a.example",
            "redis://ann:@a.example",
            "redis://ann@a.example/3?protocol=3",
            "unix:///run/redis.sock?user=ann",
        ] {
            let told = text.into_client().expect_err(text).to_string();
            assert!(told.ends_with("a user needs a password; any will do for nopass"), "{told}");
            let client = || Client::open(text).unwrap();
            for given in [
                client().into_client(),
                (&client()).into_client(),
                client().get_connection_info().clone().into_client(),
            ] {
                assert!(given.unwrap_err().to_string().contains("a user needs a password"));
            }
        }
        for text in [
            "redis://:hunter2@a.example",
            "redis://ann:x@a.example",
            "redis://@a.example",
            "unix:///run/redis.sock?user=ann&pass=",
            "unix:///run/redis.sock?user=",
        ] {
            assert!(text.into_client().is_ok(), "{text}");
        }
    }

    #[test]
    fn a_database_below_zero_is_refused() {
        for text in ["redis://a.example/-1", "unix:///run/redis.sock?db=-3"] {
            let told = text.into_client().expect_err(text).to_string();
            assert!(told.ends_with("the number of a database is not negative"), "{told}");
            let info = text.into_connection_info().unwrap();
            assert!(info.into_client().is_err(), "{text}");
        }
        assert!("redis://a.example/15".into_client().is_ok());
    }

    #[test]
    fn texts_of_all_kinds_are_addresses() {
        let text = "redis://10.0.0.1";
        let clients = [
            text.into_client(),
            (&text).into_client(),
            text.to_owned().into_client(),
            (&text.to_owned()).into_client(),
            Box::<str>::from(text).into_client(),
            Cow::Borrowed(text).into_client(),
        ];
        for client in clients {
            assert_eq!(name(client.unwrap().get_connection_info()), "10.0.0.1:6379");
        }
    }

    #[test]
    fn a6_a_name_is_the_address_without_user_and_password() {
        for (url, expected) in [
            ("redis://10.0.0.1", "10.0.0.1:6379"),
            ("redis://ann:hunter2@a.example:7000", "a.example:7000"),
            ("redis://:hunter2@a.example/3", "a.example:6379/3"),
            ("redis://[::1]:7000/0", "[::1]:7000"),
            ("redis+unix:///run/redis.sock?pass=hunter2", "/run/redis.sock"),
            ("unix:///run/redis.sock?db=2&user=ann&pass=hunter2", "/run/redis.sock?db=2"),
        ] {
            let client = url.into_client().unwrap();
            assert_eq!(name(client.get_connection_info()), expected);
        }
        let info = ("a.example", 7000).into_client().unwrap();
        assert_eq!(name(info.get_connection_info()), "a.example:7000");
    }

    #[test]
    fn a_bad_address_is_named() {
        for (text, expected) in [
            ("localhost:6379", "localhost:6379"),
            ("redis://a.example:7000/x", "redis://a.example:7000"),
            ("redis://[::1]:7000/x", "redis://[::1]:7000"),
            ("redis://[::1]/x", "redis://[::1]"),
            ("http://a.example", "http://a.example"),
            ("unix:///run/redis.sock?db=x", "unix:///run/redis.sock"),
            ("", ""),
        ] {
            let (address, reason) = refusal(text);
            assert_eq!(address, expected);
            assert!(!reason.is_empty());
        }
    }

    #[test]
    fn a6_a_bad_address_shows_no_secret() {
        for text in [
            "redis://:hunter2",
            "redis://:hunter2@/x",
            "redis://ann:hunter2@a.example:x",
            "redis://ann:hunter2@a.example/x",
            "redis://ann:hunter2@a.example/-1",
            "redis://ann:hun/ter2@a.example",
            "redis://ann:1/hunter2@a.example",
            "redis://ann:1@hunter2@a.example:x",
            "redis://:hunter2:6379",
            "redis:ann:hunter2@a.example/x",
            "hunter2 ://a.example",
            "ann:hunter2@a.example:7000",
            "unix:///run/redis.sock?db=x&pass=hunter2",
            "unix:/run/redis.sock?db=x&pass=hunter2",
            "redis://a.example/?protocol=hunter2",
            "redis+unix://:hunter2@/run/redis.sock",
            "unix://ann:hunter2@/run/redis.sock",
            "redis+unix://hunter2",
        ] {
            let error = text.into_client().expect_err(text);
            let told = format!("{error} {error:?}");
            assert!(!told.contains("hunter2") && !told.contains("ter2"), "{told}");
        }
    }
}

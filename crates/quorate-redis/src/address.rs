//! Addresses: what becomes a client of redis-rs, and how it is named without its secrets.

use quorate_protocol::{ConnectError, Scheme};
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisError};

/// What a node can be made of: a URL, redis-rs' own settings, or a client.
///
/// URLs are those of redis-rs:
///
/// - `redis://[[user]:password@]host[:port][/database]`, or `valkey://`;
/// - `rediss://…`, or `valkeys://`, with the feature `tls-rustls` or `tls-native-tls`; with
///   `#insecure` behind it, the certificate is not checked;
/// - `redis+unix:///path[?db=..&user=..&pass=..]`, `valkey+unix://` or `unix://`.
///
/// Characters that mean something in a URL are percent-encoded in users and passwords. A part that
/// redis-rs would ignore is refused, such as `?db=3` of a host, or a user without a password (for one
/// that is `nopass`, any password will do). So is a space before or after the URL. A `?protocol=`
/// changes nothing: RESP3 is used where the server has it.
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
        with_password(client, self)
    }
}

impl IntoClient for &&str {
    fn into_client(self) -> Result<Client, ConnectError> {
        (*self).into_client()
    }
}

impl IntoClient for String {
    fn into_client(self) -> Result<Client, ConnectError> {
        self.as_str().into_client()
    }
}

impl IntoClient for &String {
    fn into_client(self) -> Result<Client, ConnectError> {
        self.as_str().into_client()
    }
}

impl IntoClient for ConnectionInfo {
    fn into_client(self) -> Result<Client, ConnectError> {
        let address = name(&self);
        let client = Client::open(self);
        with_password(client.map_err(|error| refused(&address, &error))?, &address)
    }
}

impl IntoClient for Client {
    fn into_client(self) -> Result<Client, ConnectError> {
        let address = name(self.get_connection_info());
        with_password(self, &address)
    }
}

impl IntoClient for &Client {
    fn into_client(self) -> Result<Client, ConnectError> {
        self.clone().into_client()
    }
}

/// Why redis-rs refuses settings.
pub(crate) fn refused(address: &str, error: &RedisError) -> ConnectError {
    // "Invalid database number - InvalidClientConfig: detail": the detail may be a secret.
    let reason = error.to_string();
    ConnectError::invalid(address, reason.split(" - ").next().unwrap_or_default())
}

/// Refuses a user without a password: redis-rs would leave the user out, and commands would run as
/// another one.
fn with_password(client: Client, address: &str) -> Result<Client, ConnectError> {
    let login = client.get_connection_info().redis_settings();
    if login.password().is_none() && login.username().is_some_and(|user| !user.is_empty()) {
        let reason = "a user needs a password; any will do for nopass";
        return Err(ConnectError::invalid(address, reason));
    }
    Ok(client)
}

/// Refuses what redis-rs would not read as it is meant, or would not say what is wrong with.
fn check(address: &str) -> Result<(), ConnectError> {
    let (scheme, _) = Scheme::split(address)?;
    if scheme == Scheme::Tls && !HAS_TLS {
        let features = "tls-rustls or tls-native-tls";
        return Err(ConnectError::missing_feature(address, features));
    }
    let Some(url) = redis::parse_redis_url(address) else {
        return Err(ConnectError::invalid(address, "it is not a URL"));
    };
    // The lock would be in another place than the one that was meant.
    let is_known = |name: &str| match name {
        "protocol" => true,
        "db" | "user" | "pass" => scheme == Scheme::Unix,
        _ => false,
    };
    // With TLS, redis-rs reads the fragment.
    let has_more = url.fragment().is_some() && scheme != Scheme::Tls;
    if has_more || url.query_pairs().any(|(name, _)| !is_known(&name)) {
        let reason = "known are the parameters protocol and, of a unix socket, db, user and pass; \
                      ? and # in a password are written %3F and %23";
        return Err(ConnectError::invalid(address, reason));
    }
    if scheme == Scheme::Unix && !(url.username().is_empty() && url.password().is_none()) {
        let reason = "the login of a unix socket is written ?user=..&pass=..";
        return Err(ConnectError::invalid(address, reason));
    }
    Ok(())
}

const HAS_TLS: bool = cfg!(any(feature = "tls-rustls", feature = "tls-native-tls"));

/// The name of a node: `host:port`, `host:port/database`, or the path of its socket.
pub(crate) fn name(info: &ConnectionInfo) -> String {
    let database = info.redis_settings().db();
    match info.addr() {
        ConnectionAddr::Unix(path) if database != 0 => format!("{}?db={database}", path.display()),
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

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;

    fn refusal(text: &str) -> (String, String) {
        match text.into_client().expect_err(text) {
            ConnectError::InvalidAddress { address, reason } => (address, reason),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn an_address_that_is_none_is_named_with_the_reason() {
        for (text, shown, why) in [
            ("10.0.0.1:6379", "10.0.0.1:6379", "it has no scheme such as redis://"),
            ("http://10.0.0.1", "http://10.0.0.1", "the scheme is unknown"),
            ("redis://10.0.0.1:99999", "redis://10.0.0.1:99999", "it is not a URL"),
            ("redis://a.example:7000/x", "redis://a.example:7000/x", "Invalid database number"),
            ("unix:///run/redis.sock?db=x", "unix:///run/redis.sock", "Invalid database number"),
            ("unix://run/redis.sock", "unix://…", "Missing path"),
            (
                "unix://ann:hunter2@localhost/run/redis.sock",
                "unix://…",
                "the login of a unix socket is written ?user=..&pass=..",
            ),
        ] {
            assert_eq!(refusal(text), (shown.to_owned(), why.to_owned()));
        }
        let group = "redis-sentinel://:hunter2@10.0.0.1:26379".into_client();
        assert!(matches!(group, Err(ConnectError::NotOneNode { .. })));
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
            "redis+unix:///run/redis.sock?database=3",
            "unix:///run/redis.sock?password=hunter2",
            "unix:///run/redis.sock#3",
            "UNIX:///run/redis.sock?database=3",
        ] {
            let (address, reason) = refusal(text);
            assert!(reason.starts_with("known are the parameters protocol"), "{reason}");
            assert!(!address.contains("hunter2"), "{address}");
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
            let client = || Client::open(text).unwrap();
            for given in [
                text.into_client(),
                client().into_client(),
                (&client()).into_client(),
                client().get_connection_info().clone().into_client(),
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
            assert!(text.into_client().is_ok(), "{text}");
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
            assert_eq!(name(&url.into_connection_info().unwrap()), expected);
        }
    }

    #[test]
    fn a6_a_bad_address_shows_no_secret() {
        for text in [
            "redis://:hunter2",
            "redis://:hunter2@/x",
            "redis://ann:hunter2@a.example:x",
            "redis://ann:hunter2@a.example/x",
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
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("hunter2") && !shown.contains("ter2"), "{shown}");
        }
    }
}

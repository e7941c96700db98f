//! Addresses: how one becomes settings of redis-rs, and how it is named without its secrets.

use quorate_protocol::{ConnectError, Scheme};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};

/// The settings that the URL of one server stands for.
///
/// Refuses what redis-rs would not read as it is meant, or would not say what is wrong with.
pub(crate) fn read(address: &str) -> Result<ConnectionInfo, ConnectError> {
    let invalid = |reason: &str| ConnectError::invalid(address, reason);
    let (scheme, _) = Scheme::split(address)?;
    if scheme == Scheme::Tls && !HAS_TLS {
        let features = "tls-rustls or tls-native-tls";
        return Err(ConnectError::missing_feature(address, features));
    }
    let url = redis::parse_redis_url(address).ok_or_else(|| invalid(NO_URL))?;
    // The lock would be in another place than the one that was meant.
    let is_known = |name: &str| match name {
        "protocol" => true,
        "db" | "user" | "pass" => scheme == Scheme::Unix,
        _ => false,
    };
    // With TLS, redis-rs reads the fragment.
    let has_more = url.fragment().is_some() && scheme != Scheme::Tls;
    if has_more || url.query_pairs().any(|(name, _)| !is_known(&name)) {
        return Err(invalid(
            "known are the parameters protocol and, of a unix socket, db, user and pass; \
             ? and # in a password are written %3F and %23",
        ));
    }
    if scheme == Scheme::Unix && !(url.username().is_empty() && url.password().is_none()) {
        return Err(invalid("the login of a unix socket is written ?user=..&pass=.."));
    }
    address.into_connection_info().map_err(|error| {
        // "Invalid database number - InvalidClientConfig: detail": the detail may be a secret.
        invalid(error.to_string().split(" - ").next().unwrap_or_default())
    })
}

const NO_URL: &str = "it is not a URL: ports end at 65535, IPv6 stands in [ ], and / ? and # in a \
                      password are written %2F %3F and %23";

const HAS_TLS: bool = cfg!(any(feature = "tls-rustls", feature = "tls-native-tls"));

/// The name of a node: `host:port`, `host:port/database`, or the path of its socket.
pub(crate) fn name(info: &ConnectionInfo) -> String {
    let (place, database) = match info.addr() {
        ConnectionAddr::Unix(path) => (path.display().to_string(), "?db="),
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            (format!("{host}:{port}"), "/")
        }
        address => (address.to_string(), "/"),
    };
    match info.redis_settings().db() {
        0 => place,
        number => format!("{place}{database}{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> (String, String) {
        match read(text).expect_err(text) {
            ConnectError::InvalidAddress { address, reason } => (address, reason),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn an_address_that_is_none_is_named_with_the_reason() {
        for (text, shown, why) in [
            ("10.0.0.1:6379", "10.0.0.1:6379", "it has no scheme such as redis://"),
            ("http://10.0.0.1", "http://10.0.0.1", "the scheme is unknown"),
            ("redis://10.0.0.1:99999", "redis://10.0.0.1:99999", NO_URL),
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
        let group = read("redis-sentinel://:hunter2@10.0.0.1:26379");
        assert!(matches!(group, Err(ConnectError::NotOneNode { .. })));
    }

    #[test]
    fn tls_is_never_dropped_in_silence() {
        for text in ["rediss://:hunter2@10.0.0.1", "VALKEYS://:hunter2@10.0.0.1"] {
            match read(text) {
                Ok(info) => {
                    assert!(matches!(info.addr(), ConnectionAddr::TcpTls { insecure: false, .. }));
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
        assert!(read("redis://a.example/3?protocol=resp3").is_ok());
        assert!(read("redis://a.example?").is_ok());
        assert_eq!(read("rediss://a.example#insecure").is_ok(), HAS_TLS);
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
            assert_eq!(name(&read(url).unwrap()), expected);
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
            let error = read(text).expect_err(text);
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("hunter2") && !shown.contains("ter2"), "{shown}");
        }
    }
}

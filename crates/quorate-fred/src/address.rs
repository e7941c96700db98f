//! Addresses: what is accepted, and what of them may be shown.

use fred::types::config::{Config, ServerConfig};

use crate::error::ConnectError;

/// A node's settings, and what it is called.
pub(crate) struct Address {
    pub(crate) name: String,
    pub(crate) config: Config,
}

/// Reads an address for [`connect`](crate::connect).
pub(crate) fn parse(text: &str) -> Result<Address, ConnectError> {
    let invalid = |reason: &str| ConnectError::InvalidAddress {
        address: redacted(text),
        reason: reason.to_owned(),
    };
    // They would be dropped.
    if text.trim() != text || text.contains(char::is_control) {
        return Err(ConnectError::InvalidAddress {
            address: redacted(text.trim()),
            reason: "there are spaces around it, or control characters in it".to_owned(),
        });
    }
    let (scheme, rest) =
        text.split_once("://").ok_or_else(|| invalid("it has no scheme such as redis://"))?;
    let scheme = scheme.to_ascii_lowercase();
    if scheme.ends_with("-cluster") || scheme.ends_with("-sentinel") {
        return Err(ConnectError::NotOneNode { address: redacted(text) });
    }
    // They would be ignored.
    if rest.contains(['?', '#']) {
        return Err(invalid(
            "parameters are not supported, and ? and # in a password are written %3F and %23",
        ));
    }
    let read = |url: &str| Config::from_url(url).map_err(|error| invalid(error.details()));
    // fred takes every unknown scheme for `redis`, and without a TLS feature `rediss` as well.
    let config = match scheme.as_str() {
        "redis" | "valkey" => read(text)?,
        "rediss" | "valkeys" if HAS_TLS => read(text)?,
        "rediss" | "valkeys" => return Err(missing(text, "tls-rustls or tls-native-tls")),
        #[cfg(feature = "unix-sockets")]
        "redis+unix" | "valkey+unix" | "unix" => {
            let (login, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            if path.is_empty() {
                return Err(invalid("it has no path"));
            }
            if !login.is_empty() && !login.ends_with('@') {
                return Err(invalid(
                    "before the path of a socket stands nothing, or a login and an @",
                ));
            }
            // A login without a host is no URL. The path is taken as it stands: fred would leave
            // it percent-encoded.
            let host = if login.ends_with('@') { "localhost" } else { "" };
            let path = path.into();
            Config {
                server: ServerConfig::Unix { path },
                ..read(&format!("redis+unix://{login}{host}/"))?
            }
        }
        #[cfg(not(feature = "unix-sockets"))]
        "redis+unix" | "valkey+unix" | "unix" => return Err(missing(text, "unix-sockets")),
        _ => return Err(invalid("the scheme is unknown")),
    };
    if lacks_password(&config) {
        return Err(invalid(NO_PASSWORD));
    }
    let name = name_of(&config.server, config.database)?;
    Ok(Address { name, config: with_tls_name(config) })
}

/// What is wrong with a login that fred would leave out: commands would run as another user.
pub(crate) const NO_PASSWORD: &str = "a user needs a password; any will do for nopass";

/// Whether there is a user without a password, which fred leaves out.
pub(crate) fn lacks_password(config: &Config) -> bool {
    config.password.is_none() && config.username.as_ref().is_some_and(|user| !user.is_empty())
}

/// An IPv6 address stands in brackets in a URL, and in a certificate it does not.
#[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
fn with_tls_name(mut config: Config) -> Config {
    if let ServerConfig::Centralized { server } = &mut config.server {
        let bare = server.host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let bare = bare.map(Into::into);
        server.tls_server_name = bare;
    }
    config
}

#[cfg(not(any(feature = "tls-native-tls", feature = "tls-rustls")))]
const fn with_tls_name(config: Config) -> Config {
    config
}

/// What errors call the node.
pub(crate) fn name_of(server: &ServerConfig, database: Option<u8>) -> Result<String, ConnectError> {
    let mut name = match server {
        ServerConfig::Centralized { server } => format!("{}:{}", server.host, server.port),
        #[cfg(feature = "unix-sockets")]
        ServerConfig::Unix { path } => path.display().to_string(),
        group => {
            let hosts = group.hosts();
            let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
            let address = hosts.join(",");
            return Err(ConnectError::NotOneNode { address });
        }
    };
    if let Some(number @ 1..) = database {
        name.push('/');
        name.push_str(&number.to_string());
    }
    Ok(name)
}

const HAS_TLS: bool = cfg!(any(feature = "tls-native-tls", feature = "tls-rustls"));

fn missing(text: &str, feature: &'static str) -> ConnectError {
    ConnectError::MissingFeature { address: redacted(text), feature }
}

/// What of an address can be shown even if it cannot be read: a password may hold any character.
fn redacted(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    let (login, host) = match rest.rsplit_once('@') {
        Some((_, host)) => ("…@", host),
        None => ("", rest),
    };
    let host = host.split(['?', '#']).next().unwrap_or_default();
    if scheme.contains("unix") && !host.starts_with('/') {
        return format!("{scheme}…");
    }
    // `user:password`, with the host forgotten.
    let host = match host.split_once(':') {
        Some((user, rest)) if !user.starts_with('[') && !starts_with_port(rest) => {
            format!("{user}:…")
        }
        _ => host.to_owned(),
    };
    format!("{scheme}{login}{host}")
}

fn starts_with_port(rest: &str) -> bool {
    let port = rest.split('/').next().unwrap_or_default();
    port.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        parse(text).map(|address| address.name).unwrap()
    }

    #[test]
    fn a_node_is_called_by_its_address_without_user_and_password() {
        assert_eq!(name("redis://localhost"), "localhost:6379");
        assert_eq!(name("valkey://10.0.0.1:7000/0"), "10.0.0.1:7000");
        assert_eq!(name("redis://:secret@host:1/3"), "host:1/3");
        assert_eq!(name("redis://user:s%2Fecret@[::1]:1"), "[::1]:1");
        assert_eq!(name("REDIS://localhost"), "localhost:6379");
    }

    #[test]
    fn what_fred_would_ignore_is_refused() {
        for address in [
            "localhost:6379",
            "http://localhost",
            "redis://localhost?db=3",
            "redis://localhost#insecure",
            "redis://localhost/three",
            "redis://localhost/256",
            "redis://",
            " redis://localhost",
            "redis://localhost ",
            "redis://localhost\n",
            "redis://local\nhost",
        ] {
            let error = parse(address).err().unwrap();
            assert!(matches!(error, ConnectError::InvalidAddress { .. }), "{error}");
        }
    }

    #[test]
    fn a_group_of_servers_is_no_node() {
        for address in [
            "redis-cluster://localhost:7000",
            "rediss-sentinel://:secret@localhost:26379",
            "redis-cluster://localhost:7000?node=other:7000",
        ] {
            let error = parse(address).err().unwrap();
            assert!(matches!(error, ConnectError::NotOneNode { .. }), "{error}");
        }
        let server = ServerConfig::new_clustered(vec![("a", 1), ("b", 2)]);
        assert!(name_of(&server, None).is_err());
    }

    #[cfg(not(any(feature = "tls-native-tls", feature = "tls-rustls")))]
    #[test]
    fn tls_is_never_dropped_in_silence() {
        let error = parse("rediss://:secret@localhost").err().unwrap();
        assert!(matches!(error, ConnectError::MissingFeature { .. }));
        assert!(!error.to_string().contains("secret"));
    }

    #[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
    #[test]
    fn tls_is_never_dropped_in_silence() {
        assert!(parse("rediss://localhost").unwrap().config.uses_tls());
    }

    #[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
    #[test]
    fn a_certificate_names_an_ipv6_address_without_brackets() {
        let tls_name = |text: &str| match parse(text).unwrap().config.server {
            ServerConfig::Centralized { server } => server.tls_server_name,
            other => panic!("{other:?}"),
        };
        assert_eq!(tls_name("rediss://[::1]:7000").as_deref(), Some("::1"));
        assert_eq!(tls_name("rediss://localhost").as_deref(), None, "the host itself");
    }

    #[cfg(feature = "unix-sockets")]
    #[test]
    fn a_unix_socket_is_called_by_its_path() {
        for scheme in ["redis+unix", "valkey+unix", "unix"] {
            assert_eq!(name(&format!("{scheme}:///run/my redis@/7.sock")), "/run/my redis@/7.sock");
            let address = parse(&format!("{scheme}://user:se%2Fcret@/run/redis.sock")).unwrap();
            assert_eq!(address.name, "/run/redis.sock");
            assert_eq!(address.config.password.as_deref(), Some("se/cret"));
            assert!(parse(&format!("{scheme}://redis.sock")).is_err());
        }
    }

    #[cfg(feature = "unix-sockets")]
    #[test]
    fn a_unix_socket_with_a_slash_too_few_is_refused_and_shows_no_password() {
        for text in [
            "redis+unix://run/redis.sock",
            "unix://localhost/run/redis.sock",
            "unix://ann:4711/run/redis.sock",
            "unix://ann:se/4711@run/redis.sock",
        ] {
            let told = parse(text).err().unwrap().to_string();
            assert!(told.contains("stands nothing, or a login"), "{told}");
            assert!(!told.contains("4711"), "{told}");
        }
        assert_eq!(name("unix://@/run/redis.sock"), "/run/redis.sock");
        for text in ["redis+unix://ann@/run/redis.sock", "unix://ann:@/run/redis.sock"] {
            assert!(parse(text).err().unwrap().to_string().contains(NO_PASSWORD));
        }
    }

    #[test]
    fn a_user_without_a_password_is_refused() {
        for text in ["redis://ann@localhost", "redis://ann:@localhost/3", "valkey://ann@[::1]:7000"]
        {
            assert!(parse(text).err().unwrap().to_string().ends_with(NO_PASSWORD));
            let config = Config::from_url(text).unwrap();
            let told = crate::FredBackend::new(config).unwrap_err().to_string();
            assert!(told.ends_with(NO_PASSWORD), "{told}");
        }
        for text in ["redis://:secret@localhost", "redis://ann:x@localhost", "redis://@localhost"] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a6_an_address_is_shown_without_its_password_however_broken_it_is() {
        for address in [
            "redis://user:secret@host:99999",
            "redis://user:se/secret@host:x",
            "redis://user:s?secret@host",
            "redis://user:s#secret@host",
            "redis://user:s@secret@host:x",
            "redis://user:secret",
            "redis://:secret",
            "user:secret@host",
            "user:secret",
            "http://user:secret@host",
            "redis://host?password=secret",
        ] {
            let error = parse(address).err().unwrap();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        }
        let shown = parse("redis://user:secret@host:99999").err().unwrap().to_string();
        assert!(shown.contains("redis://…@host:99999"), "{shown}");
    }
}

//! Addresses: which are accepted, and how a node is called.

use fred::types::config::{Config, ServerConfig};
use quorate_protocol::{ConnectError, Scheme};

/// Reads an address that [`connect`](crate::connect) takes.
pub(crate) fn parse(address: &str) -> Result<Config, ConnectError> {
    let (scheme, rest) = Scheme::split(address)?;
    let invalid = |reason: &str| ConnectError::invalid(address, reason);
    // fred would ignore them.
    if rest.contains(['?', '#']) {
        return Err(invalid(
            "parameters are not supported, and ? and # in a password are written %3F and %23",
        ));
    }
    if let Some(feature) = missing_feature(scheme, HAS_TLS, cfg!(feature = "unix-sockets")) {
        return Err(ConnectError::missing_feature(address, feature));
    }
    let config = match scheme {
        Scheme::Unix => unix(address, rest)?,
        Scheme::Tcp | Scheme::Tls => {
            Config::from_url(address).map_err(|error| invalid(error.details()))?
        }
    };
    if lacks_password(&config) {
        return Err(ConnectError::no_password(address));
    }
    Ok(with_tls_name(config))
}

const HAS_TLS: bool = cfg!(any(feature = "tls-native-tls", feature = "tls-rustls"));

/// The feature that an address needs and that is off. Without it, fred would send plain text.
const fn missing_feature(scheme: Scheme, has_tls: bool, has_unix: bool) -> Option<&'static str> {
    match scheme {
        Scheme::Tls if !has_tls => Some("tls-rustls or tls-native-tls"),
        Scheme::Unix if !has_unix => Some("unix-sockets"),
        _ => None,
    }
}

/// The address of a Unix socket: `unix://[login@]/path`.
///
/// A login without a host is no URL. The path is taken as it stands: fred would leave it
/// percent-encoded.
#[cfg(feature = "unix-sockets")]
fn unix(address: &str, rest: &str) -> Result<Config, ConnectError> {
    let invalid = |reason: &str| ConnectError::invalid(address, reason);
    let (login, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if path.is_empty() {
        return Err(invalid("it has no path"));
    }
    if !login.is_empty() && !login.ends_with('@') {
        return Err(invalid("before the path of a socket stands nothing, or a login and an @"));
    }
    let read = Config::from_url(&format!("redis://{login}localhost"));
    let read = read.map_err(|error| invalid(error.details()))?;
    Ok(Config { server: ServerConfig::Unix { path: path.into() }, ..read })
}

#[cfg(not(feature = "unix-sockets"))]
fn unix(address: &str, _: &str) -> Result<Config, ConnectError> {
    Err(ConnectError::missing_feature(address, "unix-sockets"))
}

/// Whether there is a user without a password, which fred leaves out.
pub(crate) fn lacks_password(config: &Config) -> bool {
    config.password.is_none() && config.username.as_ref().is_some_and(|user| !user.is_empty())
}

/// An IPv6 address stands in brackets in a URL, and without them in a certificate.
#[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
fn with_tls_name(mut config: Config) -> Config {
    if let ServerConfig::Centralized { server } = &mut config.server {
        let bare = server.host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        server.tls_server_name = bare.map(Into::into);
    }
    config
}

#[cfg(not(any(feature = "tls-native-tls", feature = "tls-rustls")))]
const fn with_tls_name(config: Config) -> Config {
    config
}

/// What errors call the node.
pub(crate) fn name_of(config: &Config) -> Result<String, ConnectError> {
    let place = match &config.server {
        ServerConfig::Centralized { server } => format!("{}:{}", server.host, server.port),
        #[cfg(feature = "unix-sockets")]
        ServerConfig::Unix { path } => path.display().to_string(),
        group => {
            let hosts: Vec<_> = group.hosts().iter().map(ToString::to_string).collect();
            return Err(ConnectError::NotOneNode { address: hosts.join(",") });
        }
    };
    Ok(match config.database {
        Some(number @ 1..) => format!("{place}/{number}"),
        _ => place,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        name_of(&parse(text).unwrap()).unwrap()
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
            "redis://localhost\n",
        ] {
            let error = parse(address).err().unwrap();
            assert!(matches!(error, ConnectError::InvalidAddress { .. }), "{error}");
        }
    }

    #[test]
    fn a_feature_that_is_off_is_named() {
        assert_eq!(missing_feature(Scheme::Tcp, false, false), None);
        assert_eq!(missing_feature(Scheme::Tls, true, false), None);
        assert_eq!(missing_feature(Scheme::Unix, false, true), None);
        let tls = missing_feature(Scheme::Tls, false, true);
        assert_eq!(tls, Some("tls-rustls or tls-native-tls"));
        assert_eq!(missing_feature(Scheme::Unix, true, false), Some("unix-sockets"));
    }

    #[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
    #[test]
    fn tls_is_never_dropped_in_silence() {
        assert!(parse("rediss://localhost").unwrap().uses_tls());
    }

    #[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
    #[test]
    fn a_certificate_names_an_ipv6_address_without_brackets() {
        let tls_name = |text: &str| match parse(text).unwrap().server {
            ServerConfig::Centralized { server } => server.tls_server_name,
            other => panic!("{other:?}"),
        };
        assert_eq!(tls_name("rediss://[::1]:7000").as_deref(), Some("::1"));
        assert_eq!(tls_name("rediss://localhost").as_deref(), None, "the host itself");
    }

    const NO_PASSWORD: &str = "a user needs a password; any will do for nopass";

    #[cfg(feature = "unix-sockets")]
    #[test]
    fn a_unix_socket_is_called_by_its_path() {
        for scheme in ["redis+unix", "valkey+unix", "unix"] {
            assert_eq!(name(&format!("{scheme}:///run/my redis@/7.sock")), "/run/my redis@/7.sock");
            let config = parse(&format!("{scheme}://user:se%2Fcret@/run/redis.sock")).unwrap();
            assert_eq!(name_of(&config).unwrap(), "/run/redis.sock");
            assert_eq!(config.username.as_deref(), Some("user"));
            assert_eq!(config.password.as_deref(), Some("se/cret"));
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
            "redis://user:s@secret@host:x",
            "redis://user:secret",
            "user:secret@host",
            "redis://host?password=secret",
        ] {
            let error = parse(address).err().unwrap();
            assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
        }
        let shown = parse("redis://user:secret@host:99999").err().unwrap().to_string();
        assert!(shown.contains("redis://…@host:99999"), "{shown}");
    }
}

//! Addresses of nodes: what every client takes, and how one is shown without its secrets.

/// An address that no node can be reached at, whatever the node does. It shows no password (A6).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text is no address, or says something that would be ignored.
    #[error("{address:?} is not the address of a node: {reason}")]
    InvalidAddress {
        /// The address, as far as it is certain to be no password.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The address needs a feature of the crate that is off.
    #[error("{address:?} needs the feature {feature}")]
    MissingFeature {
        /// The address without its password.
        address: String,
        /// The feature, or those of which one is needed.
        feature: &'static str,
    },
    /// The certificates for TLS, or the key, cannot be used.
    #[error("{reason}")]
    InvalidCertificates {
        /// What is wrong with them.
        reason: &'static str,
    },
    /// A cluster, or servers behind sentinels. Every lock needs *independent* nodes.
    #[error("{address:?} is not one node but a group of them")]
    NotOneNode {
        /// The address without its password.
        address: String,
    },
}

impl ConnectError {
    /// The error of an address that is none, with a `reason` without secrets.
    #[must_use]
    pub fn invalid(address: &str, reason: &str) -> Self {
        Self::InvalidAddress { address: without_secrets(address), reason: reason.to_owned() }
    }

    /// The error of a user without a password: clients leave such a user out, and commands would
    /// run as another one.
    #[must_use]
    pub fn no_password(address: &str) -> Self {
        Self::invalid(address, "a user needs a password; any will do for nopass")
    }

    /// The error of an address that needs `feature`.
    #[must_use]
    pub fn missing_feature(address: &str, feature: &'static str) -> Self {
        Self::MissingFeature { address: without_secrets(address), feature }
    }
}

/// How a node is reached, by the scheme of its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a client that lacks one has to say so")]
pub enum Scheme {
    /// `redis://` or `valkey://`.
    Tcp,
    /// `rediss://` or `valkeys://`.
    Tls,
    /// `redis+unix://`, `valkey+unix://` or `unix://`.
    Unix,
}

impl Scheme {
    /// Splits an address behind its scheme. Refuses what clients would drop in silence.
    ///
    /// # Errors
    ///
    /// The scheme is missing or unknown, the address is that of a group of servers, it is several
    /// addresses, or there are spaces around it or control characters in it.
    pub fn split(address: &str) -> Result<(Self, &str), ConnectError> {
        if address.trim() != address || address.contains(char::is_control) {
            let reason = "there are spaces around it, or control characters in it";
            return Err(ConnectError::invalid(address.trim(), reason));
        }
        let Some((scheme, rest)) = address.split_once("://") else {
            return Err(ConnectError::invalid(address, "it has no scheme such as redis://"));
        };
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "redis" | "valkey" => Self::Tcp,
            "rediss" | "valkeys" => Self::Tls,
            "redis+unix" | "valkey+unix" | "unix" => Self::Unix,
            group if group.ends_with("-cluster") || group.ends_with("sentinel") => {
                return Err(ConnectError::NotOneNode { address: without_secrets(address) });
            }
            _ => return Err(ConnectError::invalid(address, "the scheme is unknown")),
        };
        let place = rest.split('?').next().unwrap_or_default();
        let has_comma = place.rsplit('@').next().is_some_and(|host| host.contains(','));
        if place.contains("://") || (has_comma && scheme != Self::Unix) {
            let reason = "several addresses have spaces between them, and no commas";
            return Err(ConnectError::invalid(address, reason));
        }
        Ok((scheme, rest))
    }
}

/// Whether a text without a scheme looks like a host with its domain or its port: a password may
/// stand where addresses belong.
fn is_place(text: &str) -> bool {
    let is_of_place = |byte: u8| byte.is_ascii_alphanumeric() || b".:-_[]/@".contains(&byte);
    text.len() < 256 && text.contains(['.', ':']) && text.bytes().all(is_of_place)
}

/// What can be shown of an address that may be malformed: a password may hold any character.
#[must_use]
pub fn without_secrets(address: &str) -> String {
    let (scheme, rest) = match address.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(is_of_scheme) => {
            (&address[..scheme.len() + 3], rest)
        }
        Some(_) => return HIDDEN.to_owned(),
        None if is_place(address) => ("", address),
        None => return HIDDEN.to_owned(),
    };
    if scheme.to_ascii_lowercase().contains("unix") {
        let path = rest.split('?').next().unwrap_or_default();
        return format!("{scheme}{}", if path.starts_with('/') { path } else { HIDDEN });
    }
    let (login, place) = match rest.rsplit_once('@') {
        // A password in the query, or one with such a character.
        Some((before, _)) if before.contains(['?', '#']) => return format!("{scheme}{HIDDEN}"),
        Some((_, place)) => (HIDDEN, place),
        None => ("", rest),
    };
    let at = if login.is_empty() { "" } else { "@" };
    let place = place.split(['?', '#']).next().unwrap_or_default();
    match place.split_once(':') {
        // A user and a password whose host was forgotten.
        Some((host, port))
            if host.is_empty() || (!host.starts_with('[') && !starts_with_port(port)) =>
        {
            format!("{scheme}{login}{at}{host}:{HIDDEN}")
        }
        _ => format!("{scheme}{login}{at}{place}"),
    }
}

const fn is_of_scheme(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-')
}

fn starts_with_port(rest: &str) -> bool {
    let port = rest.split('/').next().unwrap_or_default();
    port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Stands where a secret may be.
const HIDDEN: &str = "…";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_has_two_names_or_more() {
        for (scheme, addresses) in [
            (Scheme::Tcp, ["redis://a", "VALKEY://a"]),
            (Scheme::Tls, ["rediss://a", "valkeys://a"]),
            (Scheme::Unix, ["unix://a", "redis+unix://a"]),
        ] {
            for address in addresses {
                assert_eq!(Scheme::split(address), Ok((scheme, "a")));
            }
        }
    }

    #[test]
    fn an_address_that_is_none_is_refused_with_the_reason() {
        for (address, shown, why) in [
            ("", "…", "no scheme"),
            ("hunter2", "…", "no scheme"),
            ("correct.horse!", "…", "no scheme"),
            ("a.example", "a.example", "no scheme"),
            ("a:6379", "a:6379", "no scheme"),
            ("http://a", "http://a", "unknown"),
            (" redis://a", "redis://a", "spaces"),
            ("redis://a,redis://b", "redis://a,redis://b", "no commas"),
            ("redis://a,b", "redis://a,b", "no commas"),
            ("redis://:s3cret@a:1,b:2", "redis://…@a:…", "no commas"),
            ("redis://:s3cret@a:1,redis://b", "redis://…@a:…", "no commas"),
            ("redis://a:1,redis://:s3cret@b:2", "redis://…@b:2", "no commas"),
            ("unix:///a,unix:///b", "unix:///a,unix:///b", "no commas"),
            ("redis://:s3cret@a\n", "redis://…@a", "spaces"),
            ("re dis://s3cret", "…", "unknown"),
        ] {
            let error = Scheme::split(address).unwrap_err();
            let ConnectError::InvalidAddress { address, reason } = &error else {
                panic!("{error}")
            };
            assert!(address == shown && reason.contains(why), "{error}");
        }
        for one in ["redis://:a,b@c", "unix:///run/a,b.sock", "unix:///a?pass=x://y,z"] {
            assert!(Scheme::split(one).is_ok(), "{one}");
        }
        for group in [
            "redis-cluster://:s3cret@a",
            "rediss-sentinel://:s3cret@a?node=b",
            "redis+Sentinel://:s3cret@a",
        ] {
            let error = Scheme::split(group).unwrap_err();
            assert!(matches!(error, ConnectError::NotOneNode { .. }), "{error}");
            assert!(error.to_string().contains("://…@a\""), "{error}");
        }
    }

    #[test]
    fn a6_an_address_is_shown_without_its_password_however_broken_it_is() {
        for (address, shown) in [
            ("redis://user:s3cret@host:99999", "redis://…@host:99999"),
            ("redis://user:se/s3cret@host:x", "redis://…@host:…"),
            ("redis://user:s?s3cret@host/3", "redis://…"),
            ("redis://user:s#s3cret@host", "redis://…"),
            ("redis://host?password=p@s3cret", "redis://…"),
            ("redis://host#p@s3cret", "redis://…"),
            ("redis://user:s@s3cret@host:1/2", "redis://…@host:1/2"),
            ("redis://:s3cret@[::1]:7000", "redis://…@[::1]:7000"),
            ("redis://user:s3cret", "redis://user:…"),
            ("redis://user:s3:cret", "redis://user:…"),
            ("redis://:s3cret", "redis://:…"),
            ("redis://:12345", "redis://:…"),
            ("user:s3cret@host", "…@host"),
            ("user:s3cret", "user:…"),
            ("redis://host?password=s3cret", "redis://host"),
            ("redis://host#s3cret", "redis://host"),
            ("unix:///run/my@redis.sock?pass=s3cret", "unix:///run/my@redis.sock"),
            ("UNIX://ann:s3cret@/run/redis.sock", "UNIX://…"),
            ("unix://s3cret", "unix://…"),
        ] {
            assert_eq!(without_secrets(address), shown);
        }
    }
}

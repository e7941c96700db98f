//! What cannot be connected to, and what fred's errors mean.

use fred::error::{Error, ErrorKind};
use quorate_core::{BackendError, BackendErrorKind};

/// An address that no node can be reached at, whatever the node does. It shows no password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is not one, or says something that would be ignored.
    #[error("{address:?} is not the address of a node: {reason}")]
    InvalidAddress {
        /// The address, as far as it is certain to be no password.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The address can be used with a feature of this crate only.
    #[error("{address:?} needs the feature {feature}")]
    MissingFeature {
        /// The address without its password.
        address: String,
        /// The feature, or those of which one is needed.
        feature: &'static str,
    },
    /// A cluster, or servers behind sentinels. Every lock needs *independent* nodes.
    #[error("{address:?} is not one node but a group of them")]
    NotOneNode {
        /// The address without its password, or the name of the client.
        address: String,
    },
}

/// The connection is gone, for `reason`.
pub(crate) fn lost(reason: &'static str) -> BackendError {
    BackendError::new(BackendErrorKind::Connection, reason)
}

/// Nothing has failed, as far as is known.
pub(crate) fn not_yet() -> BackendError {
    lost("there is no connection yet")
}

/// The connection has ended, and why is not known here.
pub(crate) fn ended() -> BackendError {
    lost("the connection has ended")
}

/// An error of fred's, which is kept as the source.
///
/// The source has our text: fred's own may repeat what was sent, a token or a password.
pub(crate) fn of_client(error: &Error) -> BackendError {
    let ours = told_by(error);
    let source = Error::new(error.kind().clone(), ours.to_string());
    ours.with_source(source)
}

fn told_by(error: &Error) -> BackendError {
    let details = error.details();
    let kind = match error.kind() {
        ErrorKind::IO => {
            return BackendError::new(BackendErrorKind::Connection, io_message(details));
        }
        ErrorKind::Timeout => BackendErrorKind::TimedOut,
        // As if the answer to `AUTH` had been nil.
        ErrorKind::Protocol if details == "Expected string." => {
            return lost("the node closed the connection before it answered the login");
        }
        ErrorKind::Protocol | ErrorKind::Parse => {
            let message = format!("the answer is none of Redis ({details})");
            return BackendError::new(BackendErrorKind::Protocol, message);
        }
        ErrorKind::Canceled | ErrorKind::Routing => BackendErrorKind::Connection,
        // What the node answered at login, or what made fred close the connection.
        _ if is_reply(details) => return BackendError::from_reply(details),
        ErrorKind::Auth => BackendErrorKind::Auth,
        ErrorKind::Cluster => BackendErrorKind::Cluster,
        #[cfg(any(feature = "tls-native-tls", feature = "tls-rustls"))]
        ErrorKind::Tls => BackendErrorKind::Connection,
        // "Failed to route command.", "Client is not initialized.", "channel closed".
        ErrorKind::Unknown => BackendErrorKind::Connection,
        _ => BackendErrorKind::Other,
    };
    BackendError::new(kind, details)
}

/// Whether the text begins as error answers do: `WRONGPASS …`.
fn is_reply(details: &str) -> bool {
    let word = details.split(' ').next().unwrap_or_default();
    word.len() > 2 && word.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// fred tells I/O errors in their `Debug` form: `Os { code: 111, …, message: "…" }`, or
/// `Custom { kind: …, error: … }` with an error of another library, which may quote this and that.
fn io_message(details: &str) -> &str {
    let field = if details.starts_with("Custom {") { ", error: " } else { ", message: " };
    let Some((_, told)) = details.split_once(field) else { return details };
    let told = told.strip_suffix(" }").unwrap_or(told);
    let quoted = told.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match quoted.unwrap_or(told) {
        // So the codec calls what was there of an answer when the connection ended.
        "bytes remaining on stream" => "the connection was lost in the middle of an answer",
        message => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BackendErrorKind as Kind;

    #[test]
    fn each_kind_of_fred_has_its_own_kind_and_keeps_the_text() {
        for (kind, details, expected) in [
            (ErrorKind::IO, "Connection closed.", Kind::Connection),
            (ErrorKind::Canceled, "Canceled.", Kind::Connection),
            (ErrorKind::Unknown, "Failed to route command.", Kind::Connection),
            (ErrorKind::Timeout, "Request timed out.", Kind::TimedOut),
            (ErrorKind::Protocol, "Invalid frame type.", Kind::Protocol),
            (ErrorKind::Auth, "WRONGPASS invalid username-password pair", Kind::Auth),
            (ErrorKind::Unknown, "ERR invalid password", Kind::Auth),
            (ErrorKind::Unknown, "LOADING Redis is loading the dataset", Kind::Loading),
            (ErrorKind::Unknown, "NOPERM no permissions", Kind::Permission),
            (ErrorKind::Cluster, "CLUSTERDOWN Hash slot not served", Kind::Cluster),
            (ErrorKind::Unknown, "DENIED Redis is running in protected mode", Kind::Other),
            (ErrorKind::Backpressure, "Max in-flight commands reached.", Kind::Other),
        ] {
            let error = of_client(&Error::new(kind, details));
            assert_eq!(error.kind(), expected, "{details}");
            assert!(error.to_string().contains(details), "{error}");
        }
    }

    #[test]
    fn a_node_error_has_its_client_error_as_source() {
        let reply = "ERR unknown command 'EVALSHA', with args beginning with: 'a' 's3cret'";
        let error = of_client(&Error::new(ErrorKind::Unknown, reply));
        let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
        let source: &Error = source.expect("an error of fred's");
        assert_eq!(source.kind(), &ErrorKind::Unknown);
        assert!(!format!("{source} {source:?} {error:?}").contains("s3cret"), "{source:?}");
    }

    #[test]
    fn an_error_inside_an_io_error_is_told_whole() {
        let told = |error: std::io::Error| of_client(&Error::from(error)).to_string();
        let other = "failed to lookup address information: Name or service not known";
        assert_eq!(told(std::io::Error::other(other)), other);
        // As rustls tells of a certificate.
        #[derive(Debug, thiserror::Error)]
        #[error("a certificate for another name")]
        struct NotValidForName {
            #[allow(dead_code, reason = "fred prints it")]
            expected: &'static str,
        }
        let named = NotValidForName { expected: "a.example" };
        let text = told(std::io::Error::new(std::io::ErrorKind::InvalidData, named));
        assert!(text.contains("NotValidForName") && text.contains("a.example"), "{text}");
    }

    #[test]
    fn an_io_error_is_told_in_words() {
        let error = std::io::Error::from_raw_os_error(111);
        let error = of_client(&Error::from(error));
        assert_eq!(error.kind(), Kind::Connection);
        assert!(!error.to_string().contains("Os {"), "{error}");
        let error = of_client(&Error::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe)));
        assert!(error.to_string().contains("BrokenPipe"), "{error}");
    }
}

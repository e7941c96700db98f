//! What the errors of fred mean.

use fred::error::{Error, ErrorKind};
use quorate_core::{BackendError, BackendErrorKind};
use quorate_protocol::{HUNG_UP, error_of_tls};

/// The error of a command or a connection, with that of fred as its source.
///
/// The source has our text: the one of fred may repeat what was sent, a token or a password (A6).
pub(crate) fn of_client(error: &Error) -> BackendError {
    let ours = told_by(error);
    let source = Error::new(error.kind().clone(), ours.to_string());
    ours.with_source(source)
}

/// Why a connection ended that has had no reply.
pub(crate) fn of_first_reply(error: &Error) -> BackendError {
    if !HANGS_UP.iter().any(|word| error.details().contains(word)) {
        return of_client(error);
    }
    of_client(&Error::new(error.kind().clone(), HUNG_UP))
}

/// Whether an error of a typed method is the server's reply.
///
/// fred gives these kinds to error replies, and `Unknown` to some errors of its own. It ends the
/// connection after `CLUSTERDOWN`.
pub(crate) fn is_reply(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Cluster => !error.details().starts_with("CLUSTERDOWN"),
        ErrorKind::Unknown => !OF_FRED.contains(&error.details()),
        ErrorKind::Auth
        | ErrorKind::Config
        | ErrorKind::InvalidArgument
        | ErrorKind::InvalidCommand => true,
        _ => false,
    }
}

fn told_by(error: &Error) -> BackendError {
    let details = error.details();
    let kind = match error.kind() {
        ErrorKind::IO => {
            let text = io_message(details);
            let refusal = error_of_tls(text);
            return refusal
                .unwrap_or_else(|| BackendError::new(BackendErrorKind::Connection, text));
        }
        ErrorKind::Protocol | ErrorKind::Parse => {
            // fred's text may repeat what was received (A6).
            let text = "the reply is none of Redis";
            return BackendError::new(BackendErrorKind::Protocol, text);
        }
        // The reply to the login, or the one after which fred ended the connection.
        ErrorKind::Cluster => return quorate_protocol::error_of_reply(details),
        _ if is_reply(error) => return quorate_protocol::error_of_reply(details),
        ErrorKind::Timeout => BackendErrorKind::TimedOut,
        _ => BackendErrorKind::Connection,
    };
    BackendError::new(kind, details)
}

/// The text of an I/O error, which fred keeps in its `Debug` form:
/// `Os { code: 111, …, message: "…" }`, or `Custom { kind: …, error: … }` with the error of
/// another library.
fn io_message(details: &str) -> &str {
    let field = if details.starts_with("Custom {") { ", error: " } else { ", message: " };
    let Some((_, told)) = details.split_once(field) else { return details };
    let told = told.strip_suffix(" }").unwrap_or(told);
    let quoted = told.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    quoted.unwrap_or(told)
}

/// What the texts of I/O errors contain if the peer hung up. The last two are of fred and of its
/// decoder.
const HANGS_UP: [&str; 6] = [
    "BrokenPipe",
    "ConnectionReset",
    "ConnectionAborted",
    "UnexpectedEof",
    "Connection closed",
    "bytes remaining on stream",
];

/// The errors of fred of the kind `Unknown`, once its task was dropped with the runtime.
const OF_FRED: [&str; 2] = ["Failed to send command to router.", "channel closed"];

#[cfg(test)]
mod tests {
    use super::*;
    use BackendErrorKind as Kind;

    #[test]
    fn each_error_of_fred_has_its_kind_and_keeps_its_text() {
        for (kind, details, expected) in [
            (ErrorKind::IO, "Connection closed.", Kind::Connection),
            (ErrorKind::Canceled, "Canceled.", Kind::Connection),
            (ErrorKind::Unknown, "Failed to send command to router.", Kind::Connection),
            (ErrorKind::Unknown, "channel closed", Kind::Connection),
            (ErrorKind::Timeout, "Request timed out.", Kind::TimedOut),
            (ErrorKind::Auth, "WRONGPASS invalid username-password pair", Kind::Auth),
            (ErrorKind::Unknown, "ERR invalid password", Kind::Auth),
            (ErrorKind::Unknown, "LOADING Redis is loading the dataset", Kind::Loading),
            (ErrorKind::Unknown, "NOPERM no permissions", Kind::Permission),
            (ErrorKind::Cluster, "CLUSTERDOWN Hash slot not served", Kind::Cluster),
            (ErrorKind::Unknown, "DENIED Redis is running in protected mode", Kind::Other),
        ] {
            let error = of_client(&Error::new(kind, details));
            assert_eq!(error.kind(), expected, "{details}");
            assert!(error.to_string().contains(details), "{error}");
        }
        let error = of_client(&Error::new(ErrorKind::Parse, "MapRes at [116, 48, 107]"));
        assert_eq!(error.kind(), Kind::Protocol);
        assert!(!format!("{error} {error:?}").contains("116"), "{error:?}");
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
    fn an_io_error_is_told_in_words() {
        let told = |error: std::io::Error| of_client(&Error::from(error)).to_string();
        let refused = told(std::io::Error::from_raw_os_error(111));
        assert!(refused.contains("refused") && !refused.contains("Os {"), "{refused}");
        let other = "failed to lookup address information: Name or service not known";
        assert_eq!(told(std::io::Error::other(other)), other);
        // As rustls reports a wrong certificate.
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
}

//! What an error reply of Redis or Valkey means (Q4).

use std::borrow::Cow;

use quorate_core::{BackendError, BackendErrorKind as Kind};

/// The error of a call that was answered with this error reply. Its first word (`READONLY …`)
/// decides the kind; after `ERR` and `QUORATEINFO`, the text behind it does.
///
/// A `WRONGTYPE` has one text, whichever command or script found it.
///
/// Two parts of the reply are removed: the arguments of the command, since they may contain the
/// token or a password, and the position in a script that Redis 6 adds, so that all versions give
/// the same text.
#[must_use]
pub fn error_of_reply(reply: &str) -> BackendError {
    let text = reply.split(", with args beginning with").next().unwrap_or_default();
    let text = without_script_position(text);
    let kind = kind_of(&text);
    if text.starts_with("CROSSSLOT") {
        return BackendError::new(kind, format!("{text} ({CROSSSLOT_HELP})"));
    }
    if kind == Kind::WrongType {
        return BackendError::new(kind, FOREIGN);
    }
    // The words are those of Redis 6 to 8 and Valkey, to a client and to a script; a user's name
    // has no spaces.
    let is_of_key = ["to access", "can't access"].iter().any(|phrase| text.contains(phrase));
    let error = BackendError::new(kind, text);
    if is_of_key { error.particular() } else { error }
}

/// Whether a connection failed because the server has no `HELLO`, or not RESP3: one before version
/// 6, or a proxy.
///
/// Valkey 9 asks for the login before it looks for the command, so `NOAUTH` may mean that, too.
#[must_use]
pub fn lacks_resp3(error: &BackendError) -> bool {
    let text = error.to_string();
    error.kind() == Kind::Script || text.contains("NOPROTO") || text.contains("NOAUTH")
}

/// The error of TLS with this `text`, if no waiting heals it: an authority that is not known, a
/// certificate for another name, none of the client's, or a peer that speaks no TLS.
///
/// The words are those of rustls 0.23, as `Display` and as `Debug`, and of OpenSSL 3: a client
/// passes on no more.
#[must_use]
pub fn error_of_tls(text: &str) -> Option<BackendError> {
    let contains = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if contains(&["NotValidYet", "not valid yet", "not yet valid"]) {
        // Waiting heals it.
        return None;
    }
    if contains(&["InvalidContentType", "wrong version number"]) {
        return Some(speaks_no_tls());
    }
    // What the peer says of us.
    let alerts = ["fatal alert: ", "AlertReceived(", "alert "].iter();
    let alert = alerts.filter_map(|start| text.split_once(start)).any(|(_, alert)| {
        let alert = alert.replace(' ', "").to_ascii_lowercase();
        REFUSALS.iter().any(|refusal| alert.starts_with(refusal))
    });
    // What we say of the peer.
    let refuses = contains(&[
        "invalid peer certificate",
        "InvalidCertificate(",
        "peer sent no certificates",
        "NoCertificatesPresented",
        "peer is incompatible",
        "PeerIncompatible(",
        "certificate verify failed",
    ]);
    (alert || refuses).then(|| BackendError::new(Kind::Tls, text))
}

/// The alerts of a peer that refuses our certificate, or all that we can speak.
const REFUSALS: [&str; 13] = [
    "accessdenied",
    "badcertificate",
    "certificateexpired",
    "certificaterequired",
    "certificaterevoked",
    "certificateunknown",
    "handshakefailure",
    "insufficientsecurity",
    "protocolversion",
    "unknownca",
    "unrecognisedname",
    "unrecognizedname",
    "unsupportedcertificate",
];

/// The error of a server that speaks no TLS.
pub(crate) fn speaks_no_tls() -> BackendError {
    BackendError::new(Kind::Tls, "the server speaks no TLS here: write redis:// for rediss://")
}

/// The text of a connection that ended without any reply: a server that turns a client away hangs
/// up at once, and its reason may get lost.
pub const HUNG_UP: &str = "the node closed the connection before it replied to anything: it may be \
                           at maxclients or in protected mode, expect TLS, or be no Redis";

/// The text of every `WRONGTYPE`, of which a script's has a position that means nothing to users.
const FOREIGN: &str = "WRONGTYPE the key is not a lock of quorate: another program has stored it";

/// The cause of `CROSSSLOT` in quorate's terms.
const CROSSSLOT_HELP: &str = "a node in cluster mode can lock one resource at a time, without a \
                              fencing token or a restart guard";

/// The kind of an error of our script that could not call INFO: this user may not, or no user may.
fn kind_of_info(reply: &str) -> Kind {
    let (_, cause) = reply.split_once(": ").unwrap_or_default();
    let cause = without_script_position(cause);
    let is_forbidden = cause.starts_with("NOPERM") || kind_of_text(&cause) == Kind::Permission;
    if is_forbidden { Kind::Permission } else { Kind::Script }
}

fn kind_of(reply: &str) -> Kind {
    match reply.split_ascii_whitespace().next().unwrap_or_default() {
        "NOAUTH" | "WRONGPASS" => Kind::Auth,
        "CLUSTERDOWN" | "MOVED" | "ASK" | "TRYAGAIN" => Kind::Cluster,
        "CROSSSLOT" => Kind::CrossSlot,
        "LOADING" | "BUSY" | "MASTERDOWN" => Kind::Loading,
        "MISCONF" | "NOREPLICAS" => Kind::Misconfigured,
        "OOM" => Kind::OutOfMemory,
        "NOPERM" => Kind::Permission,
        "NOPROTO" => Kind::Protocol,
        "READONLY" => Kind::ReadOnly,
        "NOSCRIPT" => Kind::Script,
        "WRONGTYPE" => Kind::WrongType,
        "QUORATEFENCE" => Kind::Fence,
        "QUORATEEVICTS" => Kind::Evicting,
        "QUORATEIDENTITY" => Kind::Identity,
        "QUORATEMAXTTL" => Kind::MaxTtl,
        "QUORATEINFO" => kind_of_info(reply),
        "ERR" => kind_of_text(reply),
        _ => Kind::Other,
    }
}

/// The kind of an error reply that begins with `ERR`. The texts differ between versions, also in
/// capital letters. These cover Redis 6 to 8 and Valkey 8.
fn kind_of_text(text: &str) -> Kind {
    let contains = |phrases: &[&str]| phrases.iter().any(|phrase| text.contains(phrase));
    if contains(&["The user executing the script", "ACL failure in script"]) {
        Kind::Permission
    } else if contains(&["nknown command", "nknown Redis command", "nknown subcommand"]) {
        Kind::Script
    } else if contains(&["invalid password", "AUTH"]) {
        Kind::Auth
    } else if contains(&["DB index", "SELECT is not allowed"]) {
        Kind::Database
    } else if contains(&["max number of clients"]) {
        Kind::Connection
    } else if contains(&["WRONGTYPE", "Key should be of string type"]) {
        Kind::WrongType
    } else {
        Kind::Other
    }
}

/// Removes from an error reply its position in a script. Redis 6 replies
///
/// `ERR Error running script (call to f_…): @user_script:17: @user_script: 17: -OOM …`
///
/// A script that handles the error of its own command gets this from one of the `@user_script` on.
fn without_script_position(reply: &str) -> Cow<'_, str> {
    let call =
        reply.strip_prefix("ERR Error running script (").and_then(|rest| rest.split_once("): "));
    let mut text = call.map_or(reply, |(_, text)| text);
    while let Some((_, rest)) =
        text.strip_prefix("@user_script:").and_then(|rest| rest.trim_start().split_once(": "))
    {
        text = rest;
    }
    if text.len() == reply.len() {
        return Cow::Borrowed(reply);
    }
    let text = text.strip_prefix('-').unwrap_or(text);
    let word = text.split(' ').next().unwrap_or_default();
    let is_word = word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    if is_word { Cow::Borrowed(text) } else { Cow::Owned(format!("ERR {text}")) }
}

/// The same error, with what follows from it in front.
pub(crate) fn because(what: &str, error: &BackendError) -> BackendError {
    BackendError::new(error.kind(), format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q4_an_error_answer_is_unknown_with_its_reason() {
        for (reply, kind) in [
            ("READONLY You can't write against a read only replica.", Kind::ReadOnly),
            ("LOADING Redis is loading the dataset in memory", Kind::Loading),
            ("MISCONF Redis is configured to save RDB snapshots", Kind::Misconfigured),
            ("OOM command not allowed when used memory > 'maxmemory'.", Kind::OutOfMemory),
            ("NOAUTH Authentication required.", Kind::Auth),
            ("WRONGPASS invalid username-password pair or user is disabled.", Kind::Auth),
            ("NOPERM this user has no permissions", Kind::Permission),
            ("WRONGTYPE Operation against a key", Kind::WrongType),
            // `DELEX` of Redis 8.4.
            ("ERR Key should be of string type if conditions are specified", Kind::WrongType),
            ("CLUSTERDOWN Hash slot not served", Kind::Cluster),
            ("ERR unknown command 'EVALSHA'", Kind::Script),
            ("ERR Unknown subcommand or wrong number of arguments", Kind::Script),
            ("ERR DB index is out of range", Kind::Database),
            ("ERR invalid DB index", Kind::Database),
            ("ERR SELECT is not allowed in cluster mode", Kind::Database),
            ("NOPROTO unsupported protocol version", Kind::Protocol),
            ("ERR The user executing the script can't run this command", Kind::Permission),
            ("ERR max number of clients reached", Kind::Connection),
            ("ERR AUTH <password> called without any password configured", Kind::Auth),
            ("QUORATEFENCE no number is left at quorate:fence:1", Kind::Fence),
            ("QUORATEMAXTTL its max_ttl is 60000 ms, not 10000 ms", Kind::MaxTtl),
            ("QUORATEEVICTS the node may evict keys", Kind::Evicting),
            ("QUORATEIDENTITY the node does not tell its run_id", Kind::Identity),
            ("QUORATEINFO the restart guard needs INFO: ERR not from scripts", Kind::Script),
            ("ERR ACL failure in script: User app has no permissions", Kind::Permission),
            ("ERR Unknown Redis command called from script script: 1f", Kind::Script),
            ("ERR Unknown command called from script", Kind::Script),
            ("", Kind::Other),
        ] {
            let error = error_of_reply(reply);
            assert_eq!(error.kind(), kind, "{reply}");
            let text = if kind == Kind::WrongType { FOREIGN } else { reply };
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn what_tls_refuses_is_permanent_and_a_connection_that_ends_is_not() {
        for text in [
            "invalid peer certificate: UnknownIssuer",
            "InvalidCertificate(UnknownIssuer)",
            "InvalidCertificate(NotValidForNameContext { expected: DnsName(\"a\") })",
            "received fatal alert: CertificateRequired",
            "AlertReceived(CertificateRequired)",
            "received fatal alert: HandshakeFailure",
            "received fatal alert: ProtocolVersion",
            "AlertReceived(UnknownCA)",
            "PeerIncompatible(ServerTlsVersionIsDisabledByOurConfig)",
            "error:0A000086:SSL routines:tls_process_server_certificate:certificate verify failed",
            "error:0A00045C:SSL routines:ssl3_read_bytes:tlsv13 alert certificate required",
            "error:0A000410:SSL routines:ssl3_read_bytes:ssl/tls alert handshake failure",
            "error:0A00042E:SSL routines:ssl3_read_bytes:tlsv1 alert protocol version",
        ] {
            let error = error_of_tls(text).expect(text);
            assert!(error.kind() == Kind::Tls && error.kind().is_permanent(), "{text}");
            assert_eq!(error.to_string(), text);
        }
        for text in [
            "received corrupt message of type InvalidContentType",
            "InvalidMessage(InvalidContentType)",
            "error:0A00010B:SSL routines:ssl3_get_record:wrong version number",
        ] {
            let error = error_of_tls(text).expect(text);
            assert!(error.to_string().contains("redis://"), "{error}");
        }
        for text in [
            "Connection refused (os error 111)",
            "invalid peer certificate: certificate not valid yet: verification time 1, not before \
             2",
            "InvalidCertificate(NotValidYetContext { time: 1, not_before: 2 })",
            "certificate verify failed: (certificate is not yet valid)",
            "tls handshake eof",
            "received fatal alert: InternalError",
            "AlertReceived(CloseNotify)",
            "peer closed connection without sending TLS close_notify",
        ] {
            assert!(error_of_tls(text).is_none(), "{text}");
        }
    }

    /// The texts of Redis 6.0.16 and 7.0.15, and of Valkey 8.0.1.
    #[test]
    fn q4_the_restart_guard_tells_a_user_who_may_not_from_a_node_that_cannot() {
        for (said, kind) in [
            ("@user_script: 3: The user executing the script can't run this", Kind::Permission),
            ("ERR The user executing the script can't run this command", Kind::Permission),
            ("ERR ACL failure in script: User blind has no permissions", Kind::Permission),
            ("@user_script: 3: Unknown Redis command called from Lua script", Kind::Script),
            ("ERR Unknown Redis command called from script", Kind::Script),
            ("no text", Kind::Script),
        ] {
            let reply = format!("QUORATEINFO the restart guard needs INFO: {said}");
            assert_eq!(error_of_reply(&reply).kind(), kind, "{said}");
        }
        let endless = "QUORATEINFO a: ".repeat(100_000);
        assert_eq!(error_of_reply(&endless).kind(), Kind::Script);
    }

    /// The texts of Redis 6.0.16: to a client, and to a script.
    #[test]
    fn q4_an_error_inside_a_script_is_the_same_with_every_version() {
        let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
        for (reply, kind) in [
            (oom, Kind::OutOfMemory),
            ("-READONLY You can't write against a read only replica.", Kind::ReadOnly),
            ("-NOREPLICAS Not enough good replicas to write.", Kind::Misconfigured),
            ("WRONGTYPE Operation against a key", Kind::WrongType),
        ] {
            let told = reply.strip_prefix('-').unwrap_or(reply);
            let told = if kind == Kind::WrongType { FOREIGN } else { told };
            for place in ["17: @user_script: 17", " 17"] {
                let inside = format!("@user_script:{place}: {reply}");
                let whole = format!("ERR Error running script (call to f_01b9): {inside}");
                for reply in [inside, whole] {
                    let error = error_of_reply(&reply);
                    assert_eq!((error.kind(), error.to_string().as_str()), (kind, told), "{reply}");
                }
            }
        }
        for (said, kind) in [
            ("The user executing the script can't run this command", Kind::Permission),
            ("Unknown Redis command called from Lua script", Kind::Script),
            ("attempt to compare nil with number", Kind::Other),
        ] {
            let error = error_of_reply(&format!("@user_script: 3: {said}"));
            assert_eq!((error.kind(), error.to_string()), (kind, format!("ERR {said}")));
        }
        // Since version 7 the position is at the end.
        for reply in ["OOM no room script: 01b9, on @user_script:17.", "@user_script", ""] {
            assert_eq!(error_of_reply(reply).to_string(), reply);
        }
    }

    /// The texts of Redis 6.0.16 and 7.0.15, and of Valkey 8.0.1: to a client, and to a script.
    #[test]
    fn a_command_that_may_not_run_differs_from_a_key_that_may_not_be_accessed() {
        for (reply, expected) in [
            (
                "NOPERM this user has no permissions to run the 'eval' command or its subcommand",
                true,
            ),
            ("NOPERM User access has no permissions to run the 'del' command", true),
            (
                "ERR ACL failure in script: User joe has no permissions to run the 'del' command",
                true,
            ),
            ("@user_script: 3: The user executing the script can't run this command", true),
            ("ERR unknown command 'DELIFEQ', with args beginning with: 'k'", true),
            ("@user_script: 3: Unknown Redis command called from Lua script", true),
            ("NOSCRIPT No matching script.", true),
            ("NOPERM No permissions to access a key", false),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                false,
            ),
            ("NOPERM User joe has no permissions to access the 'k' key", false),
            ("ERR ACL failure in script: No permissions to access a key", false),
            ("@user_script: 3: The user executing the script can't access at least one key", false),
            ("READONLY You can't write against a read only replica.", false),
            ("WRONGTYPE Operation against a key", false),
        ] {
            assert_eq!(error_of_reply(reply).is_lack(), expected, "{reply}");
        }
    }

    #[test]
    fn fenced_on_a_cluster_of_one_says_why() {
        let error = error_of_reply("CROSSSLOT Keys in request don't hash to the same slot");
        assert_eq!(error.kind(), Kind::CrossSlot);
        assert!(error.to_string().contains("without a fencing token"), "{error}");
    }

    #[test]
    fn a6_what_a_node_repeats_of_a_command_is_not_told() {
        let reply = "ERR unknown command 'EVALSHA', with args beginning with: 'a' 's3cret' ";
        let error = error_of_reply(reply);
        assert_eq!(error.to_string(), "ERR unknown command 'EVALSHA'");
        assert_eq!(error.kind(), Kind::Script);
    }
}

//! The error of a call: why a node's vote is unknown.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Why a node's vote is unknown.
///
/// Cheap to clone. Its text is the text of the node's or the client's error. A backend keeps passwords
/// and tokens out of it (A6).
#[derive(Clone, Debug)]
pub struct BackendError {
    kind: BackendErrorKind,
    message: Arc<str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
    not_sent: bool,
}

impl BackendError {
    /// Creates an error of `kind` with the text `message`.
    #[must_use]
    pub fn new(kind: BackendErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, message: message.into(), source: None, not_sent: false }
    }

    /// Adds the client's error as the source. Its text must not show secrets.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Marks the command as *not sent*: it has not left and never will.
    #[must_use]
    pub fn not_sent(mut self) -> Self {
        self.not_sent = true;
        self
    }

    /// Whether the command is certainly *not sent*. After any other error it may have been executed.
    #[must_use]
    pub const fn is_not_sent(&self) -> bool {
        self.not_sent
    }

    /// Creates the error for an error reply of Redis or Valkey. Its first word (`READONLY …`) decides
    /// the kind.
    ///
    /// Two parts of the reply are removed: the arguments of the command, since they may contain the
    /// token or a password, and the position in a script that Redis 6 adds, so that all versions give
    /// the same text.
    #[must_use]
    pub fn from_reply(reply: &str) -> Self {
        let text = reply.split(", with args beginning with").next().unwrap_or_default();
        let text = without_script_position(text);
        let kind = BackendErrorKind::of_word(&text);
        if text.starts_with("CROSSSLOT") {
            return Self::new(kind, format!("{text} ({CROSSSLOT_HELP})"));
        }
        Self::new(kind, text)
    }

    /// The kind of the error.
    #[must_use]
    pub const fn kind(&self) -> BackendErrorKind {
        self.kind
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// The cause of `CROSSSLOT` in quorate's terms.
const CROSSSLOT_HELP: &str = "a node in cluster mode can lock one resource at a time, without a \
                              fencing token or a restart guard";

/// The kind of a [`BackendError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// The password or the user name is wrong or missing (`NOAUTH`, `WRONGPASS`).
    Auth,
    /// The cluster node does not serve the key's slot (`CLUSTERDOWN`, `MOVED`, `CROSSSLOT`).
    Cluster,
    /// The connection could not be made, or has ended.
    Connection,
    /// The node may evict keys (`maxmemory-policy`), or its policy is unknown. Only with the
    /// [restart guard](crate::backend::RestartGuard).
    Evicting,
    /// The node's fencing number is at its maximum, or its key holds something else.
    Fence,
    /// The node is the same server as another node (Q6). With the
    /// [restart guard](crate::backend::RestartGuard) also: the node has no server id, or several servers
    /// reply under its address.
    Identity,
    /// The node is loading its data set (`LOADING`) or busy with a script (`BUSY`).
    Loading,
    /// The node has another `max_ttl` than the [restart guard](crate::backend::RestartGuard) of this
    /// manager.
    MaxTtl,
    /// The node accepts no writes because it cannot write to its disk (`MISCONF`).
    Misconfigured,
    /// The node is out of memory (`OOM`).
    OutOfMemory,
    /// The user may not run the command or access the key (`NOPERM`).
    Permission,
    /// The reply is not valid for the command. The server may not be Redis or Valkey.
    Protocol,
    /// The node may have forgotten locks, since it restarted, is new, or lost its data. It does not vote
    /// until `max_ttl` has passed. Only with the [restart guard](crate::backend::RestartGuard).
    Quarantined,
    /// The node is a replica (`READONLY`), or has too few replicas (`NOREPLICAS`).
    ReadOnly,
    /// The node lacks the command or cannot run the script, or the backend does not support the call.
    Script,
    /// The client's own timeout passed. The node timeout is not reported as an error.
    TimedOut,
    /// The key holds a value that is not a string, written by another program (`WRONGTYPE`).
    WrongType,
    /// Anything else.
    Other,
}

impl BackendErrorKind {
    /// Whether trying again is pointless until a person changes a setting of the node or the client.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        matches!(
            self,
            Self::Auth
                | Self::Evicting
                | Self::Fence
                | Self::Identity
                | Self::MaxTtl
                | Self::Permission
                | Self::Script
                | Self::WrongType
        )
    }

    /// The kind of an error of our script that could not call INFO: this user may not, or no user may.
    fn of_info(reply: &str) -> Self {
        let (_, cause) = reply.split_once(": ").unwrap_or_default();
        let cause = without_script_position(cause);
        let is_forbidden = cause.starts_with("NOPERM") || Self::of_text(&cause) == Self::Permission;
        if is_forbidden { Self::Permission } else { Self::Script }
    }

    fn of_word(reply: &str) -> Self {
        match reply.split_ascii_whitespace().next().unwrap_or_default() {
            "NOAUTH" | "WRONGPASS" => Self::Auth,
            "CLUSTERDOWN" | "MOVED" | "ASK" | "CROSSSLOT" | "TRYAGAIN" => Self::Cluster,
            "LOADING" | "BUSY" | "MASTERDOWN" => Self::Loading,
            "MISCONF" => Self::Misconfigured,
            "OOM" => Self::OutOfMemory,
            "NOPERM" => Self::Permission,
            "NOPROTO" => Self::Protocol,
            "READONLY" | "NOREPLICAS" => Self::ReadOnly,
            "NOSCRIPT" => Self::Script,
            "WRONGTYPE" => Self::WrongType,
            "QUORATEFENCE" => Self::Fence,
            "QUORATEEVICTS" => Self::Evicting,
            "QUORATEIDENTITY" => Self::Identity,
            "QUORATEMAXTTL" => Self::MaxTtl,
            "QUORATEINFO" => Self::of_info(reply),
            "ERR" => Self::of_text(reply),
            _ => Self::Other,
        }
    }

    /// The kind of an error reply that begins with `ERR`. The texts differ between versions, also in
    /// capital letters. These cover Redis 6 to 8 and Valkey 8.
    fn of_text(text: &str) -> Self {
        let contains = |phrases: &[&str]| phrases.iter().any(|phrase| text.contains(phrase));
        if contains(&["The user executing the script", "ACL failure in script"]) {
            Self::Permission
        } else if contains(&["nknown command", "nknown Redis command", "nknown subcommand"]) {
            Self::Script
        } else if contains(&["invalid password", "AUTH"]) {
            Self::Auth
        } else if contains(&["max number of clients"]) {
            Self::Connection
        } else if contains(&["WRONGTYPE"]) {
            Self::WrongType
        } else {
            Self::Other
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q4_an_error_answer_is_unknown_with_its_reason() {
        use BackendErrorKind as Kind;
        for (reply, kind) in [
            ("READONLY You can't write against a read only replica.", Kind::ReadOnly),
            ("LOADING Redis is loading the dataset in memory", Kind::Loading),
            ("MISCONF Redis is configured to save RDB snapshots", Kind::Misconfigured),
            ("OOM command not allowed when used memory > 'maxmemory'.", Kind::OutOfMemory),
            ("NOAUTH Authentication required.", Kind::Auth),
            ("WRONGPASS invalid username-password pair or user is disabled.", Kind::Auth),
            ("NOPERM this user has no permissions", Kind::Permission),
            ("WRONGTYPE Operation against a key", Kind::WrongType),
            ("CLUSTERDOWN Hash slot not served", Kind::Cluster),
            ("ERR unknown command 'EVALSHA'", Kind::Script),
            ("ERR Unknown subcommand or wrong number of arguments", Kind::Script),
            ("NOPROTO unsupported protocol version", Kind::Protocol),
            ("ERR The user executing the script can't run this command", Kind::Permission),
            ("ERR max number of clients reached", Kind::Connection),
            ("ERR AUTH <password> called without any password configured", Kind::Auth),
            ("QUORATEFENCE no number is left at quorate:fence:1", Kind::Fence),
            ("QUORATEMAXTTL its max_ttl is 60000 ms, not 10000 ms", Kind::MaxTtl),
            ("QUORATEEVICTS the node may evict keys", Kind::Evicting),
            ("QUORATEIDENTITY the node tells no run_id", Kind::Identity),
            ("QUORATEINFO the restart guard needs INFO: ERR not from scripts", Kind::Script),
            ("ERR ACL failure in script: User app has no permissions", Kind::Permission),
            ("ERR Unknown Redis command called from script script: 1f", Kind::Script),
            ("ERR Unknown command called from script", Kind::Script),
            ("", Kind::Other),
        ] {
            let error = BackendError::from_reply(reply);
            assert_eq!(error.kind(), kind, "{reply}");
            assert_eq!(error.to_string(), reply);
        }
    }

    /// The texts of Redis 6.0.16 and 7.0.15, and of Valkey 8.0.1.
    #[test]
    fn q4_the_restart_guard_tells_a_user_who_may_not_from_a_node_that_cannot() {
        use BackendErrorKind as Kind;
        for (said, kind) in [
            ("@user_script: 3: The user executing the script can't run this", Kind::Permission),
            ("ERR The user executing the script can't run this command", Kind::Permission),
            ("ERR ACL failure in script: User blind has no permissions", Kind::Permission),
            ("@user_script: 3: Unknown Redis command called from Lua script", Kind::Script),
            ("ERR Unknown Redis command called from script", Kind::Script),
            ("no text", Kind::Script),
        ] {
            let reply = format!("QUORATEINFO the restart guard needs INFO: {said}");
            assert_eq!(BackendError::from_reply(&reply).kind(), kind, "{said}");
        }
        let endless = "QUORATEINFO a: ".repeat(100_000);
        assert_eq!(BackendError::from_reply(&endless).kind(), Kind::Script);
    }

    /// The texts of Redis 6.0.16: to a client, and to a script.
    #[test]
    fn q4_an_error_inside_a_script_is_the_same_with_every_version() {
        use BackendErrorKind as Kind;
        let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
        for (reply, kind) in [
            (oom, Kind::OutOfMemory),
            ("-READONLY You can't write against a read only replica.", Kind::ReadOnly),
            ("-NOREPLICAS Not enough good replicas to write.", Kind::ReadOnly),
            ("WRONGTYPE Operation against a key", Kind::WrongType),
        ] {
            let told = reply.strip_prefix('-').unwrap_or(reply);
            for place in ["17: @user_script: 17", " 17"] {
                let inside = format!("@user_script:{place}: {reply}");
                let whole = format!("ERR Error running script (call to f_01b9): {inside}");
                for reply in [inside, whole] {
                    let error = BackendError::from_reply(&reply);
                    assert_eq!((error.kind(), error.to_string().as_str()), (kind, told), "{reply}");
                }
            }
        }
        for (said, kind) in [
            ("The user executing the script can't run this command", Kind::Permission),
            ("Unknown Redis command called from Lua script", Kind::Script),
            ("attempt to compare nil with number", Kind::Other),
        ] {
            let error = BackendError::from_reply(&format!("@user_script: 3: {said}"));
            assert_eq!((error.kind(), error.to_string()), (kind, format!("ERR {said}")));
        }
        // Since version 7 the position is at the end.
        for reply in ["OOM no room script: 01b9, on @user_script:17.", "@user_script", ""] {
            assert_eq!(BackendError::from_reply(reply).to_string(), reply);
        }
    }

    #[test]
    fn fenced_on_a_cluster_of_one_says_why() {
        let error =
            BackendError::from_reply("CROSSSLOT Keys in request don't hash to the same slot");
        assert_eq!(error.kind(), BackendErrorKind::Cluster);
        assert!(error.to_string().contains("without a fencing token"), "{error}");
    }

    #[test]
    fn only_an_error_that_says_so_is_of_a_command_that_was_not_sent() {
        let error = BackendError::new(BackendErrorKind::Connection, "refused");
        assert!(!error.is_not_sent());
        assert!(!BackendError::from_reply("OOM no room").is_not_sent());
        let error = error.not_sent();
        assert!(error.is_not_sent() && error.clone().is_not_sent());
        assert_eq!(error.to_string(), "refused");
    }

    #[test]
    fn a6_what_a_node_repeats_of_a_command_is_not_told() {
        let reply = "ERR unknown command 'EVALSHA', with args beginning with: 'a' 's3cret' ";
        let error = BackendError::from_reply(reply);
        assert_eq!(error.to_string(), "ERR unknown command 'EVALSHA'");
        assert_eq!(error.kind(), BackendErrorKind::Script);
    }
}

//! Why a node's vote is unknown.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Why a node's vote is unknown.
///
/// Cheap to clone. Its text shows what the node or the client said; a backend keeps passwords and
/// tokens out of it.
#[derive(Clone, Debug)]
pub struct BackendError {
    kind: BackendErrorKind,
    message: Arc<str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
    not_sent: bool,
}

impl BackendError {
    /// An error of `kind`, told in `message`.
    #[must_use]
    pub fn new(kind: BackendErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, message: message.into(), source: None, not_sent: false }
    }

    /// Keeps the error of the client underneath. Its text must not show secrets.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// States that the command was certainly not sent, and never will be.
    #[must_use]
    pub fn not_sent(mut self) -> Self {
        self.not_sent = true;
        self
    }

    /// Whether the command was certainly not sent. After any other error it may have been executed.
    #[must_use]
    pub const fn is_not_sent(&self) -> bool {
        self.not_sent
    }

    /// An error answer of a Redis or Valkey node, sorted by its first word (`READONLY …`).
    ///
    /// What a node repeats of the command is cut off: it may be the token, or a password. So is
    /// what Redis before version 7 puts before an error that came up inside a script, so that the
    /// same trouble is told in the same words.
    #[must_use]
    pub fn from_reply(reply: &str) -> Self {
        let told = reply.split(", with args beginning with").next().unwrap_or_default();
        let told = out_of_script(told);
        let kind = BackendErrorKind::of_word(&told);
        if told.starts_with("CROSSSLOT") {
            return Self::new(kind, format!("{told} ({CROSSSLOT_HELP})"));
        }
        Self::new(kind, told)
    }

    /// What went wrong.
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

/// What a bare `CROSSSLOT` does not say.
const CROSSSLOT_HELP: &str = "a node in cluster mode can lock one resource at a time, without a \
                              fencing token or a restart guard";

/// What kind of trouble a node is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// The password or the user name is wrong or missing (`NOAUTH`, `WRONGPASS`).
    Auth,
    /// A cluster node that serves no slots, or not this one (`CLUSTERDOWN`, `MOVED`, `CROSSSLOT`).
    Cluster,
    /// The connection could not be made, or broke.
    Connection,
    /// The node may evict keys by itself (`maxmemory-policy`), or does not tell whether. Only with
    /// the [restart guard](crate::backend::RestartGuard).
    Evicting,
    /// The number for fencing tokens is at its end, or what stands in its place is no number.
    Fence,
    /// The node does not tell which server it is, or several servers answer in its place in turn.
    /// Only with the [restart guard](crate::backend::RestartGuard).
    Identity,
    /// The node is reading its data set (`LOADING`) or busy with a script (`BUSY`).
    Loading,
    /// The node knows another `max_ttl` than the [restart guard](crate::backend::RestartGuard) of this manager.
    MaxTtl,
    /// The node cannot write to its disk and so refuses writes (`MISCONF`).
    Misconfigured,
    /// The node is out of memory (`OOM`).
    OutOfMemory,
    /// The user may not run the command or touch the key (`NOPERM`).
    Permission,
    /// The answer is not one that the protocol has. Perhaps this is no Redis at all.
    Protocol,
    /// The node may have forgotten locks, and does not vote for a while: it restarted, is new, or
    /// lost its data. Only with the [restart guard](crate::backend::RestartGuard).
    Quarantined,
    /// The node is a replica (`READONLY`), or has too few of them (`NOREPLICAS`).
    ReadOnly,
    /// The node does not know the command, or cannot run the script.
    Script,
    /// The client gave up waiting. (A deadline of quorate's own is not reported as an error.)
    TimedOut,
    /// A key holds something that is not a string: another program uses it (`WRONGTYPE`).
    WrongType,
    /// Anything else.
    Other,
}

impl BackendErrorKind {
    /// Whether trying again soon is pointless: somebody has to change something first.
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

    /// The kind where a script of ours could not read INFO: the user may not, or nobody may.
    fn of_info(reply: &str) -> Self {
        let (_, said) = reply.split_once(": ").unwrap_or_default();
        match Self::of_word(&out_of_script(said)) {
            Self::Permission => Self::Permission,
            _ => Self::Script,
        }
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

    /// The kind of an answer without a word of its own. The texts differ from version to version,
    /// in capital letters, too: what stands here is of Redis 6 to 8 and Valkey 8.
    fn of_text(text: &str) -> Self {
        let says = |phrases: &[&str]| phrases.iter().any(|phrase| text.contains(phrase));
        if says(&["The user executing the script", "ACL failure in script"]) {
            Self::Permission
        } else if says(&["nknown command", "nknown Redis command", "nknown subcommand"]) {
            Self::Script
        } else if says(&["invalid password", "AUTH"]) {
            Self::Auth
        } else if says(&["max number of clients"]) {
            Self::Connection
        } else if says(&["WRONGTYPE"]) {
            Self::WrongType
        } else {
            Self::Other
        }
    }
}

/// An error answer without where in a script it came up. A script that reads the error of its own
/// command is told the latter half of this:
///
/// `ERR Error running script (call to f_…): @user_script:17: @user_script: 17: -OOM …`
fn out_of_script(reply: &str) -> Cow<'_, str> {
    let call =
        reply.strip_prefix("ERR Error running script (").and_then(|rest| rest.split_once("): "));
    let mut told = call.map_or(reply, |(_, told)| told);
    while let Some((_, rest)) =
        told.strip_prefix("@user_script:").and_then(|rest| rest.trim_start().split_once(": "))
    {
        told = rest;
    }
    if told.len() == reply.len() {
        return Cow::Borrowed(reply);
    }
    let told = told.strip_prefix('-').unwrap_or(told);
    let word = told.split(' ').next().unwrap_or_default();
    let is_word = word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase());
    if is_word { Cow::Borrowed(told) } else { Cow::Owned(format!("ERR {told}")) }
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

    /// As Redis 6.0.16 and 7.0.15, and Valkey 8.0.1 told it.
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

    /// As Redis 6.0.16 told it: of a script, and to a script.
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
        // Since version 7 the place comes last.
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

//! The seam to nodes: what one node must be able to do, and how it fails.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::algorithm::fence::{FenceHint, FenceVote, FencingToken};
use crate::algorithm::lease::Ttl;
use crate::algorithm::quorum::Vote;
use crate::driver::Call;
use crate::places::{Place, Queue};
use crate::protocol;
use crate::resource::{Key, Token};
use crate::restarts::Quarantine;
use crate::runtime::BoxFuture;

/// What an operation is about: the keys, the token that signs the attempt, and the ttl.
///
/// Cheap to clone. `Debug` shows no token.
#[derive(Clone, Debug)]
pub struct Claim {
    keys: Arc<[Key]>,
    token: Token,
    ttl: Ttl,
}

impl Claim {
    /// A claim on all of `keys`. A claim on none would be granted by every node at any time.
    #[must_use]
    pub fn new(keys: impl Into<Arc<[Key]>>, token: Token, ttl: Ttl) -> Self {
        Self { keys: keys.into(), token, ttl }
    }

    /// The same keys and token with another ttl.
    #[must_use]
    pub fn with_ttl(&self, ttl: Ttl) -> Self {
        Self { keys: Arc::clone(&self.keys), token: self.token.clone(), ttl }
    }

    /// The keys, all of which are meant. No key stands there twice.
    #[must_use]
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The value that a node stores at each key.
    #[must_use]
    pub const fn token(&self) -> &Token {
        &self.token
    }

    /// How long the node keeps the keys.
    #[must_use]
    pub const fn ttl(&self) -> Ttl {
        self.ttl
    }
}

/// **One** independent node that keeps keys.
///
/// # Contract
///
/// `quorate-memory`'s `conformance` module is this contract as code: run it on every backend.
///
/// - *One node.* The algorithm spans nodes; a backend never does. Two nodes share no fate.
/// - *Atomic.* Each method takes effect at one moment, on all keys of the claim or on none.
/// - *Compare.* `extend` and `release` touch a key only while its value is the claim's token.
/// - *Own token.* `acquire` of keys that already hold the claim's token grants: the request was
///   sent twice, or its first answer was lost.
/// - *`Err` means unknown.* Only the node's word that the keys are taken (or not ours) is
///   [`Vote::Refused`]. An error answer, a lost connection, a timeout, a reply that makes no sense
///   is an `Err`: the operation may or may not have happened.
/// - *Once.* No method sends an acquire a second time by itself when the first is in doubt.
/// - *Relative time.* The node counts the ttl on its own clock from when it hears of it.
/// - *Patience.* A method may take as long as it likes: deadlines are the caller's, who goes on
///   waiting in the background after its own deadline. So a future should stay pending as long as
///   the command may still be carried out, not give up on a timeout of its own.
/// - *Drop.* Dropping a future may or may not stop the command, and disturbs no other call.
///
/// Calls of one claim come to one node one after the other: a release is first polled after the
/// acquire that it undoes has settled, or was given up after the cleanup bound. So a backend may
/// use several connections. Where one [keeps order](LockBackend::keeps_order), a release that is
/// carried comes without that wait.
#[async_trait]
pub trait LockBackend: fmt::Debug + Send + Sync + 'static {
    /// Takes all keys of the claim for its ttl, or none of them.
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError>;

    /// Makes all keys live for at least the claim's ttl from now, if all are ours. Never shortens.
    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError>;

    /// Removes those keys of the claim that are ours; granted if all of them were.
    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError>;

    /// What errors call this node: an address **without its password**. Without a name, a node is
    /// called by its place: `node 1` and so on.
    fn name(&self) -> Option<&str> {
        None
    }

    /// Tells which server this is, where the node can say it.
    fn identity(&self) -> Option<&dyn Identify> {
        None
    }

    /// Looks at keys without taking them, where the backend can.
    fn inspector(&self) -> Option<&dyn Inspect> {
        None
    }

    /// Tells who has a key, and when that changes, where the backend can.
    fn watcher(&self) -> Option<&dyn Watch> {
        None
    }

    /// Keeps those who wait for a key in order, where the backend can.
    fn queue(&self) -> Option<&dyn Queue> {
        None
    }

    /// Keeps numbers for fencing tokens, where the backend can.
    fn fencer(&self) -> Option<&dyn Fence> {
        None
    }

    /// Keeps from voting while the node may have forgotten, where the backend can.
    fn quarantine(&self) -> Option<&dyn Quarantine> {
        None
    }

    /// Whether calls that share a key reach the node in the order in which they set out: were first
    /// polled, or given to the [carrier](Self::carrier). It is asked once.
    ///
    /// Then the next waiter of a process asks the nodes right behind the release of the last holder,
    /// where it would otherwise wait for their answer: a lock changes hands in one round trip less.
    /// (Not with fencing tokens or a restart guard, and not where waiters of other processes were
    /// met.) Where it is not so now and then, since a connection was lost or the node had to be sent
    /// a script again, the waiter is refused, and asks once more when the release is answered.
    ///
    /// And a release that is carried does not wait for the answer to the acquire that was given to
    /// the carrier before it. From then on that acquire is not [wanted](Call::is_wanted): if it has
    /// not left, or would have to be sent again, it must not.
    fn keeps_order(&self) -> bool {
        false
    }

    /// Carries calls without being polled for them, where the backend can.
    fn carrier(&self) -> Option<&dyn Carry> {
        None
    }
}

/// A backend that carries calls by itself, on a task of its own, and tells the answers.
///
/// That is for speed alone: a call costs no future then, many to one node can travel together, and
/// nobody is woken to look after them. What is said of the methods of [`LockBackend`] holds for
/// calls, too; they are not given up by dropping a future, but when they are no longer
/// [wanted](Call::is_wanted). One that is not wanted and has not left must not leave: what undoes it
/// may have gone before it.
pub trait Carry: Send + Sync {
    /// Whether a call about `claim` would be carried at this moment. If not, [`LockBackend`] is
    /// asked: for what has to be connected first, say, or is as quick without company.
    fn carries(&self, claim: &Claim) -> bool;

    /// Takes a call on its way. It does not wait, and it [answers](Call::answer) in the end.
    fn carry(&self, call: Call);
}

/// A node that can tell which server it is.
///
/// Two configured nodes that are one server void the quorum; where all nodes can identify
/// themselves, the manager refuses to lock over such a pair.
#[async_trait]
pub trait Identify: Send + Sync {
    /// An id that no other server has, and that the same server gives under each of its addresses:
    /// Redis and Valkey call it `run_id`. `None` if this server has none.
    ///
    /// # Errors
    ///
    /// `BackendError` if the node cannot be asked, or will not tell.
    async fn server_id(&self) -> Result<Option<String>, BackendError>;
}

/// A node that can be looked at: who keeps a key there, and for how long still.
///
/// # Contract
///
/// - *Read only.* A look changes nothing on the node, and needs no right to write.
/// - *Atomic.* Holder and time left are those of one moment.
/// - *Any holder.* What another Redlock library wrote is a holder like ours.
/// - *Drop.* As in [`LockBackend`]: dropping a look disturbs no other call.
#[async_trait]
pub trait Inspect: Send + Sync {
    /// What is at `key`; `None` if it is free.
    ///
    /// # Errors
    ///
    /// `BackendError` if the node cannot be asked, or what is there is no lock
    /// ([`WrongType`](BackendErrorKind::WrongType)).
    async fn inspect(&self, key: &Key) -> Result<Option<Sighting>, BackendError>;
}

/// A node that tells when a key has changed, so that whoever waits for it need not ask and ask.
///
/// What it says is a hint: when to try, never that the lock is free. That only votes decide.
///
/// # Contract
///
/// - *From the look on.* What is seen is what was there when the node heard of the look, or of an
///   earlier one, if nothing was told of the key since. What is told from then on is that the key
///   was set, was deleted, has expired, or changed in any other way: an extension is a change, too.
///   Whoever changed it: another Redlock library, an operator.
/// - *Too often, never too seldom.* A wake-up for nothing is allowed. A change that is not told is
///   not, until the connection breaks.
/// - *Expiry* is told when the node notices it, which may be later than it happens; and some nodes
///   never tell it. A waiter keeps a timer of its own for the time left of the key.
/// - *No silent death.* When the connection of a watch breaks, so that nothing more can be told on
///   it, the watch ends with an `Err` as soon as the client sees it. A connection that hangs is a
///   watch that hangs: the waiter's timer is behind that, too.
/// - *Read only.* A watch changes nothing on the node, and needs no right to write.
/// - *Apart.* A watch neither waits for the calls of [`LockBackend`] nor holds them up, however
///   long it lasts.
/// - *Drop.* Dropping a look, or what it gave, ends the watch, leaves nothing of it behind in the
///   client, and disturbs no other watch or call. Any number of watches may be on one key.
#[async_trait]
pub trait Watch: Send + Sync {
    /// Looks at who has `key`, and watches it from then on.
    ///
    /// # Errors
    ///
    /// `BackendError` if the node cannot tell. Its kind says whether to try again: after
    /// [`Connection`](BackendErrorKind::Connection), [`Loading`](BackendErrorKind::Loading) or
    /// [`TimedOut`](BackendErrorKind::TimedOut) a new watch dials anew, and the key may have become
    /// free in between; whereas [`Script`](BackendErrorKind::Script) (the node is too old to watch),
    /// [`Permission`](BackendErrorKind::Permission), [`Auth`](BackendErrorKind::Auth) and
    /// [`Protocol`](BackendErrorKind::Protocol) (it does not speak RESP3, or is no Redis) stay
    /// until somebody changes the node. [`WrongType`](BackendErrorKind::WrongType): what is at the
    /// key is no lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point is safe.
    async fn look(&self, key: &Key) -> Result<Watched, BackendError>;

    /// Waits until `key` may be free: what there is to know then, an acquire finds out.
    ///
    /// Ends at once if nobody has the key, else when that may have changed. There is no deadline in
    /// it: a watch of a key that is kept for good lasts for good.
    ///
    /// # Errors
    ///
    /// As [`look`](Self::look), or if the node can no longer tell.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point is safe. A watch that is begun again begins with a look, so
    /// nothing is missed in between.
    async fn watch(&self, key: &Key) -> Result<(), BackendError> {
        let seen = self.look(key).await?;
        if seen.holder().is_none() { Ok(()) } else { seen.changed().await }
    }
}

/// A key that is [watched](Watch): who had it, and when that may have changed.
#[must_use = "dropping it ends the watch"]
pub struct Watched {
    holder: Option<Holder>,
    changed: BoxFuture<'static, Result<(), BackendError>>,
}

impl Watched {
    /// A key that `holder` had; `changed` ends when that may have changed, or can no longer be told.
    pub fn new(
        holder: Option<Holder>,
        changed: impl Future<Output = Result<(), BackendError>> + Send + 'static,
    ) -> Self {
        Self { holder, changed: Box::pin(changed) }
    }

    /// Who had the key; `None` if it was free.
    #[must_use]
    pub const fn holder(&self) -> Option<&Holder> {
        self.holder.as_ref()
    }

    /// Waits until somebody else may have the key, or nobody.
    ///
    /// # Errors
    ///
    /// `BackendError` if the node can no longer tell.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the watch.
    pub async fn changed(self) -> Result<(), BackendError> {
        self.changed.await
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("holder", &self.holder).finish_non_exhaustive()
    }
}

/// A node that keeps a number for each lock, out of which fencing tokens are made.
///
/// What the numbers are for, and why tokens made of them hold, is told in
/// [`algorithm::fence`](crate::algorithm::fence).
///
/// # Contract
///
/// All that [`LockBackend`] promises holds here, too: *one node*, *atomic*, *compare*, *`Err` means
/// unknown*, *once*, *patience*, *drop*. A key that is taken here is taken there, and the other way
/// round: [`LockBackend::extend`] and [`LockBackend::release`] work on it as on any other. Besides:
///
/// - *A grant raises.* Each acquire that takes a key makes the key's number greater than it was.
/// - *Nothing lowers.* No call, no expiry and no release makes a number smaller or removes it. It
///   is there as long as the node's data is.
/// - *Ours only.* A number is changed by a call whose claim has the key, and by no other call about
///   that key. (Calls about other keys may raise it: locks may share a number.)
/// - *One number per claim.* With several keys, a grant or a raise leaves the number of each of them
///   at what was answered or asked for.
/// - *The end.* A number that cannot be raised any more, or is no number, is an error
///   ([`Fence`](BackendErrorKind::Fence)), and nothing is changed.
#[async_trait]
pub trait Fence: Send + Sync {
    /// Takes all keys of the claim for its ttl, or none of them, and raises their number: to one
    /// more than the highest among them, or to `hint` if that is more.
    ///
    /// If all keys hold the claim's token already (the request was sent twice), it grants with the
    /// highest number as it is, and levels the others up to it.
    ///
    /// # Errors
    ///
    /// `BackendError` if the vote is unknown. Of kind [`Fence`](BackendErrorKind::Fence) if the
    /// number has come to its end, or is none: then nothing was taken.
    async fn acquire(&self, claim: &Claim, hint: FenceHint) -> Result<FenceVote, BackendError>;

    /// Raises the number of all keys to `number`, if all keys are ours and none of the numbers is
    /// higher. Granted also if it stood there already.
    ///
    /// # Errors
    ///
    /// `BackendError` if the vote is unknown.
    async fn raise(&self, claim: &Claim, number: FencingToken) -> Result<Vote, BackendError>;

    /// As [`LockBackend::release`]; and raises the numbers of those keys that were ours to
    /// `number`, where they are lower. A number that is none does not keep the keys.
    ///
    /// # Errors
    ///
    /// `BackendError` if the vote is unknown.
    async fn release(&self, claim: &Claim, number: FencingToken) -> Result<Vote, BackendError>;
}

/// What a node keeps at a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sighting {
    /// Whose key it is.
    pub holder: Holder,
    /// How long the node still keeps it. `None` is for good.
    ///
    /// No lock of ours is without an end: another program wrote it.
    pub time_left: Option<Duration>,
}

impl Sighting {
    /// A key of `holder` that is kept for `time_left`.
    #[must_use]
    pub const fn new(holder: Holder, time_left: Option<Duration>) -> Self {
        Self { holder, time_left }
    }
}

/// Whose key it is: what is stored there, of which only sameness can be told.
///
/// Two holders are equal if the bytes are. The bytes themselves are a secret of the holder, since
/// whoever knows them can release the lock: they cannot be read, and `Debug` does not show them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Holder(Arc<[u8]>);

impl Holder {
    /// The holder who stored `value`: a token, or what another program wrote.
    #[must_use]
    pub fn new(value: impl Into<Arc<[u8]>>) -> Self {
        Self(value.into())
    }

    /// The place that is named there; nobody's secret.
    pub(crate) fn as_place(&self) -> Option<Place> {
        Place::parse(&self.0)
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holder(..)")
    }
}

macro_rules! forward {
    ($($pointer:ident),+) => {$(
#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: LockBackend + ?Sized> LockBackend for $pointer<T> {
    async fn acquire(&self, claim: &Claim) -> Result<Vote, BackendError> {
        (**self).acquire(claim).await
    }

    async fn extend(&self, claim: &Claim) -> Result<Vote, BackendError> {
        (**self).extend(claim).await
    }

    async fn release(&self, claim: &Claim) -> Result<Vote, BackendError> {
        (**self).release(claim).await
    }

    fn name(&self) -> Option<&str> {
        (**self).name()
    }

    fn identity(&self) -> Option<&dyn Identify> {
        (**self).identity()
    }

    fn inspector(&self) -> Option<&dyn Inspect> {
        (**self).inspector()
    }

    fn watcher(&self) -> Option<&dyn Watch> {
        (**self).watcher()
    }

    fn queue(&self) -> Option<&dyn Queue> {
        (**self).queue()
    }

    fn fencer(&self) -> Option<&dyn Fence> {
        (**self).fencer()
    }

    fn quarantine(&self) -> Option<&dyn Quarantine> {
        (**self).quarantine()
    }

    fn keeps_order(&self) -> bool {
        (**self).keeps_order()
    }

    fn carrier(&self) -> Option<&dyn Carry> {
        (**self).carrier()
    }
}
    )+};
}

forward!(Arc, Box);

/// Why a node's vote is unknown.
///
/// Cheap to clone. Its text shows what the node or the client said; a backend keeps passwords and
/// tokens out of it.
#[derive(Clone, Debug)]
pub struct BackendError {
    kind: BackendErrorKind,
    message: Arc<str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl BackendError {
    /// An error of `kind`, told in `message`.
    #[must_use]
    pub fn new(kind: BackendErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Keeps the error of the client underneath. Its text must not show secrets.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// An error answer of a Redis or Valkey node, sorted by its first word (`READONLY …`).
    ///
    /// What a node repeats of the command is cut off: it may be the token, or a password.
    #[must_use]
    pub fn from_reply(reply: &str) -> Self {
        let told = reply.split(", with args beginning with").next().unwrap_or_default();
        Self::new(BackendErrorKind::of_reply(told), told)
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
    /// the [restart guard](crate::restarts).
    Evicting,
    /// The number for fencing tokens is at its end, or what stands in its place is no number.
    Fence,
    /// The node does not tell which server it is, or several servers answer in its place in turn.
    /// Only with the [restart guard](crate::restarts).
    Identity,
    /// The node is reading its data set (`LOADING`) or busy with a script (`BUSY`).
    Loading,
    /// The node knows another `max_ttl` than the [restart guard](crate::restarts) of this manager.
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
    /// lost its data. Only with the [restart guard](crate::restarts).
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

    fn of_reply(reply: &str) -> Self {
        if let Some(kind) = protocol::quarantine::kind_of(reply) {
            return kind;
        }
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
            protocol::fence::WORD => Self::Fence,
            "ERR" if reply.contains("unknown command") => Self::Script,
            // With a capital letter before Redis 7.
            "ERR" if reply.contains("nknown subcommand") => Self::Script,
            "ERR" if reply.contains("invalid password") || reply.contains("AUTH") => Self::Auth,
            "ERR" if reply.contains("The user executing the script") => Self::Permission,
            "ERR" if reply.contains("max number of clients") => Self::Connection,
            // Redis tells of an error inside a script either by its own word or wrapped like this.
            "ERR" if reply.contains("WRONGTYPE") => Self::WrongType,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `LockBackend` stays object safe.
    fn _object_safe(_: &dyn LockBackend) {}

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
            ("QUORATEINFO the restart guard needs INFO: ERR The user may not", Kind::Permission),
            ("QUORATEINFO the restart guard needs INFO: ERR not from scripts", Kind::Script),
            ("", Kind::Other),
        ] {
            let error = BackendError::from_reply(reply);
            assert_eq!(error.kind(), kind, "{reply}");
            assert_eq!(error.to_string(), reply);
        }
    }

    #[test]
    fn a6_what_a_node_repeats_of_a_command_is_not_told() {
        let reply = "ERR unknown command 'EVALSHA', with args beginning with: 'a' 's3cret' ";
        let error = BackendError::from_reply(reply);
        assert_eq!(error.to_string(), "ERR unknown command 'EVALSHA'");
        assert_eq!(error.kind(), BackendErrorKind::Script);
    }

    #[test]
    fn a6_a_holder_can_be_told_from_another_and_not_read() {
        let (one, other) = (Holder::new(*b"s3cret"), Holder::new(*b"another"));
        assert_eq!(one, Holder::new(b"s3cret".to_vec()));
        assert_ne!(one, other);
        assert_eq!(format!("{one:?}"), "Holder(..)");
        let sighting = Sighting::new(one, None);
        assert!(!format!("{sighting:?}").contains("s3cret"));
    }
}

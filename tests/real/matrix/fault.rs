//! The faults of a node: how a real node gets one, what a client sees of it, how it is undone.

use std::fs;
use std::time::Duration;

use quorate::BackendErrorKind;
use quorate_tests::peer::{Answer, Peer};
use quorate_tests::{Builder, Connection, Direction, Mode, Proxy, RedisServer, When};

/// The lock of every cell.
pub(crate) const KEY: &str = "orders:42";

/// The token of another client, which is in the way.
const SOMEBODY_ELSE: &str = "somebody-elses-token";

/// What a node is loaded with, so that it takes its time.
const FILLER: &str = "filler";

/// One way from a client to a node, each way that it can go wrong included.
pub(crate) struct Place {
    pub(crate) node: RedisServer,
    proxy: Proxy,
    babbler: Peer,
    pretender: Peer,
}

impl Place {
    pub(crate) fn start() -> Self {
        let node = settings().start();
        let proxy = Proxy::start(node.port());
        const GARBAGE: Answer = Answer::Say(b"\x00\xff HTTP/1.1 418 I'm a teapot\r\n\r\n");
        let babbler = Peer::with_handshake(|_| GARBAGE);
        let pretender = Peer::start(|command| match command.name() {
            "SET" | "EVAL" | "EVALSHA" => GARBAGE,
            _ => Answer::Usual,
        });
        Self { node, proxy, babbler, pretender }
    }

    /// The keys on the node that no fault put there.
    pub(crate) fn keys_left(&self) -> Vec<String> {
        let mut keys = self.node.keys();
        keys.retain(|key| !key.starts_with(FILLER));
        keys
    }
}

fn settings() -> Builder {
    let settings = RedisServer::builder()
        // So that the harness has a user of its own while `default` is tampered with.
        .user("default", "on nopass ~* +@all")
        .config("dbfilename", &["dump.rdb"])
        .config("rdbcompression", &["no"]);
    // Before Redis 7, every client may use `DEBUG`.
    if RedisServer::version() >= (7, 0) {
        settings.config("enable-debug-command", &["yes"])
    } else {
        settings
    }
}

/// What is wrong with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Killed while it was connected.
    Dead,
    /// It was down before any client connected.
    NeverUp,
    /// `SIGSTOP`.
    Stopped,
    /// `SIGSTOP` before any client connected: the kernel accepts, the process does not reply.
    StoppedBefore,
    /// The connection is reset as soon as it is used, again and again.
    Reset,
    /// Connections are closed, new ones too.
    Cut,
    /// What is sent to it never arrives.
    HoleToNode,
    /// What it answers never arrives.
    HoleToClient,
    /// What it answers never arrives, not even when connecting.
    HoleBefore,
    /// An hour each way: more than a round waits.
    TooSlow,
    /// 50 ms each way: much less than a round waits. No fault at all.
    Slow,
    /// A replica of something that is not there.
    ReadOnly,
    /// It is reading its data set.
    Loading,
    /// `maxmemory` is reached, and nothing is evicted.
    OutOfMemory,
    /// The last `BGSAVE` failed, and writes stop for that.
    Misconfigured,
    /// It demands a password that the client does not have.
    NoAuth,
    /// The user may no longer write.
    NoPermission,
    /// A list is where the lock would be.
    WrongType,
    /// Another client has it locked.
    Foreign,
    /// It is no Redis and says so.
    Babble,
    /// It seems to be one, until it is asked for a vote.
    BabbleAtVote,
}

/// What a client sees of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    Refusal,
    Silence,
    Error(BackendErrorKind),
}

impl Fault {
    pub(crate) const fn effect(self) -> Effect {
        use BackendErrorKind as Kind;
        match self {
            Self::Slow => Effect::Nothing,
            // A plain acquire of one key cannot distinguish a list from a lock.
            Self::Foreign | Self::WrongType => Effect::Refusal,
            Self::Stopped
            | Self::StoppedBefore
            | Self::HoleToNode
            | Self::HoleToClient
            | Self::HoleBefore
            | Self::TooSlow => Effect::Silence,
            Self::Dead | Self::NeverUp | Self::Reset | Self::Cut => Effect::Error(Kind::Connection),
            Self::ReadOnly => Effect::Error(Kind::ReadOnly),
            Self::Loading => Effect::Error(Kind::Loading),
            Self::OutOfMemory => Effect::Error(Kind::OutOfMemory),
            Self::Misconfigured => Effect::Error(Kind::Misconfigured),
            Self::NoAuth => Effect::Error(Kind::Auth),
            Self::NoPermission => Effect::Error(Kind::Permission),
            Self::Babble | Self::BabbleAtVote => Effect::Error(Kind::Protocol),
        }
    }

    /// Whether it is there before any client connects. Others come to a connected client.
    pub(crate) const fn comes_first(self) -> bool {
        matches!(
            self,
            Self::NeverUp
                | Self::StoppedBefore
                | Self::HoleBefore
                | Self::NoAuth
                | Self::Babble
                | Self::BabbleAtVote
        )
    }

    /// Whether a node is there again once it is undone.
    pub(crate) const fn can_be_undone(self) -> bool {
        !matches!(self, Self::Babble | Self::BabbleAtVote)
    }

    /// Where a client that meets the fault has to be sent.
    pub(crate) fn address(self, place: &Place) -> String {
        match self {
            Self::Babble => place.babbler.url(),
            Self::BabbleAtVote => place.pretender.url(),
            Self::Reset
            | Self::Cut
            | Self::HoleToNode
            | Self::HoleToClient
            | Self::HoleBefore
            | Self::TooSlow
            | Self::Slow => place.proxy.address(),
            _ => place.node.address(),
        }
    }

    /// Does it to a node.
    pub(crate) fn strike(self, place: &Place) -> Struck<'_> {
        let node = &place.node;
        let mut loading = None;
        match self {
            Self::Dead | Self::NeverUp => node.kill(),
            Self::Stopped | Self::StoppedBefore => node.pause(),
            Self::Reset => place.proxy.set(Mode::Reset(When::Used)),
            Self::Cut => place.proxy.set(Mode::Cut(When::Now)),
            Self::HoleToNode => place.proxy.set(Mode::BlackHole(Direction::ToNode)),
            Self::HoleToClient | Self::HoleBefore => {
                place.proxy.set(Mode::BlackHole(Direction::ToClient));
            }
            Self::TooSlow => place.proxy.set(delay(3_600_000)),
            Self::Slow => place.proxy.set(delay(50)),
            // No process listens on port 1.
            Self::ReadOnly => run(node, &["REPLICAOF", "127.0.0.1", "1"]),
            Self::Loading => loading = Some(load_slowly(node)),
            Self::OutOfMemory => run(node, &["CONFIG", "SET", "maxmemory", "1"]),
            Self::Misconfigured => {
                fail_to_save(node);
                run(node, &["CONFIG", "SET", "save", "3600 1"]);
            }
            Self::NoAuth => run(node, &["CONFIG", "SET", "requirepass", "sesame"]),
            Self::NoPermission => {
                run(node, &["ACL", "SETUSER", "default", "-@write", "-@scripting"])
            }
            Self::WrongType => node.lpush(KEY, "x"),
            Self::Foreign => node.set(KEY, SOMEBODY_ELSE),
            Self::Babble | Self::BabbleAtVote => {}
        }
        Struck { fault: self, place, loading }
    }
}

/// A node with something wrong.
#[must_use = "a fault stays until it is undone"]
pub(crate) struct Struck<'a> {
    fault: Fault,
    place: &'a Place,
    loading: Option<Connection>,
}

impl Struck<'_> {
    /// Makes the node as it was, with what clients have left there meanwhile.
    pub(crate) fn undo(self) {
        let node = &self.place.node;
        match self.fault {
            Fault::Dead | Fault::NeverUp => node.restart(),
            Fault::Stopped | Fault::StoppedBefore => node.resume(),
            Fault::Reset
            | Fault::Cut
            | Fault::HoleToNode
            | Fault::HoleToClient
            | Fault::HoleBefore
            | Fault::TooSlow
            | Fault::Slow => self.place.proxy.set(Mode::Pass),
            Fault::ReadOnly => run(node, &["REPLICAOF", "NO", "ONE"]),
            Fault::Loading => {
                run(node, &["CONFIG", "SET", "key-load-delay", "0"]);
                let done = self.loading.unwrap().receive().unwrap();
                assert_eq!(done.text(), "OK", "it was still loading");
            }
            Fault::OutOfMemory => run(node, &["CONFIG", "SET", "maxmemory", "0"]),
            Fault::Misconfigured => run(node, &["CONFIG", "SET", "save", ""]),
            Fault::NoAuth => run(node, &["CONFIG", "SET", "requirepass", ""]),
            Fault::NoPermission => run(node, &["ACL", "SETUSER", "default", "+@all"]),
            Fault::WrongType => {
                assert_eq!(node.cli(&["LRANGE", KEY, "0", "-1"]).array().len(), 1, "untouched");
                run(node, &["DEL", KEY]);
            }
            Fault::Foreign => {
                assert_eq!(node.get(KEY).as_deref(), Some(SOMEBODY_ELSE.as_bytes()), "untouched");
                run(node, &["DEL", KEY]);
            }
            Fault::Babble | Fault::BabbleAtVote => {}
        }
    }
}

const fn delay(millis: u64) -> Mode {
    let each_way = Duration::from_millis(millis);
    Mode::Delay { to_node: each_way, to_client: each_way }
}

fn run(node: &RedisServer, command: &[&str]) {
    let reply = node.cli(command);
    assert_eq!(reply.error(), None, "{command:?} at {node}");
}

/// Has the node read its data set again, a key every 20 ms, for two minutes unless undone.
fn load_slowly(node: &RedisServer) -> Connection {
    run(node, &["FLUSHALL"]);
    run(node, &["DEBUG", "POPULATE", "6000", FILLER, "1024"]);
    run(node, &["CONFIG", "SET", "key-load-delay", "20000"]);
    // It looks at its clients after each of so many bytes.
    run(node, &["CONFIG", "SET", "loading-process-events-interval-bytes", "1024"]);
    let mut loading = node.connect();
    loading.send(&["DEBUG", "RELOAD"]).unwrap();
    let mut witness = node.connect();
    let mut is_loading = false;
    while !is_loading {
        let reply = witness.command(&["PING"]).unwrap();
        is_loading = reply.error().is_some_and(|error| error.starts_with("LOADING"));
    }
    loading
}

/// Has the last `BGSAVE` be one that failed: the file that it wants to write is a directory.
fn fail_to_save(node: &RedisServer) {
    if node.info("rdb_last_bgsave_status") == "err" {
        return;
    }
    let file = node.dir().join("dump.rdb");
    let _ = fs::remove_file(&file);
    fs::create_dir(&file).unwrap();
    run(node, &["BGSAVE"]);
    while node.info("rdb_bgsave_in_progress") == "1" {}
    assert_eq!(node.info("rdb_last_bgsave_status"), "err");
    fs::remove_dir(&file).unwrap();
}

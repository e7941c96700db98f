//! The faults of a node: how a real node gets one, what a client sees of it, how it is undone.

use std::fs;
use std::time::Duration;

use quorate::BackendErrorKind as Kind;
use quorate_tests::peer::{Answer, Peer};
use quorate_tests::{Builder, Connection, Direction, Mode, Proxy, RedisServer};

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
    None,
    /// Killed.
    Dead,
    /// `SIGSTOP`: the kernel accepts, and the process does not reply.
    Stopped,
    /// What a proxy does in front of it.
    Network(Mode),
    /// An operator has changed it, and changes it back.
    Changed {
        does: Words,
        undoes: Words,
        kind: Kind,
    },
    /// It is reading its data set.
    Loading,
    /// The last `BGSAVE` failed, and writes stop for that.
    Misconfigured,
    /// A list is where the lock would be.
    WrongType,
    /// Another client has it locked.
    Foreign,
    /// It is no Redis and says so.
    Babble,
    /// It seems to be one, until it is asked for a vote.
    BabbleAtVote,
}

type Words = &'static [&'static str];

/// When a fault comes: before any client connects, or to a connected client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    First,
    Later,
}

/// A replica of something that is not there: no process listens on port 1.
const READ_ONLY: Fault =
    changed(&["REPLICAOF", "127.0.0.1", "1"], &["REPLICAOF", "NO", "ONE"], Kind::ReadOnly);
/// `maxmemory` is reached, and nothing is evicted.
const OUT_OF_MEMORY: Fault = changed(
    &["CONFIG", "SET", "maxmemory", "1"],
    &["CONFIG", "SET", "maxmemory", "0"],
    Kind::OutOfMemory,
);
/// The user may no longer write.
const NO_PERMISSION: Fault = changed(
    &["ACL", "SETUSER", "default", "-@write", "-@scripting"],
    &["ACL", "SETUSER", "default", "+@all"],
    Kind::Permission,
);
/// It demands a password that the client does not have.
const NO_AUTH: Fault = changed(
    &["CONFIG", "SET", "requirepass", "sesame"],
    &["CONFIG", "SET", "requirepass", ""],
    Kind::Auth,
);

const RESET: Fault = Fault::Network(Mode::Reset);

/// The rows. Where there are several faults, the failed nodes have them in turn.
pub(crate) const ROWS: [(When, &[Fault]); 23] = [
    (When::Later, &[Fault::Dead]),
    (When::First, &[Fault::Dead]),
    (When::Later, &[Fault::Stopped]),
    (When::First, &[Fault::Stopped]),
    (When::Later, &[RESET]),
    (When::Later, &[Fault::Network(Mode::Cut)]),
    (When::Later, &[Fault::Network(Mode::BlackHole(Direction::ToNode))]),
    (When::Later, &[Fault::Network(Mode::BlackHole(Direction::ToClient))]),
    (When::First, &[Fault::Network(Mode::BlackHole(Direction::ToClient))]),
    // An hour each way is more than a round waits, and 50 ms are no fault at all.
    (When::Later, &[Fault::Network(Mode::Delay(Duration::from_secs(3_600)))]),
    (When::Later, &[Fault::Network(NO_FAULT)]),
    (When::Later, &[READ_ONLY]),
    (When::Later, &[Fault::Loading]),
    (When::Later, &[OUT_OF_MEMORY]),
    (When::Later, &[Fault::Misconfigured]),
    (When::First, &[NO_AUTH]),
    (When::Later, &[NO_PERMISSION]),
    (When::Later, &[Fault::WrongType]),
    (When::Later, &[Fault::Foreign]),
    (When::First, &[Fault::Babble]),
    (When::First, &[Fault::BabbleAtVote]),
    (When::Later, &[Fault::Foreign, READ_ONLY]),
    (When::Later, &[Fault::Dead, Fault::Foreign, Fault::Stopped, OUT_OF_MEMORY, RESET]),
];

const NO_FAULT: Mode = Mode::Delay(Duration::from_millis(50));

const fn changed(does: Words, undoes: Words, kind: Kind) -> Fault {
    Fault::Changed { does, undoes, kind }
}

/// What a client sees of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Nothing,
    Refusal,
    Silence,
    Error(Kind),
}

impl Fault {
    pub(crate) const fn effect(self) -> Effect {
        match self {
            Self::None | Self::Network(NO_FAULT) => Effect::Nothing,
            // A plain acquire of one key cannot distinguish a list from a lock.
            Self::Foreign | Self::WrongType => Effect::Refusal,
            Self::Dead | Self::Network(Mode::Cut | Mode::Reset) => Effect::Error(Kind::Connection),
            Self::Stopped | Self::Network(_) => Effect::Silence,
            Self::Changed { kind, .. } => Effect::Error(kind),
            Self::Loading => Effect::Error(Kind::Loading),
            Self::Misconfigured => Effect::Error(Kind::Misconfigured),
            Self::Babble | Self::BabbleAtVote => Effect::Error(Kind::Protocol),
        }
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
            Self::Network(..) => place.proxy.address(),
            _ => place.node.address(),
        }
    }

    /// Does it to a node. The connection of one that loads has to be given to [`undo`](Self::undo).
    pub(crate) fn strike(self, place: &Place) -> Option<Connection> {
        let node = &place.node;
        match self {
            Self::Dead => node.kill(),
            Self::Stopped => node.pause(),
            Self::Network(mode) => place.proxy.set(mode),
            Self::Changed { does, .. } => run(node, does),
            Self::Loading => return Some(load_slowly(node)),
            Self::Misconfigured => {
                fail_to_save(node);
                run(node, &["CONFIG", "SET", "save", "3600 1"]);
            }
            Self::WrongType => run(node, &["LPUSH", KEY, SOMEBODY_ELSE]),
            Self::Foreign => node.set(KEY, SOMEBODY_ELSE),
            Self::None | Self::Babble | Self::BabbleAtVote => {}
        }
        None
    }

    /// Makes the node as it was, with what clients have left there meanwhile.
    pub(crate) fn undo(self, place: &Place, loading: Option<Connection>) {
        let node = &place.node;
        match self {
            Self::Dead => node.restart(),
            Self::Stopped => node.resume(),
            Self::Network(..) => place.proxy.set(Mode::Pass),
            Self::Changed { undoes, .. } => run(node, undoes),
            Self::Loading => {
                run(node, &["CONFIG", "SET", "key-load-delay", "0"]);
                let done = loading.unwrap().receive().unwrap();
                assert_eq!(done.text(), "OK", "it was still loading");
            }
            Self::Misconfigured => run(node, &["CONFIG", "SET", "save", ""]),
            Self::WrongType | Self::Foreign => {
                let kept = match self {
                    Self::Foreign => node.get(KEY).map(|value| String::from_utf8(value).unwrap()),
                    _ => Some(node.cli(&["LINDEX", KEY, "-1"]).text()),
                };
                assert_eq!(kept.as_deref(), Some(SOMEBODY_ELSE), "untouched");
                run(node, &["DEL", KEY]);
            }
            Self::None | Self::Babble | Self::BabbleAtVote => {}
        }
    }
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

//! The faults of a node: how a real node gets one, what a client sees of it, how it is undone.

use std::time::Duration;

use quorate::BackendErrorKind as Kind;
use quorate_tests::{Direction, Mode, Proxy, RedisServer};

/// The lock of every cell.
pub(crate) const KEY: &str = "orders:42";

/// The token of another client, which is in the way.
const SOMEBODY_ELSE: &str = "somebody-elses-token";

/// One way from a client to a node, each way that it can go wrong included.
pub(crate) struct Place {
    pub(crate) node: RedisServer,
    proxy: Proxy,
}

impl Place {
    pub(crate) fn start() -> Self {
        // So that the harness has a user of its own while `default` is tampered with.
        let node = RedisServer::builder().user("default", "on nopass ~* +@all").start();
        let proxy = Proxy::start(node.port());
        Self { node, proxy }
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
    /// A list is where the lock would be.
    WrongType,
    /// Another client has it locked.
    Foreign,
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
pub(crate) const ROWS: [(When, &[Fault]); 19] = [
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
    (When::Later, &[OUT_OF_MEMORY]),
    (When::First, &[NO_AUTH]),
    (When::Later, &[NO_PERMISSION]),
    (When::Later, &[Fault::WrongType]),
    (When::Later, &[Fault::Foreign]),
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
        }
    }

    /// Where a client that meets the fault has to be sent.
    pub(crate) fn address(self, place: &Place) -> String {
        match self {
            Self::Network(..) => place.proxy.address(),
            _ => place.node.address(),
        }
    }

    /// Does it to a node.
    pub(crate) fn strike(self, place: &Place) {
        let node = &place.node;
        match self {
            Self::Dead => node.kill(),
            Self::Stopped => node.pause(),
            Self::Network(mode) => place.proxy.set(mode),
            Self::Changed { does, .. } => run(node, does),
            Self::WrongType => run(node, &["LPUSH", KEY, SOMEBODY_ELSE]),
            Self::Foreign => node.set(KEY, SOMEBODY_ELSE),
            Self::None => {}
        }
    }

    /// Makes the node as it was, with what clients have left there meanwhile.
    pub(crate) fn undo(self, place: &Place) {
        let node = &place.node;
        match self {
            Self::Dead => node.restart(),
            Self::Stopped => node.resume(),
            Self::Network(..) => place.proxy.set(Mode::Pass),
            Self::Changed { undoes, .. } => run(node, undoes),
            Self::WrongType | Self::Foreign => {
                let kept = match self {
                    Self::Foreign => node.get(KEY).map(|value| String::from_utf8(value).unwrap()),
                    _ => Some(node.cli(&["LINDEX", KEY, "-1"]).text()),
                };
                assert_eq!(kept.as_deref(), Some(SOMEBODY_ELSE), "untouched");
                run(node, &["DEL", KEY]);
            }
            Self::None => {}
        }
    }
}

fn run(node: &RedisServer, command: &[&str]) {
    let reply = node.cli(command);
    assert_eq!(reply.error(), None, "{command:?} at {node}");
}

//! One `redis-server` process: start, pause, kill, restart, and a look inside.

use std::fmt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use tempfile::TempDir;

mod authority;
mod builder;
mod monitor;
mod nodes;
mod process;
mod resp;

pub use authority::{Authority, Certificate};
pub(crate) use builder::free_port;
pub use builder::{Builder, TEST_CA};
pub use monitor::{Monitor, Monitored};
pub use nodes::Nodes;
pub use resp::{Connection, Reply};

use process::Process;

use crate::wait::eventually;

/// The harness's own user, present wherever the test asked for passwords or users.
const ADMIN: (&str, &str) = ("quorate-harness", "quorate-harness");

/// Makes an empty directory, which goes with its owner. The path of a unix socket in it has about a hundred bytes.
pub fn temp_dir() -> TempDir {
    tempfile::Builder::new().prefix("quorate-").tempdir().expect("a directory for temporary files")
}

/// A `redis-server` or `valkey-server` process, killed and cleaned up on drop.
///
/// Nothing is persisted unless [`Builder::append_only`] or another directive asks for it. It also
/// dies with the test process, however that ends: a watchdog waits for it.
#[derive(Debug)]
pub struct RedisServer {
    port: u16,
    tls_port: Option<u16>,
    admin: bool,
    // Declared before `dir`: the process goes first.
    process: Mutex<Option<Process>>,
    dir: TempDir,
}

impl RedisServer {
    /// Starts one with default settings on a free port of 127.0.0.1, and waits until it is ready.
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Starts one with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The major and the minor version of the server: `(7, 0)`. Valkey goes on from Redis 7.2.
    pub fn version() -> (u32, u32) {
        process::version()
    }

    /// The command of the server that deletes a key if it has a given value: then a plain release needs no
    /// script.
    pub fn compare_and_delete() -> Option<&'static str> {
        match Self::version() {
            (9.., _) => Some("DELIFEQ"), // Valkey
            (8, 4..) => Some("DELEX"),   // Redis
            _ => None,
        }
    }

    /// The URL that clients take.
    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The same URL with a user and a password, which need no escaping.
    pub fn address_as(&self, user: &str, password: &str) -> String {
        format!("redis://{user}:{password}@127.0.0.1:{}", self.port)
    }

    /// The URL of its port [for TLS](Builder::tls): `rediss://localhost:PORT`.
    pub fn tls_address(&self) -> String {
        format!("rediss://localhost:{}", self.tls_port())
    }

    /// The TCP port of [TLS](Builder::tls).
    pub const fn tls_port(&self) -> u16 {
        self.tls_port.expect("a node with TLS")
    }

    /// The TCP port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its working directory: where an RDB or AOF file would be.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its process id, or `None` after [`kill`](Self::kill).
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Process::id)
    }

    /// Whether the process lives. A paused one does.
    pub fn is_running(&self) -> bool {
        self.process().as_ref().is_some_and(Process::is_running)
    }

    fn log(&self) -> String {
        self.process().as_ref().map_or_else(String::new, Process::log)
    }

    /// Kills it with `SIGKILL` and waits until it is gone. Does nothing if it is gone already.
    pub fn kill(&self) {
        self.process().take();
    }

    /// Starts it anew on the same port, in the same directory, killing it first if it still runs.
    pub fn restart(&self) {
        let mut process = self.process();
        process.take();
        let started = Process::restart(self.dir.path());
        *process = Some(started.unwrap_or_else(|log| panic!("{self} did not restart:\n{log}")));
    }

    /// Waits until it, a replica, has the data of its primary and receives new writes.
    pub fn wait_until_in_sync(&self) {
        eventually("a replica in sync", || self.info("master_link_status") == "up");
    }

    /// Kills it, and has a replica take its address as a primary with the data it has: a failover.
    /// The replica goes on as the process it is. A later [`restart`](Self::restart) is one of its.
    pub fn take_over(&mut self, replica: Self) {
        let port = self.port;
        self.kill();
        // The connection outlives its port.
        let mut connection = replica.connect();
        for order in ["REPLICAOF NO ONE", &format!("CONFIG SET port {port}"), "CONFIG REWRITE"] {
            let words: Vec<_> = order.split(' ').collect();
            let reply = connection.command(&words).expect("a reply");
            assert_eq!(reply.error(), None, "{order} at {replica}");
        }
        let Self { process, dir, admin, .. } = replica;
        self.process = process;
        self.dir = dir;
        self.admin = admin;
    }

    /// Stops it with `SIGSTOP` and waits until it has stopped: connections stay, answers do not come.
    ///
    /// What wants to look inside, such as [`get`](Self::get), has to wait until it resumes.
    pub fn pause(&self) {
        self.process().as_mut().expect("pause of a node that was killed").pause();
    }

    /// Lets it go on after [`pause`](Self::pause): it answers all that it was sent meanwhile.
    pub fn resume(&self) {
        self.process().as_mut().expect("resume of a node that was killed").resume();
    }

    /// Opens a connection, authenticated as a user who may do everything.
    pub fn connect(&self) -> Connection {
        let mut connection = Connection::to_port(self.port)
            .unwrap_or_else(|error| panic!("no connection to {self}: {error}\n{}", self.log()));
        if self.admin {
            let reply = connection.command(&["AUTH", ADMIN.0, ADMIN.1]).expect("a reply");
            assert_eq!(reply.error(), None, "AUTH at {self}");
        }
        connection
    }

    /// Sends one command on a connection of its own, and returns whatever comes back.
    pub fn cli<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply {
        self.connect()
            .command(args)
            .unwrap_or_else(|error| panic!("no answer from {self}: {error}\n{}", self.log()))
    }

    /// The value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Vec<u8>> {
        match self.cli(&[b"GET", key.as_ref()]) {
            Reply::Nil => None,
            Reply::Bulk(value) => Some(value),
            other => panic!("GET at {self}: {other:?}"),
        }
    }

    /// The milliseconds that a key has left: -1 for one that stays, -2 for one that is not there.
    pub fn pttl(&self, key: impl AsRef<[u8]>) -> i64 {
        self.cli(&[b"PTTL", key.as_ref()]).integer()
    }

    /// All keys, sorted. One by which a handshake tries what the server can do is waited for: where its connection
    /// ends in between, it stays for up to a second.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        eventually(format_args!("no key of a handshake at {self}"), || {
            keys = self.cli(&["KEYS", "*"]).array().iter().map(Reply::text).collect();
            !keys.iter().any(|key| key.starts_with("quorate:probe"))
        });
        keys.sort();
        keys
    }

    /// Sets a key to a string, for good.
    pub fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        assert_eq!(self.cli(&[b"SET", key.as_ref(), value.as_ref()]).text(), "OK");
    }

    /// Deletes everything.
    pub fn flushall(&self) {
        assert_eq!(self.cli(&["FLUSHALL"]).text(), "OK");
    }

    /// One field of INFO.
    pub fn info(&self, field: &str) -> String {
        let info = self.cli(&["INFO", "everything"]).text();
        info.lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
            .unwrap_or_else(|| panic!("INFO at {self} has no field {field}"))
            .to_owned()
    }

    /// What distinguishes one run of a node from another: 40 hex digits.
    pub fn run_id(&self) -> String {
        self.info("run_id")
    }

    /// Watches all commands from here on.
    pub fn monitor(&self) -> Monitor<'_> {
        Monitor::start(self)
    }

    fn process(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address())
    }
}

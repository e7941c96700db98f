//! Settings of a node to be, and how it gets its port.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::dir::TempDir;
use super::process::{Process, StartError};
use super::resp::Endpoint;
use super::{ADMIN, RedisServer};
use crate::proxy::Proxy;

/// How often a start picks another port after another process took the first one.
const PORT_TRIES: usize = 16;

/// Ports are taken from here: below what Linux, macOS and BSD hand out to outgoing connections.
///
/// A port from the ephemeral range can be taken by any client while its node is down, even by a
/// client that reconnects to that very node and so ends up talking to itself.
const PORTS: std::ops::Range<u32> = 10_000..32_000;

const TLS_FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/support/tls");

/// The certificate of the authority that nodes [with TLS](Builder::tls) are certified by: a file in
/// PEM. It certifies nothing else, and its key is gone.
pub const TEST_CA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/support/tls/ca.crt");

/// Settings of a [`RedisServer`] to be.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing runs until `start`"]
pub struct Builder {
    unix_socket: bool,
    tls: bool,
    admin: bool,
    directives: Vec<Directive>,
}

#[derive(Clone, Debug)]
struct Directive {
    name: String,
    values: Vec<String>,
}

impl Builder {
    /// Adds a line of `redis.conf`; the values are quoted as needed.
    pub fn config(mut self, directive: &str, values: &[&str]) -> Self {
        self.directives.push(Directive {
            name: directive.to_owned(),
            values: values.iter().map(ToString::to_string).collect(),
        });
        self
    }

    /// Demands a password of the default user.
    pub fn password(mut self, password: &str) -> Self {
        self.admin = true;
        self.config("requirepass", &[password])
    }

    /// Adds an ACL user, such as `("ann", "on >pw ~orders:* +@all")`; `default` is one, too.
    pub fn user(mut self, name: &str, rules: &str) -> Self {
        self.admin = true;
        let values: Vec<_> = [name].into_iter().chain(rules.split_whitespace()).collect();
        self.config("user", &values)
    }

    /// Listens on a unix socket and on no port.
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Listens on a port for TLS as well, as `localhost`, with a certificate of [`TEST_CA`].
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Logs every write to disk before it is answered: a restart loses nothing.
    pub fn append_only(self) -> Self {
        self.config("appendonly", &["yes"]).config("appendfsync", &["always"])
    }

    /// Bounds the memory: writes beyond it answer `OOM`, and nothing is evicted.
    pub fn max_memory(self, bytes: u64) -> Self {
        self.config("maxmemory", &[&bytes.to_string()]).config("maxmemory-policy", &["noeviction"])
    }

    /// Makes it a replica, which answers writes with `READONLY`.
    pub fn replica_of(self, primary: &RedisServer) -> Self {
        self.config("replicaof", &["127.0.0.1", &primary.port().to_string()])
    }

    /// Makes it a replica of the node behind a proxy, which can make it lag.
    pub fn replica_through(self, proxy: &Proxy) -> Self {
        self.config("replicaof", &["127.0.0.1", &proxy.port().to_string()])
    }

    /// Starts it, and waits until it is ready.
    #[must_use]
    pub fn start(self) -> RedisServer {
        for _ in 0..PORT_TRIES {
            let dir = TempDir::create();
            let endpoint = if self.unix_socket {
                Endpoint::Unix(dir.path().join("redis.sock"))
            } else {
                Endpoint::Tcp(free_port())
            };
            let tls_port = self.tls.then(free_port);
            match Process::start(dir.path(), &self.render(&endpoint, tls_port)) {
                Ok(process) => {
                    let process = Mutex::new(Some(process));
                    return RedisServer { endpoint, tls_port, admin: self.admin, process, dir };
                }
                Err(StartError::AddressInUse(_)) => {}
                Err(StartError::Died(log)) => panic!("redis-server did not start:\n{log}"),
            }
        }
        panic!("redis-server found no free port in {PORT_TRIES} tries");
    }

    fn render(&self, endpoint: &Endpoint, tls_port: Option<u16>) -> String {
        let mut lines = vec![String::from("bind 127.0.0.1\nsave \"\"")];
        match endpoint {
            Endpoint::Tcp(port) => lines.push(format!("port {port}")),
            Endpoint::Unix(path) => {
                let path = quote(&path.to_string_lossy());
                lines.push(format!("port 0\nunixsocket {path}"));
            }
        }
        if let Some(port) = tls_port {
            let file = |name: &str| quote(&format!("{TLS_FILES}/{name}"));
            lines.push(format!("tls-port {port}\ntls-auth-clients no"));
            lines.push(format!("tls-ca-cert-file {}", file("ca.crt")));
            lines.push(format!("tls-cert-file {}", file("server.crt")));
            lines.push(format!("tls-key-file {}", file("server.key")));
        }
        if self.admin {
            let (name, password) = ADMIN;
            lines.push(format!("user {name} on >{password} ~* +@all"));
        }
        for directive in &self.directives {
            let values = directive.values.iter().map(|value| quote(value));
            let words: Vec<_> = [directive.name.clone()].into_iter().chain(values).collect();
            lines.push(words.join(" "));
        }
        lines.join("\n") + "\n"
    }
}

/// A port that no process listens on, and that no other call in this process returned.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let span = PORTS.end - PORTS.start;
    loop {
        // Processes start at scattered places.
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let scattered = process::id().wrapping_mul(7919).wrapping_add(step);
        let port = (PORTS.start + scattered % span) as u16;
        assert!(step < span, "no free port on 127.0.0.1");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

fn quote(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

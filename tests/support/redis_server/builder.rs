//! Settings of a node to be, and how it gets its port.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::authority::{Authority, Certificate};
use super::process::Process;
use super::{ADMIN, RedisServer, temp_dir};

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
    tls: Option<Tls>,
    admin: bool,
    /// Lines of `redis.conf`.
    directives: Vec<String>,
}

/// The files of a node with TLS, and whether its clients need a certificate.
#[derive(Clone, Debug)]
struct Tls {
    ca: PathBuf,
    certificate: Certificate,
    clients: &'static str,
}

impl Builder {
    /// Adds a line of `redis.conf`; the values are quoted as needed.
    pub fn config(mut self, directive: &str, values: &[&str]) -> Self {
        let values: Vec<_> = values.iter().map(|value| quote(value)).collect();
        self.directives.push(format!("{directive} {}", values.join(" ")));
        self
    }

    /// Adds an ACL user, such as `("ann", "on >pw ~orders:* +@all")`; `default` is one, too.
    pub fn user(mut self, name: &str, rules: &str) -> Self {
        self.admin = true;
        let values: Vec<_> = [name].into_iter().chain(rules.split_whitespace()).collect();
        self.config("user", &values)
    }

    /// Listens on a port for TLS as well, as `localhost`, with a certificate of [`TEST_CA`].
    pub fn tls(mut self) -> Self {
        let [ca, cert, key] =
            ["ca.crt", "server.crt", "server.key"].map(|file| Path::new(TLS_FILES).join(file));
        self.tls = Some(Tls { ca, certificate: Certificate { cert, key }, clients: "no" });
        self
    }

    /// Listens on a port for TLS as well, as `localhost` and 127.0.0.1, with a certificate of this authority. Clients need
    /// one of it, too.
    pub fn tls_of(mut self, authority: &Authority) -> Self {
        let (ca, certificate) = (authority.ca(), authority.certify("server"));
        self.tls = Some(Tls { ca, certificate, clients: "yes" });
        self
    }

    /// Logs every write to disk before it is answered: a restart loses nothing.
    pub fn append_only(self) -> Self {
        self.config("appendonly", &["yes"]).config("appendfsync", &["always"])
    }

    /// Makes it a replica of the node at this port, or behind a proxy there, which can make it lag.
    pub fn replica_of(self, port: u16) -> Self {
        self.config("replicaof", &["127.0.0.1", &port.to_string()])
    }

    /// Makes it a sentinel, the only one of this group, which has the node at this port as its primary. It fails over when
    /// the primary has not replied for a second.
    pub fn sentinel_of(self, group: &str, port: u16) -> Self {
        let monitor = ["monitor", group, "127.0.0.1", &port.to_string(), "1"];
        let (down, failover) = ("down-after-milliseconds", "failover-timeout");
        let sentinel = self.config("sentinel", &monitor);
        sentinel
            .config("sentinel", &[down, group, "1000"])
            .config("sentinel", &[failover, group, "10000"])
    }

    /// Starts it, and waits until it is ready.
    pub fn start(self) -> RedisServer {
        for _ in 0..PORT_TRIES {
            let (dir, port, tls_port) =
                (temp_dir(), free_port(), self.tls.as_ref().map(|_| free_port()));
            match Process::start(dir.path(), &self.render(port, tls_port)) {
                Ok(process) => {
                    let process = Mutex::new(Some(process));
                    return RedisServer { port, tls_port, admin: self.admin, process, dir };
                }
                Err(log) if log.contains("Address already in use") => {}
                Err(log) => panic!("redis-server did not start:\n{log}"),
            }
        }
        panic!("redis-server found no free port in {PORT_TRIES} tries");
    }

    fn render(&self, port: u16, tls_port: Option<u16>) -> String {
        let mut lines =
            vec![format!("bind 127.0.0.1\nsave \"\"\nrepl-diskless-sync-delay 0\nport {port}")];
        if let (Some(port), Some(tls)) = (tls_port, &self.tls) {
            lines.push(format!("tls-port {port}\ntls-auth-clients {}", tls.clients));
            let Certificate { cert, key } = &tls.certificate;
            for (name, file) in [("ca-cert", &tls.ca), ("cert", cert), ("key", key)] {
                lines.push(format!("tls-{name}-file {}", quote(&file.display().to_string())));
            }
        }
        if self.admin {
            let (name, password) = ADMIN;
            lines.push(format!("user {name} on >{password} ~* +@all"));
        }
        lines.extend(self.directives.iter().cloned());
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

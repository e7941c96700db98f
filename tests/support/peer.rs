//! The other end of a TCP connection: a server that plays a script instead of a node.

use std::io::{self, BufRead, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::wait::receive;

/// What a peer does with a command.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// Sends these bytes.
    Say(&'static [u8]),
    /// Sends these bytes and closes the connection.
    Begin(&'static [u8]),
    /// Closes the connection.
    HangUp,
    /// Replies like a node that grants everything.
    Usual,
}

/// A command that a peer received.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The number of its connection, from 1 on.
    pub connection: usize,
    /// The command and its arguments.
    pub words: Vec<String>,
}

impl Heard {
    /// The command.
    pub fn name(&self) -> &str {
        &self.words[0]
    }

    /// Whether the command belongs to the handshake of a connection.
    fn is_question(&self) -> bool {
        self.name() == "SCRIPT" || self.words.iter().any(|word| word.starts_with("quorate:probe"))
    }
}

/// A TCP server on 127.0.0.1. When it is dropped, its connections end.
#[derive(Debug)]
pub struct Peer {
    address: SocketAddr,
    shared: Arc<Shared>,
    ended: Mutex<Receiver<()>>,
    listening: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    heard: Mutex<Vec<String>>,
    connections: Mutex<Vec<TcpStream>>,
    is_stopped: AtomicBool,
}

impl Peer {
    /// Starts a peer whose script is asked about all commands but those of a handshake.
    pub fn start(script: impl Fn(&Heard) -> Answer + Send + Sync + 'static) -> Self {
        Self::start_at(anywhere(), script)
    }

    /// Starts such a peer at an address.
    pub fn start_at(
        address: SocketAddr,
        script: impl Fn(&Heard) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let or_usual = move |it: &Heard| if it.is_question() { Answer::Usual } else { script(it) };
        Self::listen(address, move |shared, connection, stream| {
            serve(shared, connection, stream, &or_usual);
        })
    }

    /// Starts a peer whose script is asked about every command.
    pub fn with_handshake(script: impl Fn(&Heard) -> Answer + Send + Sync + 'static) -> Self {
        Self::listen(anywhere(), move |shared, connection, stream| {
            serve(shared, connection, stream, &script);
        })
    }

    /// Starts a peer that treats each connection as `behave` does, until either side has enough, and closes it then.
    pub fn raw(behave: impl Fn(&TcpStream) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self::listen(anywhere(), move |_, _, stream| drop(behave(stream)))
    }

    fn listen(
        address: SocketAddr,
        behave: impl Fn(&Shared, usize, &TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let (shared, (tell, ended)) = (Arc::<Shared>::default(), channel());
        let (seen, behave) = (Arc::clone(&shared), Arc::new(behave));
        let listening = thread::spawn(move || {
            for stream in listener.incoming() {
                if seen.is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                let stream = stream.expect("a client");
                stream.set_nodelay(true).expect("an open socket");
                let mut connections = lock(&seen.connections);
                connections.push(stream.try_clone().expect("an open socket"));
                let number = connections.len();
                let (seen, behave, tell) = (Arc::clone(&seen), Arc::clone(&behave), tell.clone());
                thread::spawn(move || {
                    behave(&seen, number, &stream);
                    let _ = stream.shutdown(Shutdown::Both);
                    let _ = tell.send(());
                });
            }
        });
        Self { address, shared, ended: Mutex::new(ended), listening: Some(listening) }
    }

    /// An address at which no process listens.
    pub fn nowhere() -> SocketAddr {
        let listener = TcpListener::bind(anywhere()).expect("a free port");
        listener.local_addr().expect("a bound socket")
    }

    /// The URL that clients take.
    pub fn url(&self) -> String {
        self.url_as("")
    }

    /// The same URL with a login, such as `ann:pass@`.
    pub fn url_as(&self, login: &str) -> String {
        format!("redis://{login}{}", self.address)
    }

    /// How many commands of this name have arrived, without those of handshakes.
    pub fn heard(&self, name: &str) -> usize {
        lock(&self.shared.heard).iter().filter(|heard| *heard == name).count()
    }

    /// How many connections were accepted.
    pub fn connections(&self) -> usize {
        lock(&self.shared.connections).len()
    }

    /// Waits until a connection has ended.
    pub fn wait_for_an_end(&self) {
        receive(&lock(&self.ended)).expect("the peer runs");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        // Wakes the listener up, which sees the flag and closes the port.
        drop(TcpStream::connect(self.address));
        let _ = self.listening.take().map(JoinHandle::join);
        for connection in lock(&self.shared.connections).drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Serves one connection until either side has enough.
fn serve(
    shared: &Shared,
    connection: usize,
    mut stream: &TcpStream,
    script: &impl Fn(&Heard) -> Answer,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let command = Heard { connection, words: read_command(&mut reader)? };
        if !command.is_question() {
            lock(&shared.heard).push(command.name().to_owned());
        }
        match script(&command) {
            Answer::Say(bytes) => stream.write_all(bytes).ok()?,
            Answer::Begin(bytes) => return stream.write_all(bytes).err().map(drop),
            Answer::HangUp => return None,
            Answer::Usual => {
                let port = stream.local_addr().ok()?.port();
                stream.write_all(usual(command.name(), port).as_bytes()).ok()?;
            }
        }
    }
}

/// The reply of a node that grants everything.
fn usual(command: &str, port: u16) -> String {
    match command {
        "PING" => "+PONG\r\n".into(),
        "HELLO" => "%1\r\n$5\r\nproto\r\n:3\r\n".into(),
        "GET" => "_\r\n".into(),
        "EVAL" | "EVALSHA" | "CLIENT" => ":1\r\n".into(),
        "DELIFEQ" | "DELEX" => "-ERR unknown command\r\n".into(),
        "INFO" => format!("$14\r\nrun_id:{port:05}\r\n\r\n"),
        _ => "+OK\r\n".into(),
    }
}

/// Reads an array of bulk strings, which is what clients send; or fred's `HELLO`, which is a line.
fn read_command(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let line = read_line(reader)?;
    let Some(count) = line.strip_prefix('*') else {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        return (!words.is_empty()).then_some(words);
    };
    let parts = (0..count.parse().ok()?).map(|_: usize| {
        let length: usize = read_line(reader)?.strip_prefix('$')?.parse().ok()?;
        let mut part = vec![0; length + 2];
        reader.read_exact(&mut part).ok()?;
        part.truncate(length);
        Some(String::from_utf8_lossy(&part).into_owned())
    });
    parts.collect()
}

fn read_line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    Some(line.trim_end().to_owned())
}

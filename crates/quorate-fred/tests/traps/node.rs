//! A node that plays a script, on a port of its own.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// What the node does with a command.
pub(crate) enum Answer {
    /// Says this, as it stands.
    Say(&'static str),
    /// Says this, as the beginning of an answer, and closes the connection.
    Begin(&'static str),
    /// Closes the connection.
    HangUp,
    /// What a node says to a login, and to the questions of a new connection; an error to anything else.
    Usual,
}

type Script = Box<dyn FnMut(&[String]) -> Answer + Send>;

/// Listens until it is dropped; then its connections are closed as well.
pub(crate) struct Node {
    address: SocketAddr,
    shared: Arc<Shared>,
    ended: Receiver<()>,
    listening: Option<thread::JoinHandle<()>>,
}

struct Shared {
    script: Mutex<Script>,
    heard: Mutex<Vec<String>>,
    connections: Mutex<Vec<TcpStream>>,
    is_stopped: AtomicBool,
    ended: Sender<()>,
}

impl Node {
    pub(crate) fn start(script: impl FnMut(&[String]) -> Answer + Send + 'static) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), script)
    }

    pub(crate) fn start_at(
        address: SocketAddr,
        script: impl FnMut(&[String]) -> Answer + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, ended) = channel();
        let shared = Arc::new(Shared {
            script: Mutex::new(Box::new(script)),
            heard: Mutex::default(),
            connections: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            ended: sender,
        });
        let accepting = Arc::clone(&shared);
        let listening = thread::spawn(move || accepting.listen(&listener));
        Self { address, shared, ended, listening: Some(listening) }
    }

    /// A port at which no process listens.
    pub(crate) fn nowhere() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// How often the command was heard, on all connections.
    pub(crate) fn heard(&self, command: &str) -> usize {
        let heard = self.shared.heard.lock().unwrap();
        heard.iter().filter(|name| *name == command).count()
    }

    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.lock().unwrap().len()
    }

    /// Closes all connections that there are.
    pub(crate) fn hang_up(&self) {
        for connection in self.shared.connections.lock().unwrap().iter() {
            // It may have ended before.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Waits until a connection has ended.
    #[expect(clippy::disallowed_methods, reason = "the event is waited for")]
    pub(crate) fn wait_for_an_end(&self) {
        self.ended.recv_timeout(crate::LIMIT).unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        // Wakes the listener up, which sees the flag and closes the port.
        drop(TcpStream::connect(self.address));
        if let Some(listening) = self.listening.take() {
            listening.join().unwrap();
        }
        for connection in self.shared.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn listen(self: &Arc<Self>, listener: &TcpListener) {
        for connection in listener.incoming() {
            if self.is_stopped.load(Ordering::SeqCst) {
                return;
            }
            let connection = connection.unwrap();
            connection.set_nodelay(true).unwrap();
            let kept = connection.try_clone().unwrap();
            self.connections.lock().unwrap().push(kept);
            let shared = Arc::clone(self);
            thread::spawn(move || {
                shared.serve(&connection);
                let _ = connection.shutdown(Shutdown::Both);
                let _ = shared.ended.send(());
            });
        }
    }

    /// Until one of the two has enough.
    fn serve(&self, mut connection: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(connection);
        loop {
            let command = read_command(&mut reader)?;
            if !is_question(&command) {
                self.heard.lock().unwrap().push(command[0].clone());
            }
            let answer = if is_question(&command) {
                Answer::Usual
            } else {
                (self.script.lock().unwrap())(&command)
            };
            let reply = match answer {
                Answer::Say(reply) => reply,
                Answer::Begin(reply) => {
                    connection.write_all(reply.as_bytes()).ok()?;
                    return None;
                }
                Answer::HangUp => return None,
                Answer::Usual => match command[0].as_str() {
                    "PING" => "+PONG\r\n",
                    "AUTH" | "SELECT" => "+OK\r\n",
                    "HELLO" => "%1\r\n$5\r\nproto\r\n:3\r\n",
                    "EVAL" | "EVALSHA" | "CLIENT" => ":1\r\n",
                    "SCRIPT" => "+sha1\r\n",
                    "INFO" => "$21\r\nrun_id:42\r\nx:1\r\ny:2\r\n\r\n",
                    _ => "-ERR not in the script\r\n",
                },
            };
            connection.write_all(reply.as_bytes()).ok()?;
        }
    }
}

/// Whether the command belongs to the handshake.
fn is_question(command: &[String]) -> bool {
    command[0] == "SCRIPT" || command.iter().any(|part| part == "quorate:probe")
}

/// Reads an array of bulk strings, which is what clients send; or fred's `HELLO`, which is a line.
fn read_command(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let line = read_line(reader)?;
    let Some(count) = line.strip_prefix('*') else {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        return (!words.is_empty()).then_some(words);
    };
    let parts = (0..count.parse().ok()?).map(|_: usize| {
        let len: usize = read_line(reader)?.strip_prefix('$')?.parse().ok()?;
        let mut part = vec![0; len + 2];
        reader.read_exact(&mut part).ok()?;
        part.truncate(len);
        String::from_utf8(part).ok()
    });
    parts.collect()
}

fn read_line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    Some(line.trim_end().to_owned())
}

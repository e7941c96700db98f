//! The other end of a TCP connection, which replies as a test says.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Accepts connections until the test process ends.
pub(crate) struct Peer {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    commands: Arc<Mutex<Vec<Vec<String>>>>,
}

impl Peer {
    /// Replies to each command, given with the number of its connection, from 1 on. Closes the
    /// connection where `say` says nothing.
    pub(crate) fn start(
        say: impl Fn(usize, &[String]) -> Option<&'static str> + Send + Sync + 'static,
    ) -> Self {
        let commands = Arc::<Mutex<Vec<Vec<String>>>>::default();
        let heard = Arc::clone(&commands);
        let peer = Self::raw(move |number, mut stream| {
            let mut reader = BufReader::new(stream.try_clone()?);
            while let Some(command) = read_command(&mut reader) {
                heard.lock().unwrap().push(command.clone());
                let reply = say(number, &command);
                let Some(reply) = reply else { break };
                stream.write_all(reply.as_bytes())?;
            }
            Ok(())
        });
        Self { commands, ..peer }
    }

    /// Treats each connection as `behave` says, and closes it then.
    pub(crate) fn raw(
        behave: impl Fn(usize, TcpStream) -> std::io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::<AtomicUsize>::default();
        let (count, behave) = (Arc::clone(&connections), Arc::new(behave));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (number, stream) = (count.fetch_add(1, Ordering::SeqCst) + 1, stream.unwrap());
                stream.set_nodelay(true).unwrap();
                let behave = Arc::clone(&behave);
                thread::spawn(move || behave(number, stream));
            }
        });
        Self { address, connections, commands: Arc::default() }
    }

    /// The URL, with a login.
    pub(crate) fn address_as(&self, login: &str) -> String {
        format!("redis://{login}{}", self.address)
    }

    pub(crate) fn address(&self) -> String {
        self.address_as("")
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// How many commands of this name have arrived.
    pub(crate) fn heard(&self, name: &str) -> usize {
        self.commands.lock().unwrap().iter().filter(|command| command[0] == name).count()
    }
}

/// The reply of a server that grants everything.
pub(crate) fn grant(command: &[String]) -> Option<&'static str> {
    Some(match command[0].as_str() {
        "HELLO" => "%1\r\n$5\r\nproto\r\n:3\r\n",
        "EVAL" | "EVALSHA" => ":1\r\n",
        "DELIFEQ" | "DELEX" => "-ERR unknown command\r\n",
        "INFO" => "$11\r\nrun_id:abcd\r\n",
        _ => "+OK\r\n",
    })
}

/// An address at which no process listens.
pub(crate) fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("redis://:hunter2@{}", listener.local_addr().unwrap())
}

/// Reads an array of bulk strings, which is what clients send.
fn read_command(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let count = read_number(reader, '*')?;
    let parts = (0..count).map(|_| {
        let length = read_number(reader, '$')?;
        let mut part = vec![0; length + 2];
        reader.read_exact(&mut part).ok()?;
        part.truncate(length);
        Some(String::from_utf8_lossy(&part).into_owned())
    });
    parts.collect()
}

fn read_number(reader: &mut impl BufRead, mark: char) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.trim_end().strip_prefix(mark)?.parse().ok()
}

/// Reads once, and returns what was there.
pub(crate) fn read_some(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4096];
    let length = stream.read(&mut bytes)?;
    bytes.truncate(length);
    Ok(bytes)
}

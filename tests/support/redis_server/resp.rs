//! A blocking RESP2 connection, small enough to be trusted.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::wait::LIMIT;

/// Where a node listens.
#[derive(Clone, Debug)]
pub(super) enum Endpoint {
    Tcp(u16),
    Unix(PathBuf),
}

/// What a node answered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "RESP2 has no other replies")]
pub enum Reply {
    /// `+OK`.
    Simple(String),
    /// `-ERR …`, without the dash.
    Error(String),
    /// `:1`.
    Integer(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// A null string or a null array.
    Nil,
    /// Replies in a row.
    Array(Vec<Self>),
}

impl Reply {
    /// A simple or a bulk string as text.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Simple(text) => text.clone(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("not a string: {other:?}"),
        }
    }

    /// An integer.
    #[must_use]
    pub fn integer(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            other => panic!("not an integer: {other:?}"),
        }
    }

    /// The replies of an array.
    #[must_use]
    pub fn array(self) -> Vec<Self> {
        match self {
            Self::Array(replies) => replies,
            other => panic!("not an array: {other:?}"),
        }
    }

    /// The text of an error, if it is one.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(text) => Some(text),
            _ => None,
        }
    }
}

/// A connection to one node.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<Stream>,
}

impl Connection {
    /// Connects to a node on 127.0.0.1.
    pub fn to_port(port: u16) -> io::Result<Self> {
        Self::open(&Endpoint::Tcp(port))
    }

    pub(super) fn open(endpoint: &Endpoint) -> io::Result<Self> {
        let stream = match endpoint {
            Endpoint::Tcp(port) => Stream::Tcp(TcpStream::connect((Ipv4Addr::LOCALHOST, *port))?),
            Endpoint::Unix(path) => Stream::Unix(UnixStream::connect(path)?),
        };
        let mut connection = Self { stream: BufReader::new(stream) };
        connection.set_read_timeout(LIMIT)?;
        Ok(connection)
    }

    /// Sends a command and reads its reply.
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.send(args)?;
        self.receive()
    }

    /// Sends a command and does not wait.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            let arg = arg.as_ref();
            bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            bytes.extend_from_slice(arg);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes)
    }

    /// Reads the next reply, or what a node pushes.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| garbage(&line))?;
        Ok(match kind {
            "+" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Integer(rest.parse().map_err(|_| garbage(&line))?),
            "$" | "*" if rest == "-1" => Reply::Nil,
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().map_err(|_| garbage(&line))? + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(bytes)
            }
            "*" => {
                let count: usize = rest.parse().map_err(|_| garbage(&line))?;
                Reply::Array((0..count).map(|_| self.receive()).collect::<io::Result<_>>()?)
            }
            _ => return Err(garbage(&line)),
        })
    }

    /// Bounds how long [`receive`](Self::receive) waits for the next bytes.
    pub fn set_read_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        match self.stream.get_ref() {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        if self.stream.read_until(b'\n', &mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(line.trim_end_matches("\r\n").to_owned())
    }
}

fn garbage(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP2: {line:?}"))
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buffer),
            Self::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

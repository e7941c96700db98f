//! A blocking RESP2 connection, small enough to be trusted.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use crate::wait::LIMIT;

/// What a node answered.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub fn text(&self) -> String {
        match self {
            Self::Simple(text) => text.clone(),
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => panic!("not a string: {other:?}"),
        }
    }

    /// An integer.
    pub fn integer(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            other => panic!("not an integer: {other:?}"),
        }
    }

    /// The replies of an array.
    pub fn array(self) -> Vec<Self> {
        match self {
            Self::Array(replies) => replies,
            other => panic!("not an array: {other:?}"),
        }
    }

    /// The text of an error, if it is one.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Error(text) => Some(text),
            _ => None,
        }
    }
}

/// A connection to one node.
#[derive(Debug)]
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Connects to a node on 127.0.0.1.
    pub fn to_port(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self(BufReader::new(stream)))
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
        self.0.get_mut().write_all(&bytes)
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
                self.0.read_exact(&mut bytes)?;
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

    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        if self.0.read_until(b'\n', &mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = String::from_utf8(line).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(line.trim_end_matches("\r\n").to_owned())
    }
}

fn garbage(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not RESP2: {line:?}"))
}

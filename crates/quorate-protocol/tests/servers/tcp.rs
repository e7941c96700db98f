//! A third client: plain TCP with RESP3.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use quorate_core::{BackendError, BackendErrorKind};
use quorate_protocol::{Command, Connection, Dial, Push, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// The address of a server.
#[derive(Debug)]
pub(crate) struct Tcp(pub(crate) String);

/// A connection: one task writes, and one reads.
pub(crate) struct TcpConnection {
    shared: Arc<Shared>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    written: Notify,
}

#[derive(Default)]
struct State {
    output: Vec<u8>,
    awaited: VecDeque<oneshot::Sender<Value>>,
    is_closed: bool,
}

impl Dial for Tcp {
    type Connection = TcpConnection;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.0)
    }

    async fn connect(
        &self,
        push: impl Fn(Push) + Send + Sync + 'static,
    ) -> Result<TcpConnection, BackendError> {
        let error = |error: std::io::Error| {
            BackendError::new(BackendErrorKind::Connection, error.to_string()).with_source(error)
        };
        let stream = TcpStream::connect(&self.0).await.map_err(error)?;
        stream.set_nodelay(true).map_err(error)?;
        let (read, write) = stream.into_split();
        let shared = Arc::<Shared>::default();
        let reading = tokio::spawn(read_all(read, Arc::clone(&shared), push));
        let writing = tokio::spawn(write_all(write, Arc::clone(&shared)));
        let connection = TcpConnection { shared, tasks: [reading, writing] };
        match connection.send(vec![Command::new("HELLO", 2).number(3)]).await.remove(0)? {
            Value::Error(text) => Err(quorate_protocol::error_of_reply(&text)),
            _ => Ok(connection),
        }
    }
}

impl Connection for TcpConnection {
    async fn send(&self, commands: Vec<Command>) -> Vec<Result<Value, BackendError>> {
        let answers: Vec<_> = {
            let mut state = self.shared.state.lock().unwrap();
            if state.is_closed {
                return commands
                    .iter()
                    .map(|_| {
                        Err(BackendError::new(BackendErrorKind::Connection, "closed").not_sent())
                    })
                    .collect();
            }
            let enqueue = |command: &Command| {
                state.output.extend_from_slice(format!("*{}\r\n", command.count()).as_bytes());
                for part in command.parts() {
                    state.output.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
                    state.output.extend_from_slice(part);
                    state.output.extend_from_slice(b"\r\n");
                }
                let (slot, answer) = oneshot::channel();
                state.awaited.push_back(slot);
                answer
            };
            commands.iter().map(enqueue).collect()
        };
        self.shared.written.notify_one();
        let mut replies = Vec::new();
        for answer in answers {
            replies.push(answer.await.map_err(|_| {
                BackendError::new(BackendErrorKind::Connection, "the connection ended")
            }));
        }
        replies
    }

    fn is_closed(&self) -> bool {
        self.shared.state.lock().unwrap().is_closed
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn write_all(mut write: OwnedWriteHalf, shared: Arc<Shared>) {
    loop {
        shared.written.notified().await;
        let output = std::mem::take(&mut shared.state.lock().unwrap().output);
        if write.write_all(&output).await.is_err() {
            return; // The reader sees the end as well.
        }
    }
}

async fn read_all(mut read: OwnedReadHalf, shared: Arc<Shared>, push: impl Fn(Push)) {
    let mut input = Vec::new();
    while let Ok(1..) = read.read_buf(&mut input).await {
        while let Some((kind, reply, length)) = parse(&input) {
            input.drain(..length);
            match reply {
                // An invalidation message: the keys come last, and a nil means all of them.
                Value::List(mut parts) if kind == b'>' => match parts.pop() {
                    Some(Value::List(keys)) => keys.into_iter().for_each(|key| match key {
                        Value::Text(key) => push(Push::Key(key)),
                        _ => push(Push::AllKeys),
                    }),
                    _ => push(Push::AllKeys),
                },
                reply => {
                    let slot = shared.state.lock().unwrap().awaited.pop_front();
                    drop(slot.map(|slot| slot.send(reply)));
                }
            }
        }
    }
    // The slots that are dropped read *lost*.
    *shared.state.lock().unwrap() = State { is_closed: true, ..State::default() };
    push(Push::ConnectionLost);
}

/// The first reply, its first byte and its length, once all of it is there.
fn parse(input: &[u8]) -> Option<(u8, Value, usize)> {
    let end = input.windows(2).position(|pair| pair == b"\r\n")?;
    let (kind, line, mut length) = (input[0], &input[1..end], end + 2);
    let text = || String::from_utf8_lossy(line).into_owned();
    let number = || text().parse::<i64>().unwrap_or_default();
    let reply = match kind {
        b'-' => Value::Error(text().into()),
        b':' => Value::Int(number()),
        b'_' => Value::Nil,
        b'$' | b'*' if number() < 0 => Value::Nil,
        b'$' | b'=' => {
            let end = length + number() as usize;
            let bytes = input.get(length..end + 2)?[..end - length].to_vec();
            length = end + 2;
            Value::Text(bytes)
        }
        b'*' | b'~' | b'>' | b'%' => {
            let mut parts = Vec::new();
            for _ in 0..number() * if kind == b'%' { 2 } else { 1 } {
                let (_, part, taken) = parse(&input[length..])?;
                parts.push(part);
                length += taken;
            }
            Value::List(parts)
        }
        _ => Value::Text(line.to_vec()),
    };
    Some((kind, reply, length))
}

//! One redis-rs connection.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quorate_core::{BackendError, BackendErrorKind};
use quorate_protocol::{Command, Connection, Push, USUAL_SIZE, Value};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, PushInfo, PushKind};

use crate::error::{of_redis, reply};

/// One connection of redis-rs, which never reconnects.
///
/// Clones share it. It ends with the last of them.
#[derive(Clone)]
pub struct RedisConnection {
    connection: MultiplexedConnection,
    is_resp3: bool,
    is_closed: Arc<AtomicBool>,
    /// Host and port, of the primary of a group.
    primary: Option<(String, u16)>,
}

impl RedisConnection {
    /// A connection without a response timeout. `is_closed` becomes true when it ends.
    pub(crate) fn new(
        connection: MultiplexedConnection,
        is_resp3: bool,
        is_closed: Arc<AtomicBool>,
    ) -> Self {
        Self { connection, is_resp3, is_closed, primary: None }
    }

    /// The same connection, to a primary that sentinels have named.
    pub(crate) fn of_primary(self, host: String, port: u16) -> Self {
        Self { primary: Some((host, port)), ..self }
    }

    pub(crate) const fn primary(&self) -> Option<&(String, u16)> {
        self.primary.as_ref()
    }

    /// Our clone of a connection that belongs to a user's pool.
    pub(crate) fn of_user(connection: &MultiplexedConnection) -> Self {
        let mut connection = connection.clone();
        // The nearest to none that a clone can be given. Without it, a call would settle while its
        // command can still be executed, and a release on another connection could overtake it
        // (C3).
        connection.set_response_timeout(Duration::MAX);
        Self::new(connection, false, Arc::default())
    }
}

/// A command of redis-rs.
///
/// `Debug` shows nothing of it: an argument may be a token (A6).
pub struct Packed(Cmd);

impl Command for Packed {
    fn new(name: &str) -> Self {
        Self(Cmd::with_capacity(8, USUAL_SIZE)).arg(name)
    }

    fn arg(mut self, part: impl AsRef<[u8]>) -> Self {
        self.0.arg(part.as_ref());
        self
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packed").finish_non_exhaustive()
    }
}

impl Connection for RedisConnection {
    type Command = Packed;

    async fn send(&self, commands: Vec<Packed>) -> Vec<Result<Value, BackendError>> {
        let count = commands.len();
        if self.is_closed() {
            let text = "the connection has ended";
            let error = BackendError::new(BackendErrorKind::Connection, text).not_sent();
            return vec![Err(error); count];
        }
        let mut pipeline = Pipeline::with_capacity(count);
        for packed in commands {
            pipeline.add_command(packed.0);
        }
        let mut connection = self.connection.clone();
        // Unlike `query_async`, it returns an error reply in its place among the others.
        match connection.send_packed_commands(&pipeline, 0, count).await {
            Ok(values) => values.into_iter().map(|value| Ok(reply(value))).collect(),
            Err(error) => {
                // Its replies may not be awaited any more.
                self.is_closed.store(true, Ordering::Release);
                vec![Err(of_redis(&error)); count]
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn receives_pushes(&self) -> bool {
        self.is_resp3
    }
}

impl fmt::Debug for RedisConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConnection")
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// Passes on what redis-rs pushes. redis-rs drops it when the connection ends, for whatever reason.
pub(crate) struct Listener<F: Fn(Push)> {
    pub(crate) push: F,
    pub(crate) is_closed: Arc<AtomicBool>,
}

impl<F: Fn(Push)> Listener<F> {
    pub(crate) fn hear(&self, info: PushInfo) {
        if info.kind != PushKind::Invalidate {
            return;
        }
        // A nil stands for all keys.
        match info.data.into_iter().next() {
            Some(redis::Value::Array(keys)) => keys.into_iter().for_each(|key| match reply(key) {
                Value::Text(key) => (self.push)(Push::Key(key)),
                _ => (self.push)(Push::AllKeys),
            }),
            _ => (self.push)(Push::AllKeys),
        }
    }
}

impl<F: Fn(Push)> Drop for Listener<F> {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        (self.push)(Push::ConnectionLost);
    }
}

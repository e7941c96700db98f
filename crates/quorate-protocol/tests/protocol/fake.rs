//! A client without a server: it records what is handed to it, and replies as the test says.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use quorate_core::{BackendError, BackendErrorKind};
use quorate_protocol::{Connection, Credentials, Dial, Parts, Push, Value};
use tokio::sync::oneshot;

type Script = Option<Box<dyn FnMut(&[String]) -> Option<Value> + Send>>;

/// A client whose connections the test holds in its hand.
#[derive(Clone)]
pub(crate) struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
pub(crate) struct State {
    connects: usize,
    lines: BTreeMap<usize, Line>, // The connections that are there. The methods are about the latest.
    sent: Vec<Sent>,
    batches: usize,
    is_holding: bool,
    pub(crate) refusal: Option<BackendError>,
    pub(crate) is_hanging: bool,
    pub(crate) misses_flushes: bool,
    pub(crate) is_resp2: bool,
    pub(crate) replies_twice: bool,
    /// Whether the address leads to another server by now; `None` if it never can.
    pub(crate) has_moved: Option<bool>,
    script: Script,
}

struct Line {
    push: Box<dyn Fn(Push) + Send + Sync>,
    pending: VecDeque<Pending>,
}

struct Pending {
    replies: Vec<Value>,
    slot: oneshot::Sender<Vec<Result<Value, BackendError>>>,
}

/// A command that was handed to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) connection: usize,
    pub(crate) batch: usize,
    pub(crate) parts: Vec<String>,
}

impl Sent {
    /// The keys and the token of each claim, or each key of one, if several calls share the script.
    pub(crate) fn claims(&self) -> Option<Vec<(Vec<String>, String)>> {
        claims(&self.parts)
    }
}

/// The scripts of several releases and of several extensions, by their text.
const SHARED: [&str; 2] = [
    concat!(
        include_str!("../../scripts/is_freed.lua"),
        include_str!("../../scripts/release_many.lua")
    ),
    include_str!("../../scripts/extend_many.lua"),
];

/// The scripts that acquire, of a lock and of a reader, by their text.
const ACQUIRES: [&str; 2] = [
    concat!(
        include_str!("../../scripts/has_readers.lua"),
        include_str!("../../scripts/held_at.lua"),
        include_str!("../../scripts/no_guard.lua"),
        include_str!("../../scripts/acquire.lua")
    ),
    concat!(
        include_str!("../../scripts/has_readers.lua"),
        include_str!("../../scripts/held_at.lua"),
        include_str!("../../scripts/no_guard.lua"),
        include_str!("../../scripts/shared.lua"),
        include_str!("../../scripts/shared_acquire.lua")
    ),
];

fn runs(parts: &[String], script: &str) -> bool {
    match parts[0].as_str() {
        "EVALSHA" => parts[1] == sha1_smol::Sha1::from(script).digest().to_string(),
        "EVAL" => parts[1] == script,
        _ => false,
    }
}

pub(crate) fn claims(parts: &[String]) -> Option<Vec<(Vec<String>, String)>> {
    let place = SHARED.iter().position(|script| runs(parts, script))?;
    let (keys, arguments) = parts[3..].split_at(parts[2].parse().unwrap());
    let mut keys = keys.iter().cloned();
    let mut claim =
        |count: usize, token: &String| (keys.by_ref().take(count).collect(), token.clone());
    Some(match place {
        // A release has one reply a key.
        0 => arguments.iter().map(|token| claim(1, token)).collect(),
        _ => arguments.chunks(3).map(|it| claim(it[1].parse().unwrap(), &it[0])).collect(),
    })
}

impl State {
    fn latest(&mut self) -> &mut Line {
        self.lines.values_mut().last().unwrap()
    }
}

impl Fake {
    /// A server that replies as `script` says, and where that says nothing, as one on which each command works.
    pub(crate) fn with(script: impl FnMut(&[String]) -> Option<Value> + Send + 'static) -> Self {
        let script: Script = Some(Box::new(script));
        Self(Arc::new(Mutex::new(State { script, ..State::default() })))
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(crate) fn connects(&self) -> usize {
        self.lock().connects
    }

    pub(crate) fn is_connected(&self) -> bool {
        !self.lock().lines.is_empty()
    }

    /// All commands but those about a connection, as they were handed over.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.lock().sent.clone()
    }

    /// The first key of each call, without what belongs to the wait queue.
    pub(crate) fn keys(&self) -> Vec<String> {
        let keys = |sent: Sent| match sent.claims() {
            Some(claims) => claims.into_iter().map(|(keys, _)| keys[0].clone()).collect(),
            None => {
                let place = if sent.parts[0].starts_with("EVAL") { 3 } else { 1 };
                vec![sent.parts[place].trim_end_matches(":quorate:waiters").to_owned()]
            }
        };
        self.sent().into_iter().flat_map(keys).collect()
    }

    pub(crate) fn batches(&self) -> Vec<usize> {
        self.sent().chunk_by(|one, other| one.batch == other.batch).map(<[Sent]>::len).collect()
    }

    /// Keeps replies back from now on, or no longer. It settles none.
    pub(crate) fn hold(&self, is_holding: bool) {
        self.lock().is_holding = is_holding;
    }

    /// Replies to the oldest pipeline that waits.
    pub(crate) fn settle_one(&self) {
        let oldest = self.lock().latest().pending.pop_front().unwrap();
        oldest.slot.send(oldest.replies.into_iter().map(Ok).collect()).unwrap();
    }

    /// Replies to all that wait, and at once from now on.
    pub(crate) fn settle(&self) {
        self.lock().is_holding = false;
        while !self.lock().latest().pending.is_empty() {
            self.settle_one();
        }
    }

    /// Ends the connection after `replies` more replies.
    pub(crate) fn end_after(&self, replies: usize) {
        let (_, line) = self.lock().lines.pop_last().unwrap();
        let mut left = 0..replies;
        for pending in line.pending {
            let ended = || BackendError::new(BackendErrorKind::Connection, "the test ended it");
            let answers = pending.replies.into_iter();
            let answers = answers.map(|reply| left.next().map(|_| reply).ok_or_else(ended));
            let _ = pending.slot.send(answers.collect());
        }
        (line.push)(Push::ConnectionLost);
    }

    /// Ends the connection without a push that says so.
    pub(crate) fn end_silently(&self) {
        let (_, line) = self.lock().lines.pop_last().unwrap();
        assert!(line.pending.is_empty(), "not silent: replies are awaited");
    }

    pub(crate) fn push(&self, push: Push) {
        (self.lock().latest().push)(push);
    }
}

impl fmt::Debug for Fake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fake")
    }
}

impl Dial for Fake {
    type Connection = FakeConnection;

    fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed("fake:6379")
    }

    fn pushes_flushes(&self) -> bool {
        !self.lock().misses_flushes
    }

    fn can_move(&self) -> bool {
        self.lock().has_moved.is_some()
    }

    async fn has_moved(&self, _: &FakeConnection, _: Duration) -> bool {
        self.lock().has_moved == Some(true)
    }

    async fn connect(
        &self,
        _: Option<&Credentials>,
        _: Duration,
        push: impl Fn(Push) + Send + Sync + 'static,
    ) -> Result<FakeConnection, BackendError> {
        let is_hanging = {
            let mut state = self.lock();
            state.connects += 1;
            if let Some(refusal) = &state.refusal {
                return Err(refusal.clone());
            }
            state.is_hanging
        };
        if is_hanging {
            pending::<()>().await;
        }
        let mut state = self.lock();
        let number = state.connects;
        state.lines.insert(number, Line { push: Box::new(push), pending: VecDeque::new() });
        Ok(FakeConnection { fake: self.clone(), number })
    }
}

pub(crate) struct FakeConnection {
    fake: Fake,
    number: usize,
}

impl Connection for FakeConnection {
    type Command = Parts;

    async fn send(&self, commands: Vec<Parts>) -> Vec<Result<Value, BackendError>> {
        // As a client that goes through a channel of tokio: this waits if the budget is spent.
        for _ in 0..200 {
            tokio::task::consume_budget().await;
        }
        let answered = {
            let mut state = self.fake.lock();
            if !state.lines.contains_key(&self.number) {
                let closed = BackendError::new(BackendErrorKind::Connection, "closed").not_sent();
                return commands.iter().map(|_| Err(closed.clone())).collect();
            }
            let mut replies = Vec::new();
            let mut is_setup = true;
            for command in commands {
                let part = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
                let parts: Vec<String> = command.iter().map(part).collect();
                let (scripted, setup) = (state.script.as_mut().unwrap()(&parts), ordinary(&parts));
                let is_command = setup.is_none();
                replies.push(scripted.or(setup).unwrap_or_else(|| granting(&parts)));
                if is_command {
                    is_setup = false;
                    let (connection, batch) = (self.number, state.batches);
                    state.sent.push(Sent { connection, batch, parts });
                }
            }
            state.batches += 1;
            if !is_setup && std::mem::take(&mut state.replies_twice) {
                replies.extend(replies.last().cloned());
            }
            if is_setup || !state.is_holding {
                return replies.into_iter().map(Ok).collect();
            }
            let (slot, answered) = oneshot::channel();
            let line = state.lines.get_mut(&self.number).unwrap();
            line.pending.push_back(Pending { replies, slot });
            answered
        };
        answered.await.unwrap()
    }

    fn is_closed(&self) -> bool {
        !self.fake.lock().lines.contains_key(&self.number)
    }

    fn receives_pushes(&self) -> bool {
        !self.fake.lock().is_resp2
    }
}

impl Drop for FakeConnection {
    fn drop(&mut self) {
        self.fake.lock().lines.remove(&self.number);
    }
}

/// The replies of an ordinary server to the questions of a new connection.
fn ordinary(parts: &[String]) -> Option<Value> {
    let is_probe = parts.iter().any(|part| part.starts_with("quorate:probe"));
    match (parts[0].as_str(), parts[1].as_str()) {
        ("SCRIPT", "LOAD") => Some(Value::Text(b"sha1".to_vec())),
        ("EVALSHA" | "EVAL", _) if is_probe => Some(Value::Int(1)),
        ("DELIFEQ" | "DELEX", _) if is_probe => {
            Some(Value::Error(format!("ERR unknown command '{}'", parts[0]).into()))
        }
        // The reply to a refusal.
        ("SET", _) if is_probe => Some(Value::Text(parts[2].clone().into_bytes())),
        ("INFO", "server") => Some(Value::Text(b"redis_version:7\r\nrun_id:abc\r\n".to_vec())),
        ("INFO", "replication") => Some(Value::Text(b"role:master\r\n".to_vec())),
        ("CLIENT", "SETNAME" | "TRACKING" | "CACHING") => Some(Value::Text(b"OK".to_vec())),
        _ => None,
    }
}

fn granting(parts: &[String]) -> Value {
    if let Some(claims) = claims(parts) {
        return Value::List(vec![Value::Int(1); claims.len()]);
    }
    if ACQUIRES.iter().any(|script| runs(parts, script)) {
        return Value::List([&b"granted"[..], b"0"].map(|text| Value::Text(text.into())).to_vec());
    }
    match parts[0].as_str() {
        "SET" if parts.last().is_some_and(|part| part == "GET") => Value::Nil,
        "SET" | "GET" => Value::Text(b"OK".to_vec()),
        _ => Value::Int(1),
    }
}

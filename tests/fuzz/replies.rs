//! A node that replies whatever it likes.

use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt as _;
use quorate_core::FencingToken;
use quorate_core::backend::Entry;
use quorate_core::backend::{
    AcquireOptions, BackendError, BackendErrorKind, CallReply, CallResult, Choice, Claim,
    FenceHint, Mode, Operation, ReleaseOptions, RestartGuard, Revoke, Ttl, Vote,
};
use quorate_core::resource::{Key, Resource, Token};
use quorate_protocol::{Connection, Parts, Value, error_of_reply, exchange, handshake};

use super::Bytes;

/// The text of the token.
const TOKEN: &str = "abababababababababababababababababababab";

/// What servers say, and what nearly looks like it.
const TEXTS: [&str; 20] = [
    "",
    "ERR",
    "NOSCRIPT No matching script.",
    "WRONGTYPE Operation against a key",
    "NOPERM User joe has no permissions to run the 'del' command",
    "NOPERM No permissions to access a key",
    "READONLY You can't write against a read only replica.",
    "LOADING Redis is loading the dataset in memory",
    "NOAUTH Authentication required.",
    "MOVED 1 10.0.0.1:6379",
    "QUORATEINFO the restart guard needs INFO: ERR not from scripts",
    "QUORATEFENCE no number is left",
    "QUORATEMAXTTL its max_ttl is 60000 ms, not 10000 ms",
    "ERR Error running script (call to f_01b9): @user_script:17: @user_script: 17: -OOM no room",
    "@user_script: 3: The user executing the script can't run this command",
    "ERR unknown command 'SET', with args beginning with: 'k' \
     'abababababababababababababababababababab'",
    "run_id:0123456789abcdef\r\nredis_version:7.2.0\r\n",
    "OK",
    "9007199254740993",
    "abababababababababababababababababababab",
];

const NUMBERS: [i64; 8] = [0, 1, 2, -1, -2, 1 << 53, i64::MAX, i64::MIN];

/// A connection whose replies are read from the input.
struct Any<'a>(Mutex<(Bytes<'a>, Vec<Sent>)>);

/// The name of a command, and what came back.
type Sent = (Vec<u8>, Result<Value, BackendError>);

impl Connection for Any<'static> {
    type Command = Parts;

    async fn send(&self, commands: Vec<Parts>) -> Vec<Result<Value, BackendError>> {
        let mut state = self.0.lock().unwrap();
        let (bytes, sent) = &mut *state;
        // The last reply is missing in one of 16 cases.
        let count = commands.len() - usize::from(bytes.below(16) == 15);
        let replies: Vec<_> = (0..count).map(|_| reply(bytes)).collect();
        let names = commands.iter().map(|it| it.iter().next().unwrap_or_default().to_vec());
        let missing = BackendError::new(BackendErrorKind::Protocol, "no reply");
        let recorded =
            replies.iter().cloned().chain(std::iter::repeat_with(|| Err(missing.clone())));
        sent.extend(names.zip(recorded));
        assert!(sent.len() < 64, "an operation without an end");
        replies
    }

    fn is_closed(&self) -> bool {
        false
    }
}

fn reply(bytes: &mut Bytes<'_>) -> Result<Value, BackendError> {
    let lost = BackendError::new(BackendErrorKind::Connection, "reset");
    match bytes.below(16) {
        0 => Err(lost),
        1 => Err(lost.not_sent()),
        _ => Ok(value(bytes, 3)),
    }
}

fn value(bytes: &mut Bytes<'_>, depth: usize) -> Value {
    match bytes.below(if depth == 0 { 5 } else { 6 }) {
        0 => Value::Okay,
        1 => Value::Nil,
        2 => Value::Int(NUMBERS[bytes.below(8)]),
        3 => Value::Text(text(bytes).into_bytes()),
        4 => Value::Error(text(bytes).into()),
        _ => Value::List((0..bytes.below(6)).map(|_| value(bytes, depth - 1)).collect()),
    }
}

/// A text of the list, or one of the input's bytes.
fn text(bytes: &mut Bytes<'_>) -> String {
    let known = TEXTS.get(bytes.below(TEXTS.len() + 4)).map(|text| (*text).to_owned());
    known.unwrap_or_else(|| {
        let length = bytes.below(24).min(bytes.0.len());
        let (text, rest) = bytes.0.split_at(length);
        bytes.0 = rest;
        String::from_utf8_lossy(text).into_owned()
    })
}

pub(super) fn run(bytes: &mut Bytes<'_>) {
    let operation = operation(bytes);
    // The bytes are copied, since a connection lives for ever as far as its type says.
    let input: &'static [u8] = Box::leak(bytes.0.to_vec().into_boxed_slice());
    let connection = Any(Mutex::new((Bytes(input), Vec::new())));
    let features = handshake(&connection).now_or_never().expect("every reply is there at once");
    let Ok(mut features) = features else { return };
    connection.0.lock().unwrap().1.clear();
    let result = exchange(&connection, &mut features, &operation).now_or_never();
    let result = result.expect("every reply is there at once");
    judge(&operation, &result, &connection.0.lock().unwrap().1);
}

fn operation(bytes: &mut Bytes<'_>) -> Operation {
    let token = Token::draw(|random| {
        random.fill(0xab);
        Ok(())
    });
    let key = |name: &str| Key::new(b"", &Resource::new(name).unwrap());
    let keys = [key("k"), key("l")];
    let ttl = Ttl::try_from(Duration::from_secs(10)).unwrap();
    let claim = Claim::new(&keys[..1 + bytes.below(2)], token.unwrap(), ttl);
    let mode = if bytes.below(3) == 0 { Mode::Shared } else { Mode::Exclusive };
    let claim = claim.with_mode(mode);
    let (key, number) = (key("k"), FencingToken::new(7).unwrap());
    let mut acquire = AcquireOptions::default();
    acquire.fencing = FenceHint::new(5).filter(|_| bytes.below(2) == 1);
    acquire.guard = Some(RestartGuard::strict(ttl.as_duration())).filter(|_| bytes.below(2) == 1);
    let mut release = ReleaseOptions::default();
    release.raise_to = Some(number).filter(|_| bytes.below(2) == 1);
    release.asks = Some(keys.clone().into()).filter(|_| bytes.below(2) == 1);
    acquire.asks = bytes.below(2) == 1;
    let entry = Entry::new(*b"0123");
    match bytes.below(13) {
        0 => Operation::Acquire(claim, acquire),
        1 => Operation::Extend(claim, Default::default()),
        2 => Operation::Raise(claim, number),
        3 => Operation::Release(claim, release),
        4 => Operation::Refresh { key, entry, locks: claim.keys().into(), choice: Choice::Any },
        5 => Operation::Leave { key, entry, also: Some(Entry::new(*b"p4")) },
        6 => Operation::Watch { key, entry: None },
        7 => Operation::Inspect { key },
        8 => Operation::Revoke { key, how: Revoke::replace(claim.token().clone()) },
        9 => Operation::Revoke { key, how: Revoke::delete() },
        10 => Operation::Describe,
        11 => Operation::Look(claim.with_mode(Mode::Exclusive)),
        _ => Operation::ServerId,
    }
}

fn judge(operation: &Operation, result: &CallResult, sent: &[Sent]) {
    let error = result.as_ref().err().map(ToString::to_string);
    let shown = format!("{operation:?} {result:?} {error:?}");
    let echoed = sent.iter().any(|(_, reply)| match reply {
        // The arguments of a command are cut out of an error; a node that says only the token is not.
        Ok(Value::Error(text)) => error_of_reply(text).to_string().contains(TOKEN),
        _ => false,
    });
    assert!(echoed || !shown.contains(TOKEN), "A6: {shown}");

    let calls = sent.iter().filter(|(name, _)| *name != *b"SCRIPT");
    // A `GET` asks who has a key that was refused, and its reply is no vote.
    let asks_holder = |name: &[u8]| name == b"GET" && matches!(operation, Operation::Acquire(..));
    let (holders, calls): (Vec<_>, Vec<_>) = calls.partition(|(name, _)| asks_holder(name));
    let is_refusal =
        matches!(result, Ok(CallReply::Voted(reply)) if matches!(reply.vote, Vote::Refused));
    assert!(holders.is_empty() || is_refusal, "C6: {result:?}");
    assert!(holders.len() <= 1, "the holder is asked for once");
    if matches!(operation, Operation::Acquire(..) | Operation::Refresh { .. }) {
        assert!(calls.len() <= 1, "C3, C6: more than one command that can set a key");
    }
    assert!(calls.len() <= 4, "{} commands of one operation", calls.len());
    let Some((_, last)) = calls.last() else {
        assert!(result.as_ref().is_err_and(BackendError::is_not_sent), "an answer of no command");
        return;
    };
    let is_wrong_type = matches!(last, Ok(Value::Error(text)) if text.contains("WRONGTYPE"));
    let vote = match result {
        Ok(CallReply::Voted(reply)) => Some(reply.vote),
        _ => None,
    };
    match last {
        Err(_) => assert!(result.is_err(), "Q4: a lost reply is no answer"),
        // What a user may not read is missing in a description.
        Ok(Value::Error(_)) if matches!(operation, Operation::Describe) => {}
        Ok(Value::Error(_)) => assert!(result.is_err() || is_wrong_type, "Q4: {last:?}"),
        Ok(Value::Nil) => assert_ne!(vote, Some(Vote::Granted), "Q4"),
        Ok(_) => {}
    }
    if let Err(error) = result {
        let is_lost = matches!(last, Err(lost) if !lost.is_not_sent());
        assert!(!(is_lost && error.is_not_sent()), "C3: a command that may have left");
    }
}

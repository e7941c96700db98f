//! The first pipeline of a connection: it loads the scripts, and finds out what the server has and
//! allows.

use quorate_core::backend::ListTask;
use quorate_core::runtime::os_random;
use quorate_core::{BackendError, BackendErrorKind};

use crate::command::Command;
use crate::connection::Connection;
use crate::error_reply::{because, error_of_reply};
use crate::features::{self, CompareAndDelete, Features};
use crate::group::NodeGroup;
use crate::operation::{SCRIPTS, WHEN_FULL, tracked};
use crate::script::{By, Script, script};
use crate::value::{Value, no_reply, read};

/// What a connection is for, which decides what the server is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// All commands, with client tracking where the server has it.
    Commands,
    /// Watches only, with client tracking.
    Watches,
}

/// Calls GET, DEL, PTTL and PEXPIRE. Returns 1, or the errors with the names of the commands in
/// front.
///
/// The release script alone would not get beyond its GET on a key that does not exist.
static PROBE: Script = script!("probe");

/// The beginning of a key that no other connection has. It is gone when the handshake is over, or a
/// millisecond later; where the connection ends in between, after a second.
const KEY: &str = "quorate:probe";

/// Makes a new connection ready, and finds out what its server has and allows.
///
/// # Errors
///
/// The connection is of no use: no user is logged in, the server is loading its data, or keys could
/// be set and never released. Then the error names the missing permission, and no key of a lock was
/// set. Or the connection ended, or a reply makes no sense.
///
/// # Cancel safety
///
/// The future can be dropped at any time. Some of the scripts may be loaded then.
pub async fn handshake(connection: &impl Connection) -> Result<Features, BackendError> {
    begin(connection, None, Vec::new()).await.map(|(features, _)| features)
}

/// Asks all questions, and sends these commands behind them.
async fn begin<C: Connection>(
    connection: &C,
    group: Option<&NodeGroup>,
    others: Vec<C::Command>,
) -> Result<(Features, Answers), BackendError> {
    let mut commands = questions();
    let of_features = commands.len();
    commands.extend(group.map(NodeGroup::read).unwrap_or_default());
    let all_questions = commands.len();
    commands.extend(others);
    let mut replies = connection.send(commands).await;
    let others = replies.split_off(all_questions.min(replies.len()));
    let of_group = replies.split_off(of_features.min(replies.len()));
    let mut features = read_features(replies)?;
    if let Some(group) = group {
        features.note_group(group, "", of_group, &ListTask::Nothing);
    }
    Ok((features, others))
}

type Answers = Vec<Result<Value, BackendError>>;

/// Switches client tracking on. `NOLOOP`: a change by this connection is pushed to others only.
fn track<C: Command>(how: &[&str]) -> C {
    how.iter().fold(C::new("CLIENT").arg("TRACKING"), |command, word| command.arg(word))
}

/// What an operator sees of a connection in `CLIENT LIST`.
const CLIENT_NAME: &str = "quorate";

/// Names the connection. A server or a user without the command has a connection without a name.
fn set_name<C: Command>(name: &str) -> C {
    C::new("CLIENT").arg("SETNAME").arg(name)
}

impl Purpose {
    /// As [`handshake`], with what the node says of this group; for watches it switches client
    /// tracking on.
    pub(crate) async fn handshake<C: Connection>(
        self,
        connection: &C,
        group: Option<&NodeGroup>,
    ) -> Result<Features, BackendError> {
        match self {
            Self::Commands => {
                let receives = connection.receives_pushes();
                let mut commands = vec![set_name(CLIENT_NAME)];
                if receives {
                    commands.extend([track(&["ON", "OPTIN", "NOLOOP"]), tracked()]);
                }
                let (mut features, mut replies) = begin(connection, group, commands).await?;
                let mut is_done = || replies.pop().is_some_and(|reply| read(reply).is_ok());
                if receives {
                    (features.opts_in, features.tracks) = (is_done(), is_done());
                }
                if features.tracks && !features.opts_in {
                    // The user may not opt in. So the server tracks the keys of all commands.
                    let commands = vec![track(&["OFF"]), track(&["ON", "NOLOOP"])];
                    let reply = connection.send(commands).await.pop();
                    features.tracks = reply.is_some_and(|reply| read(reply).is_ok());
                }
                Ok(features)
            }
            Self::Watches if !connection.receives_pushes() => {
                Err(BackendError::unsupported("nothing can be watched without RESP3"))
            }
            Self::Watches => {
                let name = format!("{CLIENT_NAME}:watches");
                let mut replies = connection.send(vec![set_name(&name), track(&["ON"])]).await;
                let told = read(replies.pop().unwrap_or_else(no_reply));
                told.map_err(|error| {
                    let error = because("this node cannot watch keys", &error);
                    // In words of its own, as a proxy has them.
                    let is_lack = error.kind() == BackendErrorKind::Other;
                    if is_lack { BackendError::unsupported(error.to_string()) } else { error }
                })?;
                Ok(Features::new(Ok(By::Sha)))
            }
        }
    }
}

/// The commands that load all scripts, those for full servers last.
pub(crate) fn loads<C: Command>(when_full: bool) -> impl Iterator<Item = C> {
    let when_full = WHEN_FULL.into_iter().filter(move |_| when_full);
    SCRIPTS.into_iter().chain(when_full).map(Script::load)
}

fn questions<C: Command>() -> Vec<C> {
    let mut random = [0; 8];
    // Without random bytes, another connection may have the same key, with the same value.
    let _ = os_random(&mut random);
    let key = format!("{KEY}:{:016x}", u64::from_le_bytes(random));
    let set = |condition, ttl| {
        let command = C::new("SET").arg(&key).arg(&key).arg(condition);
        command.arg("PX").number(ttl)
    };
    let run = |by| PROBE.run::<C>(by, 1).arg(&key);
    let delete = |how: CompareAndDelete| how.command(key.as_bytes(), key.as_bytes());
    // A proxy, or a server that calls itself Redis 7, may reply nil to the second one, and a nil is
    // a grant (Q4).
    let mut commands = vec![set("NX", 1_000).arg("GET"), set("NX", 1_000).arg("GET"), set("XX", 1)];
    commands.extend(loads(true));
    commands.extend([
        PROBE.load(),
        run(By::Sha),
        run(By::Text),
        // A user who may not use the key may not run the other two. A command that he may not run
        // is refused before its key.
        PROBE.run::<C>(By::Text, 0).arg(&key),
        // `COMMAND LIST` does not say what the user may run.
        delete(CompareAndDelete::DelIfEq),
        delete(CompareAndDelete::DelEx),
        features::info("server"),
        features::info("replication"),
    ]);
    commands
}

fn read_features(replies: Vec<Result<Value, BackendError>>) -> Result<Features, BackendError> {
    let mut replies = replies.into_iter();
    let mut next = || answer(replies.next().unwrap_or_else(no_reply));
    let (_, refused, _) = (next()?, next()?, next()?);
    let mut is_loaded = true;
    for _ in SCRIPTS {
        is_loaded &= next()?.is_ok();
    }
    let mut runs_when_full = true;
    for _ in WHEN_FULL {
        runs_when_full &= next()?.is_ok();
    }
    is_loaded &= next()?.is_ok();
    let (by_sha, by_text, without_key) = (next()?, next()?, next()?);
    let unproven = |by| without_key.map_or(Ok(Ok(by)), |reply| Ok(probed(&reply)?.map(|()| by)));
    let scripts = match (by_sha, by_text) {
        (Ok(reply), _) if is_loaded => probed(&reply)?.map(|()| By::Sha),
        (_, Ok(reply)) => probed(&reply)?.map(|()| By::Text),
        (Err(error), Err(_)) if is_loaded && !error.is_lack() => unproven(By::Sha)?,
        (_, Err(error)) if !error.is_lack() => unproven(By::Text)?,
        (_, Err(error)) => Err(because("this node runs no scripts", &error)),
    };
    let mut features = Features::new(scripts);
    features.runs_when_full = runs_when_full;
    for how in [CompareAndDelete::DelIfEq, CompareAndDelete::DelEx] {
        if has_compare_and_delete(next()?)? {
            features.compare_and_delete.get_or_insert(how);
        }
    }
    if let Ok(reply) = next()? {
        features.server = features::server_id(&reply)?;
        features.names_holder = features::has_set_nx_get(&reply) && names_holder(refused, &reply);
    }
    features.no_vote = next()?.ok().as_ref().and_then(features::writable_replica);
    match (&features.scripts, features.compare_and_delete) {
        // The next connection may be that of another user.
        (Err(missing), None) => Err(missing.clone().particular()),
        _ => Ok(features),
    }
}

/// Whether a `SET … NX … GET` that was refused named the holder.
fn names_holder(refused: Result<Value, BackendError>, info: &Value) -> bool {
    match refused {
        Ok(Value::Text(held)) => held.starts_with(KEY.as_bytes()),
        Ok(_) => false,
        // This user may not use that key, or the node is full. So the server's own word counts.
        Err(_) => features::is_redis_or_valkey(info),
    }
}

/// Sorts a reply. An error that concerns the whole node ends the handshake.
fn answer(reply: Result<Value, BackendError>) -> Result<Result<Value, BackendError>, BackendError> {
    use BackendErrorKind::{Auth, Loading};

    match read(Ok(reply?)) {
        Err(error) if matches!(error.kind(), Auth | Loading) => Err(error),
        answer => Ok(answer),
    }
}

/// What the probe found: a command that the user may not run. An error about the key proves
/// nothing.
fn probed(reply: &Value) -> Result<Result<(), BackendError>, BackendError> {
    let errors = match reply {
        Value::Int(1) => return Ok(Ok(())),
        Value::List(errors) => errors,
        reply => return Err(reply.unexpected("a script")),
    };
    for error in errors {
        let Value::Text(text) = error else { return Err(reply.unexpected("a script")) };
        let text = String::from_utf8_lossy(text);
        let (command, text) = text.split_once(' ').unwrap_or_default();
        let error = error_of_reply(text);
        if error.is_lack() {
            return Ok(Err(because(&format!("scripts may not run {command} here"), &error)));
        }
    }
    Ok(Ok(()))
}

fn has_compare_and_delete(answer: Result<Value, BackendError>) -> Result<bool, BackendError> {
    match answer {
        Ok(Value::Int(_)) => Ok(true),
        Ok(reply) => Err(reply.unexpected("a compare-and-delete")),
        // `Other`: another server's command of this name.
        Err(error) => Ok(!error.is_lack() && error.kind() != BackendErrorKind::Other),
    }
}

//! From the command line to a lock manager.

use std::time::Duration;
use std::{env, fs};

use quorate::{LockManager, LockManagerBuilder, RestartGuard};

use crate::args::Common;
use crate::exit::Failure;
use crate::say;

/// The default ttl of the library.
const TTL: Duration = Duration::from_secs(10);

/// The settings of a manager, of which no node has been asked yet.
pub(crate) fn builder(common: &Common) -> Result<LockManagerBuilder, Failure> {
    let addresses = addresses(common)?;
    let nodes = quorate::redis::connect(addresses).map_err(Failure::permanent)?;
    let mut builder = LockManager::builder(nodes);
    if let Some(prefix) = &common.prefix {
        builder = builder.key_prefix(prefix.as_bytes());
    }
    if let Some(max_ttl) = common.guard_max_ttl {
        builder = builder.restart_guard(RestartGuard::strict(max_ttl));
    }
    Ok(builder)
}

/// A manager for questions. Its ttl is the default one, or the longest that the restart guard allows.
pub(crate) fn manager(common: &Common) -> Result<LockManager, Failure> {
    let longest = common.guard_max_ttl.map(|max_ttl| RestartGuard::strict(max_ttl).max_ttl());
    let ttl = longest.map_or(TTL, |longest| longest.min(TTL));
    Ok(builder(common)?.ttl(ttl).label(label(None)).build()?)
}

/// The addresses of the nodes: of the options, of the file, or of the environment.
fn addresses(common: &Common) -> Result<Vec<String>, Failure> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    let addresses: Vec<String> = match (&common.nodes_file, env::var("QUORATE_NODES")) {
        _ if !common.nodes.is_empty() => {
            if common.nodes.iter().any(|address| has_password(address)) && !common.quiet {
                say::line(
                    "a password in --nodes can be seen by every user of this machine: \
                     use QUORATE_NODES or --nodes-file",
                );
            }
            common.nodes.clone()
        }
        (Some(file), _) => {
            let text = fs::read_to_string(file);
            words(&text.map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?)
        }
        (None, Ok(text)) => words(&text),
        (None, Err(_)) => Vec::new(),
    };
    if addresses.is_empty() {
        return Err(Failure::usage("no nodes: give --nodes, --nodes-file or QUORATE_NODES"));
    }
    Ok(addresses)
}

/// Whether a password stands behind the user, or in a parameter.
fn has_password(address: &str) -> bool {
    let (place, parameters) = address.split_once('?').unwrap_or((address, ""));
    let (scheme, place) = place.split_once("://").unwrap_or(("", place));
    let login = place.rsplit_once('@').filter(|_| !scheme.contains("unix"));
    let password = login.and_then(|(login, _)| login.split_once(':'));
    password.is_some_and(|(_, password)| !password.is_empty())
        || parameters.split('&').any(|pair| pair.starts_with("pass="))
}

/// The label of a holder: the one given, or `user@host:pid`.
pub(crate) fn label(given: Option<&str>) -> String {
    let user = env::var("USER").or_else(|_| env::var("LOGNAME"));
    let user = user.unwrap_or_else(|_| rustix::process::getuid().as_raw().to_string());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let own = || format!("{user}@{host}:{}", std::process::id());
    given.map_or_else(own, str::to_owned)
}

/// How long close waits for the nodes.
pub(crate) const CLOSE: Duration = Duration::from_secs(2);

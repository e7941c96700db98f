//! From the command line to a lock manager.

use std::future::ready;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use quorate::error::BuildError;
use quorate::redis::redis::{ClientTlsConfig, TlsCertificates};
use quorate::redis::{ConnectError, IntoDial as _, RedisDial, RedisNode};
use quorate::resource::Label;
use quorate::{LockManager, RestartGuard};

use crate::args::{Common, Held};
use crate::exit::{Failure, PERMANENT};
use crate::say;

/// The default ttl of the library.
const TTL: Duration = Duration::from_secs(10);

/// A manager of which no node has been asked yet: for a lock that is held so, or for questions. The
/// ttl of those is the default one, or the longest that the restart guard allows.
pub(crate) fn open(common: &Common, held: Option<&Held>) -> Result<LockManager, Failure> {
    let longest = common.guard_max_ttl.map_or(TTL, |max_ttl| TTL.min(*max_ttl));
    let label = held.and_then(|held| held.label.clone()).unwrap_or_else(own_label);
    let mut builder = LockManager::builder(nodes(common)?).ttl(held.map_or(longest, Held::ttl));
    builder = builder.label(label).key_prefix(common.prefix.clone().unwrap_or_default());
    if let Some(timeout) = common.node_timeout {
        builder = builder.node_timeout(*timeout);
    }
    if let Some(max_ttl) = common.guard_max_ttl {
        builder = builder.restart_guard(RestartGuard::strict(*max_ttl));
    }
    builder.build().map_err(|error| match error {
        BuildError::DuplicateNode { .. } => {
            let tip = "a name that stands for several servers is one node: \
                       give each server by a name of its own";
            Failure::new(PERMANENT, format!("{error}; {tip}"))
        }
        _ => Failure::usage(error),
    })
}

/// A node for each address.
fn nodes(common: &Common) -> Result<Vec<RedisNode>, Failure> {
    if common.nodes.iter().any(|address| has_password(address)) && !common.quiet {
        say::line(
            "a password in --nodes can be seen by every user of this machine: \
             use QUORATE_NODES or --nodes-file",
        );
    }
    let (given, certificates) = (common.clone(), certificates(common)?);
    let builder = quorate::redis::builder().connect_timeout(common.connect_timeout);
    let builder =
        builder.tls(certificates).when_refused(move |name| ready(read_again(&given, &name)));
    let builder = match &common.group {
        Some(group) if common.is_new_group => builder.new_group(group),
        Some(group) => builder.group(group),
        None if common.is_new_group => return Err(Failure::usage("--accept needs --group")),
        None => builder,
    };
    let (mut nodes, mut has_tls) = (Vec::new(), false);
    for (place, address) in addresses(common)? {
        let is_quoted = address.starts_with(['"', '\'']);
        let marks = if is_quoted { "; leave the quotation marks out" } else { "" };
        nodes.extend(builder.connect([&address]).map_err(|error| match error {
            ConnectError::InvalidCertificates { .. } => Failure::usage(error),
            _ => Failure::new(PERMANENT, format!("{place}{error}{marks}")),
        })?);
        let scheme = address.to_ascii_lowercase();
        has_tls |= scheme.starts_with("rediss") || scheme.starts_with("valkeys");
    }
    // A variable may stand for other nodes as well.
    if common.wants_tls && !has_tls {
        let text = "--tls-ca, --tls-cert and --tls-key need an address with TLS: rediss://";
        return Err(Failure::usage(text));
    }
    Ok(nodes)
}

/// The node of this name, as the files say by now, of addresses and of certificates: they may have
/// changed since the node has refused a login.
fn read_again(common: &Common, name: &str) -> Option<RedisDial> {
    let files = [&common.nodes_file, &common.tls_ca, &common.tls_cert, &common.tls_key];
    let mut files = files.into_iter().flatten().peekable();
    // A pipe has said all, and the next read may wait for ever.
    let is_file = |file: &PathBuf| fs::metadata(file).is_ok_and(|file| file.is_file());
    if files.peek().is_none() || !files.all(is_file) {
        return None;
    }
    let addresses = addresses(common).ok()?.into_iter();
    let mut dials = addresses.filter_map(|(_, address)| address.as_str().into_dial().ok());
    let dial = dials.find(|dial| dial.node_name() == name)?;
    dial.with_certificates(&certificates(common).ok()?).ok()
}

/// The addresses of the nodes, each behind its place: of the options, of the file, or of the
/// environment.
fn addresses(common: &Common) -> Result<Vec<(String, String)>, Failure> {
    let variable = "QUORATE_NODES";
    let (place, text) = match &common.nodes_file {
        Some(file) => (path(file), read(file)?),
        None if common.nodes.is_empty() => {
            let text = env::var_os(variable).unwrap_or_default().into_string();
            let text = text.map_err(|_| Failure::usage(format!("{variable}: it is not UTF-8")))?;
            (variable.into(), text)
        }
        None => ("--nodes".into(), common.nodes.join("\n")),
    };
    let mut addresses = Vec::new();
    // Some editors begin a file with a mark.
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
        addresses.extend(words.map(|word| (format!("{place}:{}: ", at + 1), word.to_owned())));
    }
    if addresses.is_empty() {
        let text = format!("{place}: no nodes: give --nodes, --nodes-file or {variable}");
        return Err(Failure::usage(text));
    }
    Ok(addresses)
}

/// The certificates for TLS: without options, those of the system.
fn certificates(common: &Common) -> Result<TlsCertificates, Failure> {
    let client_tls = match (&common.tls_cert, &common.tls_key) {
        (Some(cert), Some(key)) => {
            let (client_cert, client_key) = (pem(cert, "CERTIFICATE")?, pem(key, "PRIVATE KEY")?);
            Some(ClientTlsConfig { client_cert, client_key })
        }
        (None, None) => None,
        _ => return Err(Failure::usage("--tls-cert and --tls-key need each other")),
    };
    let root_cert = common.tls_ca.as_ref().map(|file| pem(file, "CERTIFICATE")).transpose()?;
    Ok(TlsCertificates { client_tls, root_cert })
}

/// Reads a file in which something of this kind stands.
fn pem(file: &Path, kind: &str) -> Result<Vec<u8>, Failure> {
    let text = read(file)?;
    match text.contains(&format!("{kind}-----")) {
        true => Ok(text.into_bytes()),
        false => Err(Failure::usage(format!("{}: no {kind} in PEM", path(file)))),
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    let text = fs::read_to_string(file);
    text.map_err(|error| Failure::usage(format!("{}: {error}", path(file))))
}

fn path(file: &Path) -> String {
    say::shown(&file.to_string_lossy())
}

/// Whether a password stands behind the user, or in a parameter: `pass` or `sentinel_password`.
fn has_password(address: &str) -> bool {
    let (place, parameters) = address.split_once('?').unwrap_or((address, ""));
    let (scheme, place) = place.split_once("://").unwrap_or(("", place));
    let login = place.rsplit_once('@').filter(|_| !scheme.contains("unix"));
    let password = login.and_then(|(login, _)| login.split_once(':'));
    password.is_some_and(|(_, password)| !password.is_empty()) || parameters.contains("pass")
}

/// The label of a holder that gives none: `user@host:pid`, which never fails.
fn own_label() -> String {
    let name = |variable| env::var(variable).ok().filter(|name| !name.is_empty());
    let user = ["USER", "LOGNAME"].into_iter().find_map(name);
    let user = user.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Label::lossy(&format!("{user}@{host}:{}", std::process::id())).as_str().to_owned()
}

/// How long close waits for nodes that answer. One that hangs is told after a node timeout.
pub(crate) const CLOSE: Duration = Duration::from_secs(5);

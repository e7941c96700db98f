//! Addresses: no text makes a client panic, and no error or name shows a password (A6).

use std::str;

use quorate_protocol::without_secrets;

const SECRET: &str = "s3cret";

pub(super) fn run(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let _ = shown(text);
    let mut parts = text.splitn(4, '\n').chain(["", "", ""]);
    let [scheme, user, end, place] = [(); 4].map(|()| parts.next().unwrap_or_default());
    // A user or a place may be called as the secret is, and so may the path of a socket.
    let address = format!("{scheme}://{user}:{SECRET}{end}@{place}");
    let is_path = address.split_once("://").is_some_and(|(scheme, rest)| {
        scheme.to_ascii_lowercase().contains("unix") && rest.starts_with('/')
    });
    if is_path || [scheme, user, place].iter().any(|part| part.contains(SECRET)) {
        return;
    }
    for text in shown(&address) {
        assert!(!text.contains(SECRET), "{text}");
    }
}

/// All that is shown of an address.
fn shown(address: &str) -> Vec<String> {
    let redis = quorate::redis::connect([address]).map(|nodes| format!("{nodes:?}"));
    let fred = quorate::fred::connect([address]).map(|nodes| format!("{nodes:?}"));
    let redis = redis.unwrap_or_else(|error| format!("{error} {error:?}"));
    let fred = fred.unwrap_or_else(|error| format!("{error} {error:?}"));
    vec![without_secrets(address), redis, fred]
}

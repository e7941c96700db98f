//! A `redis-server` for the tests, from the system's package manager.

use std::env;

use crate::cmd::{Cmd, Outcome, is_in_path};

const BY_HAND: &str = "no redis-server and no package manager that this tool knows: install redis \
                       or valkey yourself, and put it in PATH or name it in QUORATE_REDIS_SERVER";

const APT: &str = "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes \
                   --no-install-recommends redis-server";

/// Makes sure that the tests find a node to run.
pub(crate) fn install() -> Outcome {
    let is_there = || {
        let is_named = env::var_os("QUORATE_REDIS_SERVER").is_some();
        is_named || ["redis-server", "valkey-server"].into_iter().any(is_in_path)
    };
    if !is_there() {
        let as_root = Cmd::new(&["id", "-u"]).read()?.trim() == "0";
        plan(is_in_path, as_root)?.run()?;
    }
    let why = "the package is installed, but there is no redis-server in PATH";
    if is_there() { Ok(()) } else { Err(why.to_owned()) }
}

/// What to run on this system, by the programs that it has.
fn plan(has: impl Fn(&str) -> bool, as_root: bool) -> Outcome<Cmd> {
    let known = [
        ("apt-get", APT),
        ("dnf", "dnf install --assumeyes valkey"),
        ("brew", "brew install redis"),
    ];
    let (manager, command) = known.into_iter().find(|(name, _)| has(name)).ok_or(BY_HAND)?;
    match manager == "brew" || as_root {
        true => Ok(Cmd::new(&["sh", "-c", command])),
        false if has("sudo") => Ok(Cmd::new(&["sudo", "sh", "-c", command])),
        false => Err(format!("no redis-server: run this as root\n{command}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_is_asked_in_its_own_way_or_the_user_is_told_what_to_do() {
        let by_hand = "no redis-server: run this as root\ndnf install --assumeyes valkey";
        for (programs, as_root, expected) in [
            (&["apt-get"][..], true, Ok(format!("sh -c {APT}"))),
            (&["dnf", "sudo"], false, Ok("sudo sh -c dnf install --assumeyes valkey".to_owned())),
            (&["brew", "sudo"], false, Ok("sh -c brew install redis".to_owned())),
            (&["sudo"], true, Err(BY_HAND.to_owned())),
            (&["dnf"], false, Err(by_hand.to_owned())),
        ] {
            let command = plan(|program| programs.contains(&program), as_root);
            assert_eq!(command.map(|command| command.to_string()), expected);
        }
    }
}

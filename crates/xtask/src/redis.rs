//! A `redis-server` for the tests, from the system's package manager.

use std::env;

use crate::cmd::{Cmd, Outcome, is_in_path};

const BY_HAND: &str = "no redis-server and no package manager that this tool knows: install \
                       redis or valkey yourself, and put it in PATH or name it in QUORATE_REDIS_SERVER";

const APT: &str = "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes \
                   --no-install-recommends redis-server";

/// Makes sure that the tests find a node to run.
pub(crate) fn install() -> Outcome {
    if is_there(is_in_path) {
        return Ok(());
    }
    let as_root = Cmd::new(&["id", "-u"]).read()?.trim() == "0";
    plan(is_in_path, as_root)?.run()?;
    let why = "the package is installed, but there is no redis-server in PATH";
    if is_there(is_in_path) { Ok(()) } else { Err(why.to_owned()) }
}

fn is_there(has: impl Fn(&str) -> bool) -> bool {
    env::var_os("QUORATE_REDIS_SERVER").is_some() || has("redis-server") || has("valkey-server")
}

/// What to run on this system, by the programs that it has.
fn plan(has: impl Fn(&str) -> bool, as_root: bool) -> Outcome<Cmd> {
    let known = [
        ("apt-get", APT),
        ("dnf", "dnf install --assumeyes valkey"),
        ("brew", "brew install redis"),
    ];
    let (manager, command) = known.into_iter().find(|(name, _)| has(name)).ok_or(BY_HAND)?;
    let shell = ["sh", "-c", command];
    match manager == "brew" || as_root {
        true => Ok(Cmd::new(&shell)),
        false if has("sudo") => Ok(Cmd::new(&["sudo"]).args(&shell)),
        false => Err(format!("no redis-server: run this as root\n{command}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(has: &[&str], as_root: bool) -> Result<String, String> {
        plan(|program| has.contains(&program), as_root).map(|command| command.to_string())
    }

    #[test]
    fn each_system_is_asked_in_its_own_way() {
        assert_eq!(shown(&["apt-get"], true), Ok(format!("sh -c {APT}")));
        let dnf = "sudo sh -c dnf install --assumeyes valkey";
        assert_eq!(shown(&["dnf", "sudo"], false).as_deref(), Ok(dnf));
        assert_eq!(shown(&["brew", "sudo"], false).as_deref(), Ok("sh -c brew install redis"));
    }

    #[test]
    fn where_nothing_can_be_installed_the_user_is_told_what_to_do() {
        assert_eq!(shown(&["sudo"], true), Err(BY_HAND.to_owned()));
        let why = shown(&["dnf"], false).expect_err("neither root nor sudo");
        assert!(why.ends_with("\ndnf install --assumeyes valkey"), "{why}");
    }

    #[test]
    fn a_valkey_is_as_good_as_a_redis() {
        assert!(is_there(|program| program == "valkey-server"));
        assert!(is_there(|program| program == "redis-server"));
    }
}

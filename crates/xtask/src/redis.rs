//! A `redis-server` for the tests, from the system's package manager.

use std::env;

use crate::cmd::{Cmd, Outcome, is_in_path};

const BY_HAND: &str = "no redis-server and no package manager that this tool knows: install \
                       redis or valkey yourself, and put it in PATH or name it in QUORATE_REDIS_SERVER";

/// Makes sure that the tests find a node to run.
pub(crate) fn install() -> Outcome {
    if is_there(is_in_path) {
        return Ok(());
    }
    let as_root = is_root()?;
    for command in plan(is_in_path, as_root)? {
        command.run()?;
    }
    if is_there(is_in_path) {
        Ok(())
    } else {
        Err("the package is installed, but there is no redis-server in PATH".to_owned())
    }
}

fn is_there(has: impl Fn(&str) -> bool) -> bool {
    env::var_os("QUORATE_REDIS_SERVER").is_some() || has("redis-server") || has("valkey-server")
}

fn is_root() -> Outcome<bool> {
    Ok(Cmd::new("id").args(&["-u"]).read()?.trim() == "0")
}

/// What to run on this system, by the programs that it has.
fn plan(has: impl Fn(&str) -> bool, as_root: bool) -> Outcome<Vec<Cmd>> {
    let may_install = as_root || has("sudo");
    let root = |words: &[&str]| match words {
        [program, args @ ..] if as_root => Cmd::new(program).args(args),
        _ => Cmd::new("sudo").args(words),
    };
    let commands = if has("apt-get") {
        let quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install"];
        let what = ["--yes", "--no-install-recommends", "redis-server"];
        vec![root(&["apt-get", "update"]), root(&[&quiet[..], &what[..]].concat())]
    } else if has("dnf") {
        vec![root(&["dnf", "install", "--assumeyes", "valkey"])]
    } else if has("brew") {
        return Ok(vec![Cmd::new("brew").args(&["install", "redis"])]);
    } else {
        return Err(BY_HAND.to_owned());
    };
    if may_install {
        Ok(commands)
    } else {
        let commands: Vec<_> = commands.iter().map(ToString::to_string).collect();
        let commands = commands.join("\n").replace("sudo ", "");
        Err(format!("no redis-server: run this as root\n{commands}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(has: &[&str], as_root: bool) -> Result<Vec<String>, String> {
        let plan = plan(|program| has.contains(&program), as_root)?;
        Ok(plan.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn each_system_is_asked_in_its_own_way() {
        let apt = shown(&["apt-get"], true).expect("root may");
        assert_eq!(apt[0], "apt-get update");
        assert!(apt[1].ends_with("--no-install-recommends redis-server"));
        let dnf = shown(&["dnf", "sudo"], false).expect("sudo may");
        assert_eq!(dnf, ["sudo dnf install --assumeyes valkey"]);
        let brew = shown(&["brew", "sudo"], false).expect("no root needed");
        assert_eq!(brew, ["brew install redis"]);
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

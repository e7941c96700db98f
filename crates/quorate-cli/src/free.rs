//! `free`: takes a lock away from the holder that is shown, and from no other.

use std::io::{self, IsTerminal as _};

use quorate::LockManager;
use quorate::operators::{Leaving, LockState};

use crate::args::{Common, Free};
use crate::exit::{Failure, HELD};
use crate::inspect::{Seen, find, unclear};
use crate::nodes::open;
use crate::say;

/// Takes a lock away, and returns the exit code.
///
/// Under a name that is free, the mark of this period is deleted. Permits, and what runs in this
/// period, are named only: the name does not say whose lock is meant.
pub(crate) async fn free(common: &Common, free: &Free) -> Result<u8, Failure> {
    let manager = open(common, None)?;
    let given = std::slice::from_ref(&free.name);
    let (mut seen, others) = find(&manager, given, &free.under).await?;
    let is_found = !others.is_empty();
    let (mut code, mut runs) = (0, String::new());
    for other in others {
        if other.found.is_done() {
            seen.push(other);
            continue;
        }
        say::report(other.line())?;
        match other.found.state() {
            LockState::Unclear => code = code.max(unclear(&other.found)),
            _ => runs = format!("{runs} {}", say::shown(&other.name.text)),
        }
    }
    for one in &seen {
        let (text, one_code) = free_one(&manager, free, one, &runs).await?;
        say::report(format!("{}: {text}", say::shown(&one.name.text)))?;
        code = code.max(one_code);
    }
    // Not all periods and permits are looked for.
    let is_said = free.under.permits.is_some() || free.under.once_per.is_some();
    let is_free = seen.iter().all(|one| one.found.state() == LockState::Free);
    if is_free && !is_found && !is_said && !common.quiet {
        let name = say::shown(&free.name);
        say::line(format!("{name}: if it ran with --once-per or --permits, give that option here"));
    }
    Ok(code)
}

/// Frees a lock, and returns what to say of that, and the exit code. `runs`: the names of what is
/// held under that of one which is free.
async fn free_one(
    manager: &LockManager,
    free: &Free,
    seen: &Seen,
    runs: &str,
) -> Result<(String, u8), Failure> {
    let (found, holders) = (&seen.found, seen.found.holders());
    let (key, name) = (&*seen.name.text, say::shown(&seen.name.text));
    if found.state() == LockState::Free {
        return Ok(match runs {
            "" => ("was free".to_owned(), 0),
            runs => (format!("nothing was done. Free what runs by its name:{runs}"), HELD),
        });
    }
    if holders.is_empty() {
        return Ok((found.to_string(), unclear(found)));
    }
    say::report(seen.line())?;
    if !holders.iter().all(|one| one.is_of_quorate()) {
        return Ok(("left alone: the value is no token of quorate".to_owned(), HELD));
    }
    if free.label.is_some() && !holders.iter().all(|one| one.label() == free.label.as_deref()) {
        return Ok(("left alone: it has another label".to_owned(), HELD));
    }
    let (question, deletes) = match (found.is_done(), free.now) {
        // Nobody works under a mark.
        (true, _) => ("delete this mark, so that it runs again", true),
        (_, true) => ("delete the lock of this holder, though it may go on working", true),
        _ => ("take the lock away from this holder", false),
    };
    if !free.yes && !is_confirmed(format!("{name}: {question}? [y/N] "))? {
        return Err(Failure::usage("nothing was done"));
    }
    let freed = match deletes {
        true => manager.delete_seen(key, found).await,
        false => manager.revoke_seen(key, found).await,
    };
    let freed = freed.map_err(Failure::usage)?;
    if !freed.is_effective() {
        let held = "not freed: another has the lock by now";
        return Ok(match freed.found().state() {
            LockState::Free => ("was free by then".to_owned(), 0),
            LockState::Held => (format!("{held}: {}", freed.found()), HELD),
            LockState::Unclear => (freed.to_string(), unclear(freed.found())),
        });
    }
    if deletes || free.no_wait {
        return Ok((freed.to_string(), 0));
    }
    say::report(format!("{name}: {freed}"))?;
    let left = match freed.until_free(manager).await {
        Leaving::Left { after } => format!("its holder left after {after:.1?}"),
        Leaving::Expired => "free, since its ttl has passed".to_owned(),
    };
    Ok((left, 0))
}

/// Asks on a terminal.
fn is_confirmed(question: String) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::usage("free needs --yes without a terminal"));
    }
    say::text(question);
    let answer = io::stdin().lines().next().transpose().map_err(Failure::usage)?;
    Ok(answer.is_some_and(|answer| ["y", "yes"].contains(&&*answer.trim().to_ascii_lowercase())))
}

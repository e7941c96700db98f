//! The processes of the command: all below this one, in whatever process group they are.
//!
//! On Linux this process is the subreaper, so an orphan of the command becomes its child and stays below it. A process that
//! began a session of its own is not one of them, unless it is the command itself, nor is what was there before. Without
//! `/proc` of our own pid namespace nothing is known of them.
//!
//! Ids are plain numbers here: that of a group or of a session outside of our pid namespace is 0.

use std::fs;

use rustix::process::{Pid, Signal, getpid, kill_process};

/// What `/proc` shows of a process.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
    /// The group that the keys of its terminal signal.
    foreground: i32,
    /// In ticks since the machine started. An id is used again.
    started: u64,
    is_dead: bool,
}

impl Process {
    /// Reads the process of this name in `/proc`.
    fn read(name: &str) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
        // The name in parentheses may have any character.
        let (pid, (_, fields)) = (text.split(' ').next()?, text.rsplit_once(") ")?);
        let fields: Vec<&str> = fields.split(' ').collect();
        let [state, parent, group, session, _, foreground, ..] = fields[..] else { return None };
        Some(Self {
            pid: pid.parse().ok()?,
            parent: parent.parse().ok()?,
            group: group.parse().ok()?,
            session: session.parse().ok()?,
            foreground: foreground.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            is_dead: matches!(state, "Z" | "X"),
        })
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let _ = Pid::from_raw(self.pid).map(|pid| kill_process(pid, signal));
    }

    /// Whether this is a `quorate` that forwards to its own command what it gets.
    fn forwards(&self) -> bool {
        let program = |name: &str| fs::read_link(format!("/proc/{name}/exe")).ok();
        program("self") == program(&self.pid.to_string())
    }
}

/// The living processes of the command, each behind its parent; `None` where `/proc` does not show them.
///
/// The command itself may begin a session of its own. What was there `before` it is not of it. With `forwarded`, those below
/// another `quorate` are left out.
pub(crate) fn living(command: Pid, before: &[Process], forwarded: bool) -> Option<Vec<Process>> {
    let own = own()?;
    let sessions = [own.session, command.as_raw_nonzero().get()];
    let is_of_before = |one: &Process| {
        before.iter().any(|known| (known.pid, known.started) == (one.pid, one.started))
    };
    let (all, mut parents, mut living) = (all(), vec![own.pid], Vec::new());
    while let Some(parent) = parents.pop() {
        for one in all.iter().filter(|one| one.parent == parent && !is_of_before(one)) {
            if sessions.contains(&one.session) && !one.is_dead {
                living.push(one.clone());
            }
            if !(forwarded && one.forwards()) {
                parents.push(one.pid);
            }
        }
    }
    Some(living)
}

/// The children of this process.
pub(crate) fn children() -> Vec<Process> {
    let own = own().map(|own| own.pid);
    all().into_iter().filter(|one| Some(one.parent) == own).collect()
}

/// Whether the keys of our terminal signal this process.
#[cfg(target_os = "linux")]
pub(crate) fn is_in_front() -> bool {
    Process::read("self").is_some_and(|own| own.group == own.foreground)
}

/// Whether the keys of our terminal signal this process.
#[cfg(not(target_os = "linux"))]
pub(crate) fn is_in_front() -> bool {
    let terminal = fs::File::open("/dev/tty").ok();
    let group = terminal.and_then(|terminal| rustix::termios::tcgetpgrp(terminal).ok());
    group == Some(rustix::process::getpgrp())
}

/// This process, unless `/proc` is that of another pid namespace.
fn own() -> Option<Process> {
    Process::read("self").filter(|own| own.pid == getpid().as_raw_nonzero().get())
}

fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Process::read(entry.file_name().to_str()?)).collect()
}

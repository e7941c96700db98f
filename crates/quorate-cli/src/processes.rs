//! The processes of the command: all below this one, in whatever process group they are.
//!
//! On Linux this process is the subreaper, so an orphan of the command becomes its child and stays
//! below it. A process that began a session of its own is not one of them, unless it is the command
//! itself, nor is what was there before, with all that comes of it (on a terminal: that was begun
//! by then). Without `/proc` of our own pid namespace nothing is known of them.
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
        let threads: u32 = fields.get(17)?.parse().ok()?;
        Some(Self {
            pid: pid.parse().ok()?,
            parent: parent.parse().ok()?,
            group: group.parse().ok()?,
            session: session.parse().ok()?,
            foreground: foreground.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
            // Its first thread may have ended, while others live.
            is_dead: matches!(state, "Z" | "X") && threads <= 1,
        })
    }

    fn is(&self, other: &Self) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
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

/// The living processes of the command, each behind its parent; `None` where `/proc` does not show
/// them.
///
/// The command itself may begin a session of its own. What was there `before` it is not of it, nor
/// is what has joined our group, where the command has one of its own. With `forwarded`, those
/// below another `quorate` are left out.
pub(crate) fn living(
    command: Pid,
    before: &[Process],
    has_group: bool,
    forwarded: bool,
) -> Option<Vec<Process>> {
    let own = own()?;
    let sessions = [own.session, command.as_raw_nonzero().get()];
    let is_below = |parent: &Process, one: &Process| {
        let is_of_before = before.iter().any(|known| known.is(one));
        let is_told = forwarded && !parent.is(&own) && parent.forwards();
        // What was there before has begun it, and has ended.
        let is_of_us = has_group && parent.is(&own) && one.group == own.group;
        !is_of_before && !is_told && !is_of_us
    };
    let mut living = below(&all(), vec![own.clone()], is_below);
    living.retain(|one| !one.is(&own) && sessions.contains(&one.session) && !one.is_dead);
    Some(living)
}

/// All that is there before the command.
pub(crate) fn before() -> Vec<Process> {
    let Some(own) = own() else { return Vec::new() };
    let mut before = below(&all(), vec![own.clone()], |_, _| true);
    before.retain(|one| !one.is(&own));
    before
}

/// These processes, and all below them, each behind its parent.
fn below(
    all: &[Process],
    mut tree: Vec<Process>,
    is_below: impl Fn(&Process, &Process) -> bool,
) -> Vec<Process> {
    let mut next = 0;
    while let Some(parent) = tree.get(next).cloned() {
        let is_child = |one: &&Process| one.parent == parent.pid && is_below(&parent, one);
        tree.extend(all.iter().filter(is_child).cloned());
        next += 1;
    }
    tree
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

//! The processes of the command: all below this one, in whatever process group they are.
//!
//! On Linux this process is the subreaper, so an orphan of the command becomes its child and stays below it. Only a process
//! that began a session of its own is not one of them. Without `/proc` nothing is known of them.

use std::collections::HashMap;
use std::{fs, str::FromStr};

use rustix::process::{Pid, Signal, getpid, kill_process};

/// A process, by its id and its start: an id is used again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Process {
    pid: Pid,
    /// In ticks since the machine started.
    started: u64,
}

/// What `/proc` shows of a process.
#[derive(Debug)]
struct Shown {
    process: Process,
    parent: i32,
    session: i32,
    is_dead: bool,
}

impl Process {
    /// Signals this process, unless it is gone.
    pub(crate) fn signal(self, signal: Signal) {
        if Shown::read(self.pid).is_some_and(|shown| shown.process == self) {
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Whether this is a `quorate` that forwards to its own command what it gets.
    fn forwards(self) -> bool {
        let program = |pid: &str| fs::read_link(format!("/proc/{pid}/exe")).ok();
        program("self") == program(&self.pid.as_raw_nonzero().to_string())
    }
}

impl Shown {
    fn read(pid: Pid) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        // The name in parentheses may have any character.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        Some(Self {
            process: Process { pid, started: field(&fields, 19)? },
            parent: field(&fields, 1)?,
            session: field(&fields, 3)?,
            is_dead: matches!(fields.first(), Some(&("Z" | "X"))),
        })
    }
}

fn field<T: FromStr>(fields: &[&str], index: usize) -> Option<T> {
    fields.get(index)?.parse().ok()
}

/// The living processes below this one, each behind its parent; `None` where `/proc` does not show them.
///
/// Left out are the processes of another session, and those of `before` with all below them: the parent of this process
/// left them to it. With `forwarded`, those below another `quorate` are left out as well.
pub(crate) fn below(before: &[Process], forwarded: bool) -> Option<Vec<Process>> {
    let own = Shown::read(getpid())?;
    let mut children: HashMap<i32, Vec<Shown>> = HashMap::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
        if let Some(shown) = pid.and_then(Shown::read) {
            children.entry(shown.parent).or_default().push(shown);
        }
    }
    let (mut below, mut parents) = (Vec::new(), vec![own.process]);
    while let Some(parent) = parents.pop() {
        for shown in children.remove(&parent.pid.as_raw_nonzero().get()).unwrap_or_default() {
            let process = shown.process;
            if before.contains(&process) {
                continue;
            }
            if shown.session == own.session && !shown.is_dead {
                below.push(process);
            }
            if !(forwarded && process.forwards()) {
                parents.push(process);
            }
        }
    }
    Some(below)
}

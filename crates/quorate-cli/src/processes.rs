//! The processes of the command: all below this one, in whatever process group they are.
//!
//! On Linux this process is the subreaper, so an orphan of the command becomes its child and stays below it. A process that
//! began a session of its own is not one of them, unless it is the command itself, nor is what was there before. Without `/proc` nothing is known of them.

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

/// The processes of the command, among all below this one.
#[derive(Debug)]
pub(crate) struct Processes {
    /// The processes that were below this one before the command: its parent left them to it.
    before: Vec<Process>,
    /// The process id of the command itself, which may begin a session of its own.
    command: i32,
}

impl Processes {
    /// Those of the command of this process, where these were there before.
    pub(crate) const fn new(before: Vec<Process>, command: Pid) -> Self {
        Self { before, command: command.as_raw_nonzero().get() }
    }

    /// The living ones, each behind its parent; `None` where `/proc` does not show them.
    ///
    /// With `forwarded`, those below another `quorate` are left out.
    pub(crate) fn living(&self, forwarded: bool) -> Option<Vec<Process>> {
        let own = Shown::read(getpid())?;
        let (mut living, mut parents, mut children) = (Vec::new(), vec![own.process], children()?);
        while let Some(parent) = parents.pop() {
            for shown in children.remove(&parent.pid.as_raw_nonzero().get()).unwrap_or_default() {
                let process = shown.process;
                if self.before.contains(&process) {
                    continue;
                }
                if [own.session, self.command].contains(&shown.session) && !shown.is_dead {
                    living.push(process);
                }
                if !(forwarded && process.forwards()) {
                    parents.push(process);
                }
            }
        }
        Some(living)
    }
}

/// The children of this process.
pub(crate) fn own_children() -> Vec<Process> {
    let own = children().and_then(|mut all| all.remove(&getpid().as_raw_nonzero().get()));
    own.unwrap_or_default().iter().map(|shown| shown.process).collect()
}

/// All processes, by their parents.
fn children() -> Option<HashMap<i32, Vec<Shown>>> {
    let mut children: HashMap<i32, Vec<Shown>> = HashMap::new();
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?));
        if let Some(shown) = pid.and_then(Shown::read) {
            children.entry(shown.parent).or_default().push(shown);
        }
    }
    Some(children)
}

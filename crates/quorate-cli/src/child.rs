//! The command: its process, and all processes below it.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use quorate::{Lease, LockGuard};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpgrp};
use rustix::process::{kill_process, kill_process_group, test_kill_process_group, wait};
use rustix::termios::tcgetpgrp;
use tokio::signal::unix::{self, SignalKind};
use tokio::time::sleep;

use crate::args::Run;
use crate::begin;
use crate::exit::{CANNOT_RUN, Failure, LOST};
use crate::processes::{self, Processes};
use crate::signals;

/// How often is looked whether anything is left of a command that has ended, beside each end of a child.
const LOOK: Duration = Duration::from_millis(50);

/// How long a command on a terminal has for its own answer to TSTP.
const LEAVE_SCREEN: Duration = Duration::from_millis(100);

/// A command that runs. Dropping it kills what is left of it.
#[derive(Debug)]
pub(crate) struct Running {
    pid: Pid,
    /// The ends of our children.
    children: unix::Signal,
    /// With a terminal as standard input the command stays in our group, which the terminal signals (X2).
    is_foreground: bool,
    processes: Processes,
    /// The exit code of the command itself, once it has ended.
    pub(crate) code: Option<u8>,
    /// Nothing is left to be killed.
    pub(crate) is_over: bool,
}

impl Running {
    /// Starts the command. It inherits what this process has inherited (X4).
    pub(crate) fn start(run: &Run, names: &[String], guard: &LockGuard) -> Result<Self, Failure> {
        let words: Vec<&OsStr> = match &run.shell {
            Some(text) => vec![OsStr::new("sh"), OsStr::new("-c"), text],
            None => run.command.iter().map(AsRef::as_ref).collect(),
        };
        let Some((program, arguments)) = words.split_first() else {
            return Err(Failure::usage("no command"));
        };
        let is_foreground = io::stdin().is_terminal();
        let mut command = begin::step(program).unwrap_or_else(|| Command::new(program));
        command.args(arguments).env("QUORATE_LOCK", names.join("\n"));
        match guard.fencing_token() {
            Some(token) => command.env("QUORATE_FENCING_TOKEN", token.to_string()),
            // That of a lock around this one.
            None => command.env_remove("QUORATE_FENCING_TOKEN"),
        };
        if !is_foreground {
            command.process_group(0);
        }
        // What it leaves behind becomes our child.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let before = processes::own_children();
        // Before the first child, whose end would not be heard of.
        let children = unix::signal(SignalKind::child()).map_err(Failure::usage)?;
        // The machine may have been suspended since.
        if !guard.is_valid() {
            return Err(Failure::new(LOST, "the lock was lost before the command began"));
        }
        let cannot =
            |error| Failure::new(CANNOT_RUN, format!("{}: {error}", program.to_string_lossy()));
        let child = command.spawn().map_err(cannot)?;
        let pid = Pid::from_child(&child);
        let processes = Processes::new(before, pid);
        Ok(Self { pid, children, is_foreground, processes, code: None, is_over: false })
    }

    /// Waits until the command itself has ended. Called again, waits until no process of it is left.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn ended(&mut self) {
        let had_ended = self.code.is_some();
        loop {
            self.bury();
            self.is_over = self.code.is_some() && !self.is_left();
            if self.is_over || self.code.is_some() != had_ended {
                return;
            }
            tokio::select! {
                _ = self.children.recv() => {}
                () = sleep(LOOK), if had_ended => {}
            }
        }
    }

    /// Takes the exit code of the command, and buries what it left behind: we are the parent of its orphans.
    fn bury(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == self.pid {
                self.code = Some(code_of(status));
            }
        }
    }

    /// Signals each process of the command once. A process that is gone needs no signal.
    pub(crate) fn signal(&self, signal: Signal) {
        // What has to arrive goes past a `quorate` that forwards the others.
        let forwarded = !matches!(signal, Signal::KILL | Signal::STOP | Signal::CONT);
        let _ = match self.processes.living(forwarded) {
            Some(processes) => return processes.into_iter().for_each(|one| one.signal(signal)),
            None if self.is_foreground => kill_process(self.pid, signal),
            None => kill_process_group(self.pid, signal),
        };
    }

    /// Tells all of it to stop. A process that is stopped goes on, so that it can, unless the lock may be another's.
    pub(crate) fn terminate(&self, lease: &Lease) {
        self.signal(Signal::TERM);
        self.go_on(lease);
    }

    /// Stops this process until CONT, and the command for that time. The command goes on only under its lease.
    pub(crate) async fn stop_together(&self, lease: &Lease) {
        if self.is_foreground {
            // The terminal has signalled the command, which may restore the screen before it stops.
            sleep(LEAVE_SCREEN).await;
        }
        self.signal(Signal::STOP);
        signals::stop();
        self.go_on(lease);
    }

    /// Lets a command that is stopped go on, if the lease is valid.
    fn go_on(&self, lease: &Lease) {
        if lease.is_valid() {
            self.signal(Signal::CONT);
        }
    }

    /// Whether this signal is the terminal's to send, which has sent it to the command, too.
    pub(crate) fn has_from_terminal(&self, signal: Signal) -> bool {
        let is_key = matches!(signal, Signal::INT | Signal::QUIT);
        is_key && self.is_foreground && tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
    }

    /// Whether a process of the command is left.
    fn is_left(&self) -> bool {
        match self.processes.living(false) {
            Some(processes) => !processes.is_empty(),
            None => !self.is_foreground && test_kill_process_group(self.pid).is_ok(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            self.signal(Signal::KILL);
        }
    }
}

fn code_of(status: WaitStatus) -> u8 {
    let code =
        status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

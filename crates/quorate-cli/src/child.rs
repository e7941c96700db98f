//! The command: a process that leads a group of its own.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use quorate::{Lease, LockGuard};
use rustix::process::{Pid, Signal, WaitOptions, getpgrp};
use rustix::process::{kill_process, kill_process_group, test_kill_process_group, waitpgid};
use rustix::termios::tcgetpgrp;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::args::Run;
use crate::exit::{CANNOT_RUN, Failure, LOST, NOT_FOUND};
use crate::signals;

/// How often the group of a command that has ended is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// How long a command on a terminal has for its own answer to TSTP.
const LEAVE_SCREEN: Duration = Duration::from_millis(100);

/// A command that runs. Dropping it kills what is left of it.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    pid: Option<Pid>,
    /// With a terminal as standard input the command stays in our group, and only it is signalled (X2).
    is_foreground: bool,
    /// The exit code of the command itself, once it has ended.
    pub(crate) code: Option<u8>,
    /// Nothing is left to be killed.
    pub(crate) is_over: bool,
}

impl Running {
    /// Starts the command. It inherits the three standard streams and nothing else (X4).
    pub(crate) fn start(run: &Run, names: &[String], guard: &LockGuard) -> Result<Self, Failure> {
        let words: Vec<&OsStr> = match &run.shell {
            Some(text) => vec![OsStr::new("sh"), OsStr::new("-c"), text],
            None => run.command.iter().map(AsRef::as_ref).collect(),
        };
        let Some((program, arguments)) = words.split_first() else {
            return Err(Failure::usage("no command"));
        };
        let is_foreground = io::stdin().is_terminal();
        let mut command = Command::new(program);
        command.args(arguments).env("QUORATE_LOCK", names.join(" "));
        match guard.fencing_token() {
            Some(token) => command.env("QUORATE_FENCING_TOKEN", token.to_string()),
            // That of a lock around this one.
            None => command.env_remove("QUORATE_FENCING_TOKEN"),
        };
        if !is_foreground {
            command.process_group(0);
        }
        // Standard error may have blocked since, or the machine was suspended.
        if !guard.is_valid() {
            return Err(Failure::new(LOST, "the lock was lost before the command began"));
        }
        // What it leaves behind becomes our child, so that the dead are not taken for the living.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let child = command.spawn().map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::NotFound => NOT_FOUND,
                _ => CANNOT_RUN,
            };
            Failure::new(code, format!("{}: {error}", program.to_string_lossy()))
        })?;
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        Ok(Self { child, pid, is_foreground, code: None, is_over: false })
    }

    /// Waits until the command itself has ended. Called again, waits until no process of its group is left.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time.
    pub(crate) async fn ended(&mut self) -> io::Result<()> {
        if self.code.is_none() {
            self.code = Some(code_of(self.child.wait().await?));
            return Ok(());
        }
        while self.has_group() {
            sleep(LOOK).await;
        }
        self.is_over = true;
        Ok(())
    }

    /// Signals the whole group. A process that is gone needs no signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let Some(pid) = self.pid else { return };
        let _ = match self.is_foreground {
            true => kill_process(pid, signal),
            false => kill_process_group(pid, signal),
        };
    }

    /// Tells the group to stop. A process that is stopped goes on, so that it can, unless the lock may be another's.
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

    /// Lets a group that is stopped go on, if the lease is valid.
    fn go_on(&self, lease: &Lease) {
        if lease.is_valid() {
            self.signal(Signal::CONT);
        }
    }

    /// Whether the terminal has sent this signal to the command, too.
    pub(crate) fn has_from_terminal(&self, signal: Signal) -> bool {
        let is_key = matches!(signal, Signal::INT | Signal::QUIT);
        is_key && self.is_foreground && tcgetpgrp(io::stdin()).is_ok_and(|group| group == getpgrp())
    }

    /// Whether a process of the group is left, after the command itself has ended.
    pub(crate) fn has_group(&self) -> bool {
        let Some(pid) = self.pid.filter(|_| !self.is_foreground) else { return false };
        // We are the parent of what the command left behind.
        while let Ok(Some(_)) = waitpgid(pid, WaitOptions::NOHANG) {}
        test_kill_process_group(pid).is_ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            self.signal(Signal::KILL);
        }
    }
}

fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

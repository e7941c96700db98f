//! The command: its process, and all processes below it.

use std::io::{self, IsTerminal as _};
use std::os::unix::process::CommandExt as _;
use std::time::Duration;

use quorate::{Lease, LockGuard};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid};
use rustix::process::{kill_process, kill_process_group, test_kill_process_group, wait};
use tokio::time::sleep;

use crate::args::Run;
use crate::begin;
use crate::exit::{Failure, LOST};
use crate::processes::{self, Process, is_in_front};
use crate::signals::Signals;

/// The signals by which people and supervisors end a command. One that is stopped gets them when it
/// goes on.
const ENDS: [Signal; 3] = [Signal::TERM, Signal::HUP, Signal::INT];

/// How long a command on a terminal has for its own answer to TSTP.
const LEAVE_SCREEN: Duration = Duration::from_millis(100);

const FENCING_TOKEN: &str = "QUORATE_FENCING_TOKEN";

/// A command that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pid: Pid,
    /// The command stays in our group, which can read from the terminal and is signalled by it
    /// (X2).
    is_foreground: bool,
    /// The processes that were there before the command.
    before: Vec<Process>,
    /// The exit code of the command itself, once it has ended.
    code: Option<u8>,
}

impl Running {
    /// Starts the command. It inherits what this process has inherited (X4).
    pub(crate) fn start(
        run: &Run,
        names: &str,
        guard: &LockGuard,
        signals: &mut Signals,
    ) -> Result<Self, Failure> {
        // Whatever its standard input is, it may ask on /dev/tty.
        let is_foreground = io::stdin().is_terminal() || is_in_front();
        // Before the first child, whose end would not be heard of.
        signals.begin(is_foreground);
        let mut command = begin::step();
        match &run.shell {
            Some(text) => command.args(["sh", "-c"]).arg(text),
            None => command.args(&run.command),
        };
        // Not that of a lock around this one.
        command.env_remove(FENCING_TOKEN).env("QUORATE_LOCK", names);
        command.envs(guard.fencing_token().map(|token| (FENCING_TOKEN, token.to_string())));
        if !is_foreground {
            command.process_group(0);
        }
        // What it leaves behind becomes our child.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_child_subreaper(Some(getpid()));
        let before = processes::before();
        // The machine may have been suspended since.
        if !guard.is_valid() {
            return Err(Failure::new(LOST, "the lock was lost before the command began"));
        }
        let pid = Pid::from_child(&command.spawn()?);
        Ok(Self { pid, is_foreground, before, code: None })
    }

    /// The exit code of the command itself, once it has ended. Buries what it left behind: we are
    /// the parent of its orphans.
    pub(crate) fn code(&mut self) -> Option<u8> {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == self.pid {
                self.code = Some(code_of(status));
            }
        }
        self.code
    }

    /// Signals each process of the command once. A process that is gone needs no signal.
    pub(crate) fn signal(&self, signal: Signal) {
        if signal == Signal::KILL && self.code.is_none() {
            // To look for the processes takes milliseconds, too long after a stop of both (X8).
            self.signal_itself(signal);
        }
        // What has to arrive goes past a `quorate` that forwards the others.
        let forwarded = !matches!(signal, Signal::KILL | Signal::STOP | Signal::CONT);
        match self.living(forwarded) {
            Some(processes) => processes.iter().for_each(|one| one.signal(signal)),
            None => self.signal_itself(signal),
        }
    }

    /// Signals the command with its group or, in our group, alone.
    fn signal_itself(&self, signal: Signal) {
        let _ = match self.is_foreground {
            true => kill_process(self.pid, signal),
            false => kill_process_group(self.pid, signal),
        };
    }

    /// Signals the command as [`signal`](Self::signal) does. One that is stopped goes on, so that
    /// it can end, unless the lock may be another's.
    pub(crate) fn forward(&self, signal: Signal, lease: &Lease) {
        self.signal(signal);
        if ENDS.contains(&signal) {
            self.go_on(lease);
        }
    }

    /// Stops this process until CONT, and the command for that time. The command goes on only under
    /// its lease.
    pub(crate) async fn stop_together(&self, lease: &Lease) {
        // The terminal has signalled the command, which may restore the screen before it stops.
        sleep(LEAVE_SCREEN).await;
        self.signal(Signal::STOP);
        // As TSTP does without a handler, TTIN stops nothing where no shell could continue us:
        // behind `ssh -t`, in a container.
        let _ = kill_process(getpid(), Signal::TTIN);
        self.go_on(lease);
    }

    /// Lets a command that is stopped go on, if the lease is valid.
    fn go_on(&self, lease: &Lease) {
        if lease.is_valid() {
            self.signal(Signal::CONT);
        }
    }

    fn living(&self, forwarded: bool) -> Option<Vec<Process>> {
        processes::living(self.pid, &self.before, !self.is_foreground, forwarded)
    }

    /// Whether a process of the command is left.
    pub(crate) fn is_left(&self) -> bool {
        match self.living(false) {
            Some(processes) => !processes.is_empty(),
            None => !self.is_foreground && test_kill_process_group(self.pid).is_ok(),
        }
    }
}

fn code_of(status: WaitStatus) -> u8 {
    let code =
        status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

//! The first step of the process that becomes the command: it asks to be killed when `quorate` dies
//! (X7).

use std::convert::Infallible;
use std::env::{self, ArgsOs};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{getpid, getppid};

use crate::exit::{CANNOT_RUN, Failure, LOST, NOT_FOUND};
use crate::say;

/// The word by which this program is asked for this step, which no subcommand is named by.
pub(crate) const WORD: &str = "become-the-command";

/// This step, to which the words of the command are to be added.
pub(crate) fn step() -> Command {
    // This very program, though another one may have its path by now.
    let own = Some(PathBuf::from("/proc/self/exe")).filter(|path| path.exists());
    let own = own.or_else(|| env::current_exe().ok()).map(PathBuf::into_os_string);
    let mut command = Command::new(own.or_else(|| env::args_os().next()).unwrap_or_default());
    command.arg(WORD).arg(getpid().as_raw_nonzero().to_string());
    command
}

/// Becomes the command of these words: the process id of `quorate`, the program, its arguments.
pub(crate) fn begin(mut words: ArgsOs) -> Result<Infallible, Failure> {
    let (parent, program) = (words.next(), words.next().unwrap_or_default());
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // It may have died before it could be asked for.
    if getppid().map(|pid| pid.as_raw_nonzero().to_string().into()) != parent {
        return Err(Failure::new(LOST, ""));
    }
    let error = Command::new(&program).args(words).exec();
    let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
    // `exec` has made PIPE deadly again.
    let is_read = say::is_read();
    let text = is_read.then(|| format!("{}: {error}", say::shown(&program.to_string_lossy())));
    Err(Failure::new(code, text.unwrap_or_default()))
}

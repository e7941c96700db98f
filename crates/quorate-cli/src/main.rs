//! The command `quorate`: runs a command under a lock, shows who holds locks, and frees them.
//!
//! | module | what it is |
//! |---|---|
//! | `args` | the command line |
//! | `run` | a command under a lock |
//! | `session` | waiting for the lock, warnings, and the end of it all |
//! | `line` | on a terminal: the holder during a wait |
//! | `supervise` | the command under its lease |
//! | `child` | starts, signals and awaits the command |
//! | `begin` | the first step of that process |
//! | `processes` | which processes are of the command |
//! | `say` | standard error and standard output |
//! | `signals` | the signals that are forwarded |
//! | `names` | the names of permits and periods |
//! | `inspect`, `free` | who holds a lock, and taking it away |
//! | `check` | the subcommand `nodes` |
//! | `record` | `lock`, `extend`, `release` |
//! | `nodes` | from addresses to a lock manager |
//! | `tips` | tips for a command line that is not understood |
//! | `runtime` | the async runtime |
//! | `exit` | exit codes |
#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "it waits for processes and for people")]

mod args;
mod begin;
mod check;
mod child;
mod exit;
mod free;
mod inspect;
mod line;
mod names;
mod nodes;
mod processes;
mod record;
mod run;
mod runtime;
mod say;
mod session;
mod signals;
mod supervise;
mod tips;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use crate::args::{Cli, Command};
use crate::exit::{Failure, USAGE};

/// How long the end waits for a standard error that takes no more text.
const LAST_WORDS: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let mut words = env::args_os();
    if words.nth(1).is_some_and(|word| word == begin::WORD) {
        return end(begin::begin(words).map(|never| match never {}));
    }
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => {
            let error = tips::with_tip(error);
            let text = error.render().to_string();
            if !error.use_stderr() {
                return end(say::report(text.trim_end()).map(|()| 0));
            }
            say::text(text);
            return end(Ok(USAGE));
        }
    };
    end(runtime::build().and_then(|runtime| {
        let result = runtime.block_on(perform(&cli));
        // What is in flight is not waited for: the manager was closed.
        runtime.shutdown_background();
        result
    }))
}

/// Says why there is no result, and ends with the exit code.
fn end(result: Result<u8, Failure>) -> ExitCode {
    let code = result.unwrap_or_else(|Failure { code, text, .. }| {
        if !text.is_empty() {
            say::line(text);
        }
        code
    });
    let _ = say::settle(LAST_WORDS);
    ExitCode::from(code)
}

async fn perform(cli: &Cli) -> Result<u8, Failure> {
    let common = &cli.common;
    match &cli.command {
        Command::Run(run) => run::run(common, run).await,
        Command::Inspect(inspect) => inspect::inspect(common, inspect).await,
        Command::Free(free) => free::free(common, free).await,
        Command::Nodes(nodes) => check::nodes(common, nodes).await,
        Command::Lock(lock) => record::lock(common, lock).await,
        Command::Extend => record::extend(common).await,
        Command::Release => record::release(common).await,
    }
}

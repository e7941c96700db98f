//! The command `quorate`: runs a command under a lock, shows who holds locks, and frees them.
//!
//! | module | what it is |
//! |---|---|
//! | `args` | the command line |
//! | `run` | waiting for the lock, and the release after the command |
//! | `line` | on a terminal: for whom we wait |
//! | `supervise` | the command under its lease |
//! | `child` | the command: its process, and what is below it |
//! | `begin` | the first step of that process |
//! | `processes` | the processes below this one |
//! | `say` | standard error and standard output |
//! | `interrupts` | what a second interrupt means |
//! | `signals` | the signals that are forwarded |
//! | `show` | `inspect`, `free`, `nodes` |
//! | `record` | `lock`, `extend`, `release` |
//! | `json` | JSON that a terminal may show |
//! | `nodes` | from addresses to a lock manager |
//! | `runtime` | the async runtime |
//! | `exit` | exit codes |
#![cfg(unix)]
#![allow(clippy::disallowed_methods, reason = "it waits for processes and for people")]

mod args;
mod begin;
mod child;
mod exit;
mod interrupts;
mod json;
mod line;
mod nodes;
mod processes;
mod record;
mod run;
mod runtime;
mod say;
mod show;
mod signals;
mod supervise;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;

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
            let text = error.render().to_string();
            return match error.kind() {
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                    end(say::report(text.trim_end()).map(|()| 0))
                }
                _ => {
                    say::text(text);
                    end(Ok(USAGE))
                }
            };
        }
    };
    let runtime = match runtime::build() {
        Ok(runtime) => runtime,
        Err(failure) => return end(Err(failure)),
    };
    let result = runtime.block_on(perform(&cli));
    // What is in flight is not waited for: the manager was closed.
    runtime.shutdown_background();
    end(result)
}

/// Says why there is no result, and ends with the exit code.
fn end(result: Result<u8, Failure>) -> ExitCode {
    let code = result.unwrap_or_else(|Failure { code, text }| {
        if !text.is_empty() {
            say::line(text);
        }
        code
    });
    say::settle(LAST_WORDS);
    ExitCode::from(code)
}

async fn perform(cli: &Cli) -> Result<u8, Failure> {
    let common = &cli.common;
    match &cli.command {
        Command::Run(run) => run::run(common, run).await,
        Command::Inspect { names, json } => show::inspect(common, names, *json).await,
        Command::Free { name, now, yes } => show::free(common, name, *now, *yes).await,
        Command::Nodes { json } => show::nodes(common, *json).await,
        Command::Lock { names, wait, held } => record::lock(common, names, wait, held).await,
        Command::Extend => record::extend(common).await,
        Command::Release => record::release(common).await,
    }
}

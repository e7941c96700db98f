//! The command `quorate`: runs a command under a lock, shows who holds locks, and frees them.
//!
//! | module | what it is |
//! |---|---|
//! | `args` | the command line |
//! | `run` | waiting for the lock, and the release after the command |
//! | `line` | on a terminal: for whom we wait |
//! | `supervise` | the command under its lease |
//! | `child` | the process of the command and its group |
//! | `signals` | the signals that are forwarded |
//! | `show` | `inspect`, `free` |
//! | `check` | `nodes` |
//! | `record` | `lock`, `extend`, `release` |
//! | `nodes` | from addresses to a lock manager |
//! | `exit` | exit codes |
#![cfg(unix)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for a terminal")]
#![allow(clippy::disallowed_methods, reason = "it waits for processes and for people")]

mod args;
mod check;
mod child;
mod exit;
mod line;
mod nodes;
mod record;
mod run;
mod show;
mod signals;
mod supervise;

use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;

use crate::args::{Cli, Command};
use crate::exit::{Failure, USAGE};

fn main() -> ExitCode {
    // What our parent left open is none of the command's business (X4).
    close_fds::set_fds_cloexec(3, &[]);
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            let is_help =
                matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return ExitCode::from(if is_help { 0 } else { USAGE });
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("quorate: {error}");
            return ExitCode::from(USAGE);
        }
    };
    let result = runtime.block_on(perform(&cli));
    // What is in flight is not waited for: the manager was closed.
    runtime.shutdown_background();
    ExitCode::from(result.unwrap_or_else(|Failure { code, text }| {
        if !text.is_empty() {
            eprintln!("quorate: {text}");
        }
        code
    }))
}

async fn perform(cli: &Cli) -> Result<u8, Failure> {
    let common = &cli.common;
    match &cli.command {
        Command::Run(run) => run::run(common, run).await,
        Command::Inspect { names, json } => show::inspect(common, names, *json).await,
        Command::Free { name, now, yes } => show::free(common, name, *now, *yes).await,
        Command::Nodes(nodes) => check::nodes(common, nodes).await,
        Command::Lock { names, wait, held } => record::lock(common, names, wait, held).await,
        Command::Extend => record::extend(common).await,
        Command::Release => record::release(common).await,
    }
}

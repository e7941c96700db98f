//! The command line.

use std::env;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, value_parser};
use humantime::parse_duration;

/// Locks over a quorum of independent Redis or Valkey nodes.
#[derive(Debug, Parser)]
#[command(name = "quorate", version, after_help = include_str!("help/codes.txt"))]
#[command(after_long_help = include_str!("help/quorate.txt"))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads the command line. A variable of the environment that is set and empty counts as unset.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let is_empty =
            |arg: &Arg| arg.get_env().and_then(env::var_os).is_some_and(|text| text.is_empty());
        let unset = |arg: Arg| if is_empty(&arg) { arg.env(None) } else { arg };
        let matches = Self::command().mut_args(unset).try_get_matches()?;
        let mut cli = Self::from_arg_matches(&matches)?;
        let is_option = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        cli.common.wants_tls = ["tls_ca", "tls_cert", "tls_key"].iter().any(is_option);
        cli.common.is_new_group = matches!(&cli.command, Command::Nodes(nodes) if nodes.accept);
        Ok(cli)
    }
}

/// What all subcommands take.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Nodes")]
pub(crate) struct Common {
    /// The address of a node; repeat it for each. Without it, QUORATE_NODES has the addresses, with
    /// spaces between them
    #[arg(long = "nodes", value_name = "URL", global = true)]
    pub(crate) nodes: Vec<String>,
    /// A file with the addresses, one on each line. A `#` begins a comment
    #[arg(long, value_name = "FILE", global = true, conflicts_with = "nodes")]
    pub(crate) nodes_file: Option<PathBuf>,
    /// A file with the authorities (PEM) to trust for nodes with TLS. Default: those that the
    /// system trusts
    #[arg(long, value_name = "FILE", global = true, env = "QUORATE_TLS_CA")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// A file with the certificate (PEM) to show to nodes with TLS
    #[arg(long, value_name = "FILE", global = true, env = "QUORATE_TLS_CERT")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// A file with the key (PEM) of --tls-cert
    #[arg(long, value_name = "FILE", global = true, env = "QUORATE_TLS_KEY")]
    pub(crate) tls_key: Option<PathBuf>,
    /// One of these is an option, not a variable
    #[arg(skip)]
    pub(crate) wants_tls: bool,
    /// How long a connect to a node may take, from 50ms to 1m. For nodes that are far away: it
    /// takes four round trips, with TLS five
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = connect_timeout)]
    #[arg(global = true, env = "QUORATE_CONNECT_TIMEOUT")]
    pub(crate) connect_timeout: Duration,
    /// How long one call to a node may take, up to half of the validity of a lock. Default: a tenth
    /// of the ttl, at most 500ms
    #[arg(long, value_name = "DURATION", global = true, env = "QUORATE_NODE_TIMEOUT")]
    pub(crate) node_timeout: Option<humantime::Duration>,
    /// Text before the name of each lock
    #[arg(long, value_name = "TEXT", global = true, env = "QUORATE_PREFIX")]
    pub(crate) prefix: Option<String>,
    /// Switch the restart guard on, for locks of at most this ttl
    #[arg(long, value_name = "DURATION", global = true, env = "QUORATE_GUARD_MAX_TTL")]
    pub(crate) guard_max_ttl: Option<humantime::Duration>,
    /// Refuse nodes that other users of this group do not have: each node keeps the list of all of
    /// them
    #[arg(long, value_name = "NAME", global = true, env = "QUORATE_GROUP")]
    pub(crate) group: Option<String>,
    /// These nodes become those of the group
    #[arg(skip)]
    pub(crate) is_new_group: bool,
    /// Print no warnings
    #[arg(short, long, global = true, conflicts_with = "verbose", help_heading = None)]
    pub(crate) quiet: bool,
    /// Print what happens to the lock; in `nodes` and `inspect` all that is known, and not the
    /// first 100 characters
    #[arg(short, long, global = true, help_heading = None)]
    pub(crate) verbose: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command under a lock, and release the lock when it ends
    Run(Run),
    /// Show who holds locks. Exit code 0: all are held; 1: one is free; 69: one is unclear
    Inspect(Inspect),
    /// Take a lock away from its holder, and from no other. The holder is asked to leave, and the
    /// lock is free when it has, or when its ttl has passed: nobody overlaps. Says which
    Free(Free),
    /// Show which nodes vote, and what is wrong with them, the worst first. Exit code 70: a node
    /// has a problem; 69: no quorum can be locked; 78: one server is there twice
    Nodes(Nodes),
    /// Acquire a lock for the steps of a pipeline, and print its record, which is a secret
    Lock(Lock),
    /// Extend the lock whose record is on standard input to its full ttl. The record stays valid
    Extend,
    /// Release the lock whose record is on standard input
    Release,
}

/// `quorate inspect`.
#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// The names of the locks
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) under: Under,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `quorate lock`.
#[derive(Args, Debug)]
pub(crate) struct Lock {
    /// The names of the locks
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) held: Held,
}

/// `quorate nodes`.
#[derive(Args, Debug)]
pub(crate) struct Nodes {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Wait until no node has a problem that passes by itself, and each has run for --max-ttl. Run
    /// it before a rolling restart, and after each node of it
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait: Option<humantime::Duration>,
    /// The longest ttl of any lock: for so long a node that restarted may have forgotten locks, or
    /// refuse free ones. With --guard-max-ttl it is that one
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub(crate) max_ttl: humantime::Duration,
    /// With --group: make these nodes those of the group, whatever they were. Until all others have
    /// the same, two may hold one lock
    #[arg(long)]
    pub(crate) accept: bool,
}

/// Under which names `run` has locked.
#[derive(Args, Debug)]
pub(crate) struct Under {
    /// The locks of `run --permits N`: NAME#1 to NAME#N. Without it, 64 are looked for if NAME is
    /// free
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1024))]
    pub(crate) permits: Option<u16>,
    /// The lock of `run --once-per PERIOD` in this period: NAME@NUMBER. Without it, whole seconds
    /// to 59s, minutes to 59m, hours to 24h, and the weeks, months and local days are looked for if
    /// NAME is free
    #[arg(long, value_name = "PERIOD", value_parser = period, conflicts_with = "permits")]
    pub(crate) once_per: Option<Period>,
}

/// `quorate free`.
#[derive(Args, Debug)]
pub(crate) struct Free {
    /// The name of the lock
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) under: Under,
    /// Free the lock only if its holder has this label
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Delete the lock: it is free at once, and its holder may go on working until its lease ends
    #[arg(long)]
    pub(crate) now: bool,
    /// Do not wait until the lock is free
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Do not ask. Needed without a terminal
    #[arg(long)]
    pub(crate) yes: bool,
}

/// How long to wait for a lock, and how it is held.
#[derive(Args, Debug)]
#[command(next_help_heading = "Holding")]
pub(crate) struct Held {
    /// How long to wait for the lock
    #[arg(long, value_name = "DURATION", default_value = "30s", help_heading = "Waiting")]
    pub(crate) wait: humantime::Duration,
    /// Do not wait for a holder
    #[arg(long, conflicts_with = "wait", help_heading = "Waiting")]
    pub(crate) no_wait: bool,
    /// How long the nodes keep the lock if it is not renewed. Default: 30s
    #[arg(long, value_name = "DURATION")]
    pub(crate) ttl: Option<humantime::Duration>,
    /// Acquire the lock with a fencing token
    #[arg(long)]
    pub(crate) fenced: bool,
    /// What others see of the holder. Default: user@host:pid
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
}

impl Held {
    /// How long to wait; `None`: for no holder.
    pub(crate) fn wait(&self) -> Option<Duration> {
        (!self.no_wait).then_some(*self.wait)
    }

    /// The ttl of the lock.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl.map_or(Duration::from_secs(30), Into::into)
    }
}

/// `quorate run`.
#[derive(Args, Debug)]
#[command(
    override_usage = "quorate run [OPTIONS] NAME... -- COMMAND [ARG...]\n       \
                      quorate run [OPTIONS] NAME... -c STRING",
    after_long_help = include_str!("help/run.txt")
)]
pub(crate) struct Run {
    /// The names of the locks
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "shell")]
    pub(crate) command: Vec<std::ffi::OsString>,
    /// Run this by `sh -c`
    #[arg(short = 'c', value_name = "STRING", conflicts_with = "command")]
    pub(crate) shell: Option<std::ffi::OsString>,
    #[command(flatten)]
    pub(crate) held: Held,
    /// Print nothing, and exit with 0 without -E, if the lock is held by another until the wait
    /// ended
    #[arg(long, help_heading = "Waiting")]
    pub(crate) skip: bool,
    /// The exit code if the lock is held by another until the wait ended. Default: 75, or 0 with
    /// --skip and --once-per. With --once-per, DONE is that of a period that is done: 0 by default
    #[arg(short = 'E', value_name = "CODE[,DONE]", value_parser = held_codes)]
    #[arg(help_heading = "Waiting")]
    pub(crate) held_codes: Option<(u8, Option<u8>)>,
    /// Hold the locks for reading: beside other readers, and not beside a lock
    #[arg(long, conflicts_with_all = ["fenced", "once_per", "permits"], help_heading = "Holding")]
    pub(crate) read: bool,
    /// Acquire one of N permits: a lock on one of NAME#1 to NAME#N. At most N commands run at a
    /// time
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..))]
    #[arg(conflicts_with = "once_per", help_heading = "Holding")]
    pub(crate) permits: Option<u16>,
    /// Run the command once per period, on one of all machines: a duration from 1s to 1day, 1week
    /// or 1month in UTC; local-day, local-week or local-month. Waits for no holder, as --no-wait
    /// --skip
    #[arg(long, value_name = "PERIOD", value_parser = period)]
    #[arg(conflicts_with_all = ["wait", "fenced"], help_heading = "Holding")]
    pub(crate) once_per: Option<Period>,
    /// With --once-per: run the command once more, if this period is done. While it runs elsewhere,
    /// the exit code is 75
    #[arg(long, requires = "once_per", help_heading = "Holding")]
    pub(crate) again: bool,
    /// How long before the end of the lease the command is told to stop (TERM). At the end it is
    /// killed. Default: 5s, or a third of the validity if that is less
    #[arg(long, value_name = "DURATION", help_heading = "Stopping")]
    pub(crate) kill_after: Option<humantime::Duration>,
}

/// What a command runs once per.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Period {
    /// A local day is one of 24 h.
    pub(crate) of: quorate::Period,
    /// In the time zone of the process, not in UTC.
    pub(crate) is_local: bool,
}

/// The exit code for what runs, and the one for what is done.
fn held_codes(text: &str) -> Result<(u8, Option<u8>), String> {
    let code = |text: &str| text.parse().map_err(|error| format!("{text}: {error}"));
    match text.split_once(',') {
        Some((held, done)) => Ok((code(held)?, Some(code(done)?))),
        None => Ok((code(text)?, None)),
    }
}

/// A period, as `--once-per` names it.
pub(crate) fn period(text: &str) -> Result<Period, String> {
    let (of, is_local) = match text {
        "local-day" => (quorate::Period::Every(LONGEST), true),
        "local-week" => (quorate::Period::Week, true),
        "local-month" => (quorate::Period::Month, true),
        "1w" | "1week" => (quorate::Period::Week, false),
        "1M" | "1month" => (quorate::Period::Month, false),
        text => (within(text, SHORTEST..=LONGEST, PERIODS)?.into(), false),
    };
    Ok(Period { of, is_local })
}

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// What there is.
const PERIODS: &str = "A period is a duration from 1s to 1day, counted from 1970 in UTC; or of the \
    calendar: 1week (Monday to Sunday) or 1month in UTC, local-day, local-week or local-month in \
    the time zone of this machine";

/// How long a connect may take.
fn connect_timeout(text: &str) -> Result<Duration, String> {
    let bounds = Duration::from_millis(50)..=Duration::from_secs(60);
    within(text, bounds, "A connect may take from 50ms to 1m")
}

fn within(text: &str, bounds: RangeInclusive<Duration>, why: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(time) if bounds.contains(&time) => Ok(time),
        Ok(_) => Err(why.to_owned()),
        Err(error) => Err(format!("{error}. {why}")),
    }
}

//! The process behind a node: readiness from its output, signals, and a watchdog.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, PipeReader};
use std::os::unix::process::CommandExt as _;
use std::path::{self, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::{env, fs, mem, thread};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::wait::receive;

/// The configuration's file name in the node's directory.
const CONFIG: &str = "redis.conf";

const LOG_LINES: usize = 30;

/// One line, for a developer who has just cloned the repository.
const MISSING: &str = "redis-server is not installed: run `cargo xtask test`, which installs it, \
                       or use your package manager";

/// Ends when its input does: on our own death, whatever its kind. Then it does what `Drop` could not.
const WATCHDOG: &str = r#"read -r _; kill -9 "$1"; rm -rf -- "$2""#;

/// A running child, killed and reaped on drop.
///
/// Only `drop` reaps: until then the process id is ours, and no signal can hit a stranger.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    watchdog: Child,
    log: Log,
    paused: bool,
}

type Log = Arc<Mutex<VecDeque<String>>>;

impl Process {
    /// Starts a node in `dir`, and waits until it accepts connections. The error is its output.
    pub(super) fn start(dir: &Path, config: &str) -> Result<Self, String> {
        fs::write(dir.join(CONFIG), config).expect("a file in our own directory");
        Self::restart(dir)
    }

    /// Starts it again as it was, with any changes that it has written to its configuration since.
    pub(super) fn restart(dir: &Path) -> Result<Self, String> {
        let program = program();
        let (output, input) = io::pipe().expect("a pipe");
        let config = fs::read_to_string(dir.join(CONFIG)).expect("a file in our own directory");
        let is_sentinel =
            config.contains("sentinel \"monitor\"") || config.contains("sentinel monitor");
        let child = Command::new(&program)
            .arg(CONFIG)
            .args(is_sentinel.then_some("--sentinel"))
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(input.try_clone().expect("a pipe's second end"))
            .stderr(input)
            // Out of reach of the terminal's ^C: the watchdog knows better when to go.
            .process_group(0)
            .spawn();
        let child =
            child.unwrap_or_else(|error| panic!("{} does not run: {error}", program.display()));
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "sh", &child.id().to_string()])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a shell");

        let log = Log::default();
        let (ready, is_ready) = mpsc::channel();
        let drained = Arc::clone(&log);
        thread::spawn(move || drain(output, &drained, ready));
        let process = Self { child, watchdog, log, paused: false };
        if receive(&is_ready).is_some() { Ok(process) } else { Err(process.log()) }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn is_running(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.pid()), options).expect("our own child").is_none()
    }

    pub(super) fn log(&self) -> String {
        Vec::from(self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()).join("\n")
    }

    pub(super) fn pause(&mut self) {
        if mem::replace(&mut self.paused, true) {
            return;
        }
        kill_process(self.pid(), Signal::STOP).expect("our own child");
        // The parent is notified once all threads have stopped.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.pid()), options).expect("our own child");
        assert!(status.is_some_and(|status| status.stopped()), "a node died: {}", self.log());
        // Take this notice away, or the next pause would find it.
        let taken = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(self.pid()), taken).expect("our own child");
    }

    pub(super) fn resume(&mut self) {
        self.paused = false;
        kill_process(self.pid(), Signal::CONT).expect("our own child");
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The watchdog first: it must not outlive the process id that it knows.
        for child in [&mut self.watchdog, &mut self.child] {
            // SIGKILL ends a stopped process, too.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Reads all output until the process ends, so that it never blocks on a full pipe.
fn drain(output: PipeReader, log: &Log, ready: Sender<()>) {
    let mut ready = Some(ready);
    for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line).into_owned();
        let words = line.to_lowercase();
        // A sentinel says the second.
        let is_ready =
            ["ready to accept connections", "sentinel id is"].map(|it| words.contains(it));
        let is_ready = is_ready.contains(&true);
        let mut lines = log.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LOG_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
        drop(lines);
        if is_ready && let Some(ready) = ready.take() {
            let _ = ready.send(());
        }
    }
}

/// The program to run: `QUORATE_REDIS_SERVER`, else what is in `PATH`.
fn program() -> PathBuf {
    if let Some(named) = env::var_os("QUORATE_REDIS_SERVER") {
        let named = PathBuf::from(named);
        // A path is relative to our directory, not to the node's; a bare name is for `PATH`.
        let is_name = named.components().count() == 1;
        return if is_name { named } else { path::absolute(&named).unwrap_or(named) };
    }
    let search = env::var_os("PATH").unwrap_or_default();
    ["redis-server", "valkey-server"]
        .iter()
        .find_map(|name| {
            env::split_paths(&search).map(|dir| dir.join(name)).find(|file| file.is_file())
        })
        .unwrap_or_else(|| panic!("{MISSING}"))
}

/// What the program to run says of itself: `Redis server v=7.0.15 …`, `Valkey server v=8.0.1 …`.
pub(super) fn version() -> (u32, u32) {
    let program = program();
    let told = Command::new(&program).arg("--version").output().expect("a program that runs");
    let told = String::from_utf8_lossy(&told.stdout);
    let version = told.split_once("v=").expect("a version").1;
    let mut parts = version.split(|letter: char| !letter.is_ascii_digit());
    let mut part = || parts.next().and_then(|part| part.parse().ok()).expect("a number");
    (part(), part())
}

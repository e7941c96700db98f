//! The PostgreSQL of the system, as a server of its own for one test.

#![allow(clippy::expect_used, reason = "a harness fails its test by panicking")]

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

/// One line, for a developer who has not installed it.
const MISSING: &str =
    "PostgreSQL is not installed: `apt-get install postgresql`, or put initdb and pg_ctl in PATH";

/// Goes on when its input ends: on `Drop`, and on our own death, whatever its kind.
const WATCHDOG: &str = r#"read -r _; "$1" stop -s -w -m immediate -D "$2/data"; rm -rf -- "$2""#;

/// The user `nobody`, since no PostgreSQL runs as root.
const NOBODY: u32 = 65_534;

/// A server that listens on a unix socket in a directory of its own. It goes with its owner.
#[derive(Debug)]
pub struct Postgres {
    dir: PathBuf,
    pg_ctl: PathBuf,
    watchdog: Child,
}

impl Postgres {
    /// Starts a server with an empty database, and waits until it is ready.
    ///
    /// # Panics
    ///
    /// It does not start, or is not installed.
    #[must_use]
    pub fn start() -> Self {
        let (initdb, pg_ctl) = (program("initdb"), program("pg_ctl"));
        // The name is short: the path of a unix socket has room for about a hundred bytes.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = env::temp_dir().join(format!("quorate-pg-{}-{number}", process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).expect("a directory for temporary files");
        if is_root() {
            chown(&dir, Some(NOBODY), Some(NOBODY)).expect("root may do that");
        }
        let watchdog = unprivileged(Path::new("sh"), &dir)
            .args(["-c", WATCHDOG, "sh"])
            .args([&pg_ctl, &dir])
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        let server = Self { dir, pg_ctl, watchdog };
        let settings =
            ["-U", "locker", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D", "data"];
        run(unprivileged(&initdb, &server.dir).args(settings), &server.dir);
        server.restart();
        server
    }

    /// The text with which a client connects.
    #[must_use]
    pub fn config(&self) -> String {
        format!("host={} user=locker dbname=postgres", self.dir.display())
    }

    /// Ends it as a crash does. What was committed is on the disk.
    pub fn kill(&self) {
        self.control(&["stop", "-m", "immediate"]);
    }

    /// Starts it after [`kill`](Self::kill), and waits until it is ready.
    pub fn restart(&self) {
        let options = format!("-c listen_addresses= -k {}", self.dir.display());
        self.control(&["start", "-l", "log", "-o", &options]);
    }

    fn control(&self, words: &[&str]) {
        let mut command = unprivileged(&self.pg_ctl, &self.dir);
        run(command.args(words).args(["-w", "-s", "-D", "data"]), &self.dir);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.watchdog.stdin.take());
        let _ = self.watchdog.wait();
    }
}

fn run(command: &mut Command, dir: &Path) {
    let output = command.output().expect("a program that is there");
    let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
    assert!(
        output.status.success(),
        "{command:?}: {}{log}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A command in `dir`, out of reach of the terminal's ^C, and not as root.
fn unprivileged(program: &Path, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).stdout(Stdio::null()).process_group(0);
    if is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().expect("`id`");
    output.stdout.trim_ascii() == b"0"
}

/// A program of PostgreSQL: in `PATH`, else of the newest version where Debian has it.
fn program(name: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    versions.sort_by_key(|dir| dir.to_string_lossy().len());
    let dirs = env::split_paths(&path).chain(versions.into_iter().rev());
    let found = dirs.map(|dir| dir.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{MISSING}"))
}

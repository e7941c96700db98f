//! What a test inherits is no part of it: the signals that its parent ignores, the environment, the
//! umask, few descriptors.

use std::process::Command;
use std::sync::Once;
use std::{env, fs, thread};

use rustix::fs::Mode;
use rustix::process::{Resource, getrlimit, setrlimit, umask};
use tokio::runtime::Builder;
use tokio::signal::unix::{self, SignalKind};

/// What is not of the test, but of the machine and of the build.
const KEPT: [&str; 4] = ["PATH", "HOME", "TMPDIR", "LLVM_PROFILE_FILE"];

/// A process that a test starts begins as on every machine, but for what the test has set.
pub(crate) fn settle(command: &mut Command) {
    static PROCESS: Once = Once::new();
    PROCESS.call_once(|| {
        umask(Mode::WGRP | Mode::WOTH);
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        let _ = setrlimit(Resource::Nofile, limit);
        // The test may be in a runtime, where no other one can end.
        thread::spawn(catch_ignored_signals).join().unwrap();
    });
    let set: Vec<_> = command.get_envs().map(|(name, _)| name.to_owned()).collect();
    for (name, _) in env::vars_os() {
        if !set.contains(&name) && !KEPT.iter().any(|kept| name == *kept) {
            command.env_remove(name);
        }
    }
}

/// A signal that is ignored would be in each process that we start. One that is caught has its
/// default there.
fn catch_ignored_signals() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let _context = runtime.enter();
    // PIPE is ignored by std, which makes it deadly again in a process that it starts. Two signals
    // are those of libc.
    for number in (1..=64).filter(|number| *number != 13 && ignored >> (number - 1) & 1 == 1) {
        let _ = unix::signal(SignalKind::from_raw(number));
    }
}

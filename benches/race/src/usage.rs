//! CPU time and memory of processes, from `/proc`.

use std::fs;
use std::time::Duration;

/// The CPU time of all threads of a process that still run; `self` is this one.
///
/// Nanoseconds of the scheduler, where it counts them; the ticks of `stat` are too coarse for
/// samples of less than a second.
pub(crate) fn cpu(pid: &str) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let spent = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(spent.sum())
}

/// The CPU time of several processes.
pub(crate) fn cpu_of(pids: &[String]) -> Duration {
    pids.iter().map(|pid| cpu(pid)).sum()
}

/// The memory of this process that is in RAM, in bytes.
pub(crate) fn rss() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or_default() * 1024
}

/// Nanoseconds on a clock that all processes of this machine share.
pub(crate) fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + nanos
}

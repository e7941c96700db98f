//! CPU time of processes.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The CPU time of this process, including ended threads.
pub(crate) fn own_cpu() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    // It starts at zero, so neither value is negative.
    Duration::from_secs(spent.tv_sec.unsigned_abs())
        + Duration::from_nanos(spent.tv_nsec.unsigned_abs())
}

/// The CPU time of the live threads of a process.
///
/// Read from `schedstat`: the ticks of `stat` are too coarse for samples of less than a second.
fn cpu(pid: &str) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let spent = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(spent.sum())
}

pub(crate) fn cpu_of(pids: &[String]) -> Duration {
    pids.iter().map(|pid| cpu(pid)).sum()
}

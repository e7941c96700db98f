//! The nodes and the worker processes.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use quorate_tests::{Nodes, RedisServer};

use crate::Outcome;
use crate::book::Book;
use crate::contest::RELEASE;
use crate::worker::Job;

pub(crate) struct Arena {
    nodes: Nodes,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) metrics: Vec<(String, f64)>,
    pub(crate) events: Vec<[u64; 4]>,
}

impl Arena {
    pub(crate) fn start(count: usize) -> Self {
        let arena = Self { nodes: Nodes::start(count) };
        // So that the first release does not differ from later ones.
        for node in arena.nodes.iter() {
            let _ = node.cli(&["SCRIPT", "LOAD", RELEASE]);
        }
        arena
    }

    pub(crate) fn node(&self, place: usize) -> &RedisServer {
        &self.nodes[place]
    }

    pub(crate) fn mend(&self) {
        for node in self.nodes.iter() {
            node.resume();
            node.flushall();
        }
    }

    /// Starts a worker on the first `count` nodes and returns without waiting.
    pub(crate) fn spawn(&self, job: &Job, count: usize) -> Outcome<Worker> {
        self.spawn_by(Command::new(env::current_exe()?), job, count)
    }

    /// The same with the beginning of its command line.
    pub(crate) fn spawn_by(&self, command: Command, job: &Job, count: usize) -> Outcome<Worker> {
        let nodes = &self.nodes[..count];
        let addresses = nodes.iter().map(RedisServer::address).collect();
        let pids = nodes.iter().filter_map(RedisServer::pid).map(|pid| pid.to_string()).collect();
        Worker::spawn(command, &Job { addresses, pids, ..job.clone() })
    }

    /// The commands that all nodes have executed so far.
    pub(crate) fn commands(&self) -> f64 {
        self.nodes.iter().map(commands).sum()
    }

    /// Records the keys that are left on the nodes, and deletes them.
    pub(crate) fn sweep(&self, book: &mut Book, contestant: &str, place: &str) {
        let mut keys = self.nodes.keys_left();
        // Fencing numbers and epochs have no ttl.
        keys.retain(|(_, key)| !key.starts_with("quorate:"));
        if let Some((_, example)) = keys.first() {
            book.leave(contestant, place, keys.len(), example);
            self.nodes.iter().for_each(RedisServer::flushall);
        }
    }
}

/// The commands that a node has executed, including those within scripts, but for the reading.
pub(crate) fn commands(node: &RedisServer) -> f64 {
    let info = node.cli(&["INFO", "commandstats"]).text();
    let calls = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = rest.split(',').next()?.parse::<f64>().ok()?;
        (!matches!(name, "info" | "client|list")).then_some(calls)
    };
    info.lines().filter_map(calls).sum()
}

/// A worker process. Dropping it kills the process.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn spawn(mut command: Command, job: &Job) -> Outcome<Self> {
        command
            .arg("worker")
            .arg(serde_json::to_string(job)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let orders = child.stdin.take().ok_or("a pipe is missing")?;
        let answers = BufReader::new(child.stdout.take().ok_or("a pipe is missing")?);
        Ok(Self { child, orders, answers })
    }

    pub(crate) fn go(&mut self) -> Outcome {
        Ok(self.orders.write_all(b"go\n")?)
    }

    /// Lets the worker close its connections and end.
    pub(crate) fn finish(mut self) -> Outcome {
        self.go()?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("a worker failed: {status}").into()) }
    }

    /// Waits for the line `end`, *ready* or *done*. Returns what the worker reported before it.
    pub(crate) fn wait_until(&mut self, end: &str) -> Outcome<Report> {
        let mut report = Report::default();
        let mut line = String::new();
        while self.answers.read_line(&mut line)? > 0 {
            let text = line.trim_end();
            match text.split_once(' ') {
                None if text == end => return Ok(report),
                Some(("metric", rest)) => {
                    let (name, value) = rest.rsplit_once(' ').ok_or("a metric without value")?;
                    report.metrics.push((name.to_owned(), value.parse()?));
                }
                Some(("event", rest)) => {
                    let numbers: Result<Vec<u64>, _> = rest.split(' ').map(str::parse).collect();
                    report.events.push(numbers?.try_into().map_err(|_| "not four numbers")?);
                }
                _ => return Err(format!("a worker said {text}").into()),
            }
            line.clear();
        }
        Err(format!("a worker ended before `{end}`").into())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

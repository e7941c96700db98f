//! The nodes and the worker processes.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use quorate_tests::{Nodes, RedisServer};

use crate::Outcome;
use crate::book::{Book, Report};
use crate::contest::RELEASE;
use crate::spec::Spec;

/// Nodes that run for as long as the race does.
pub(crate) struct Arena {
    nodes: Nodes,
}

/// The commands that the nodes have executed so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    /// Commands of all nodes, including those within scripts.
    pub(crate) commands: f64,
    pub(crate) sets: f64,
    pub(crate) scripts: f64,
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

    /// Resumes every node, and deletes all keys.
    pub(crate) fn mend(&self) {
        for node in self.nodes.iter() {
            node.resume();
            node.flushall();
        }
    }

    /// Starts a worker on the first `count` nodes and returns without waiting.
    pub(crate) fn spawn(&self, spec: &Spec, count: usize) -> Outcome<Worker> {
        let nodes = &self.nodes[..count];
        let addresses: Vec<_> = nodes.iter().map(RedisServer::address).collect();
        let pids = nodes.iter().filter_map(RedisServer::pid).map(|pid| pid.to_string());
        let pids: Vec<_> = pids.collect();
        let spec = spec.clone().with("addresses", addresses.join(",")).with("pids", pids.join(","));
        Worker::spawn(&spec)
    }

    /// Reads the counts of commands from the nodes. The reading itself is not counted.
    pub(crate) fn done(&self) -> Done {
        let mut done = Done::default();
        for node in self.nodes.iter() {
            let info = node.cli(&["INFO", "everything"]).text();
            let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
            let calls = |name: &str| {
                let line = field(&format!("cmdstat_{name}:calls="))?;
                line.split(',').next()?.parse::<f64>().ok()
            };
            let all = field("total_commands_processed:").and_then(|text| text.parse::<f64>().ok());
            done.commands += all.unwrap_or_default() - calls("info").unwrap_or_default();
            done.sets += calls("set").unwrap_or_default();
            done.scripts +=
                calls("evalsha").unwrap_or_default() + calls("eval").unwrap_or_default();
        }
        done
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

impl Done {
    /// The commands since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            commands: self.commands - earlier.commands,
            sets: self.sets - earlier.sets,
            scripts: self.scripts - earlier.scripts,
        }
    }
}

/// A worker process. Dropping it kills the process.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn spawn(spec: &Spec) -> Outcome<Self> {
        let mut child = Command::new(env::current_exe()?)
            .arg("worker")
            .args(spec.words())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take().ok_or("a pipe is missing")?;
        let answers = BufReader::new(child.stdout.take().ok_or("a pipe is missing")?);
        Ok(Self { child, orders, answers })
    }

    /// Waits until the worker is ready. Returns its report until then.
    pub(crate) fn wait_until_ready(&mut self) -> Outcome<Report> {
        self.read("ready")
    }

    /// Lets the worker continue.
    pub(crate) fn go(&mut self) -> Outcome {
        Ok(self.orders.write_all(b"go\n")?)
    }

    /// Waits until the worker has finished its job. Returns its report since `ready`.
    pub(crate) fn wait_until_done(&mut self) -> Outcome<Report> {
        self.read("done")
    }

    /// Lets the worker close its connections and end.
    pub(crate) fn finish(mut self) -> Outcome {
        self.go()?;
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("a worker failed: {status}").into()) }
    }

    /// Kills the worker with `SIGKILL`.
    pub(crate) fn kill(mut self) -> Outcome {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Reads until the line `end`.
    fn read(&mut self, end: &str) -> Outcome<Report> {
        let mut report = Report::default();
        let mut line = String::new();
        while self.answers.read_line(&mut line)? > 0 {
            let text = line.trim_end();
            if text == end {
                return Ok(report);
            }
            match text.split_once(' ') {
                Some(("metric", rest)) => {
                    let (name, value) = rest.rsplit_once(' ').ok_or("a metric without value")?;
                    report.metrics.push((name.to_owned(), value.parse()?));
                }
                Some(("event", rest)) => {
                    let numbers = rest.split(' ').map(str::parse).collect::<Result<_, _>>()?;
                    report.events.push(numbers);
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

//! The nodes and the worker processes.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use quorate_tests::{Nodes, RedisServer};

use crate::Outcome;
use crate::book::{Book, Leftover};
use crate::contest::RELEASE;
use crate::spec::Spec;

/// The number of nodes that most measures use.
pub(crate) const FIVE: usize = 5;

/// Nodes that run for as long as the race does.
pub(crate) struct Arena {
    nodes: Nodes,
}

/// The commands that the nodes have executed so far.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// Commands of all nodes, including those within scripts.
    pub(crate) commands: f64,
    /// `SET`s of each node.
    pub(crate) sets: Vec<f64>,
    pub(crate) evals: f64,
}

impl Arena {
    pub(crate) fn start(count: usize) -> Self {
        let arena = Self { nodes: Nodes::start(count) };
        arena.nodes.iter().for_each(load_script);
        arena
    }

    pub(crate) fn node(&self, place: usize) -> &RedisServer {
        &self.nodes[place]
    }

    /// Restarts a killed node.
    pub(crate) fn restart(&self, place: usize) {
        self.nodes[place].restart();
        load_script(&self.nodes[place]);
    }

    /// Resumes or restarts every node, and deletes all keys.
    pub(crate) fn mend(&self) {
        for (place, node) in self.nodes.iter().enumerate() {
            if node.is_running() {
                node.resume();
            } else {
                self.restart(place);
            }
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
        let mut done = Done { commands: 0.0, sets: Vec::new(), evals: 0.0 };
        for node in self.nodes.iter() {
            let info = node.cli(&["INFO", "everything"]).text();
            let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name));
            let calls = |name: &str| {
                let line = field(&format!("cmdstat_{name}:calls="))?;
                line.split(',').next()?.parse::<f64>().ok()
            };
            let all = field("total_commands_processed:").and_then(|text| text.parse::<f64>().ok());
            done.commands += all.unwrap_or_default() - calls("info").unwrap_or_default();
            done.sets.push(calls("set").unwrap_or_default());
            done.evals += calls("evalsha").unwrap_or_default() + calls("eval").unwrap_or_default();
        }
        done
    }

    /// Records the keys that are left on the nodes, and deletes them.
    pub(crate) fn sweep(&self, book: &mut Book, contestant: &str, place: &str) {
        let mut keys = self.nodes.keys_left();
        // Fencing numbers and epochs have no ttl.
        keys.retain(|(_, key)| !key.starts_with("quorate:"));
        if let Some((_, example)) = keys.first() {
            book.leave(Leftover {
                contestant: contestant.to_owned(),
                place: place.to_owned(),
                keys: keys.len(),
                example: example.clone(),
            });
            self.nodes.iter().filter(|node| node.is_running()).for_each(RedisServer::flushall);
        }
    }
}

impl Done {
    /// The commands since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let sets = self.sets.iter().zip(&earlier.sets).map(|(now, then)| now - then);
        Self {
            commands: self.commands - earlier.commands,
            sets: sets.collect(),
            evals: self.evals - earlier.evals,
        }
    }
}

/// Loads the script, so that the first release does not differ from later ones.
fn load_script(node: &RedisServer) {
    let _ = node.cli(&["SCRIPT", "LOAD", RELEASE]);
}

/// A worker process. Dropping it kills the process.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The report of a worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) metrics: Vec<(String, f64)>,
    pub(crate) events: Vec<Vec<u64>>,
}

impl Report {
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|(metric, _)| metric == name).map(|(_, value)| *value)
    }

    /// Adds all metrics to `book`.
    pub(crate) fn enter(
        &self,
        book: &mut Book,
        measure: &'static str,
        setting: &str,
        contestant: &str,
    ) {
        for (metric, value) in &self.metrics {
            book.add(measure, setting, contestant, metric, *value);
        }
    }
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
    pub(crate) fn finish(mut self) -> Outcome<Report> {
        self.go()?;
        let report = self.read("")?;
        let status = self.child.wait()?;
        if status.success() { Ok(report) } else { Err(format!("a worker failed: {status}").into()) }
    }

    /// Kills the worker with `SIGKILL`.
    pub(crate) fn kill(mut self) -> Outcome {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Reads until the line `end`, or until the worker ends.
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
        if end.is_empty() {
            Ok(report)
        } else {
            Err(format!("a worker ended before `{end}`").into())
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

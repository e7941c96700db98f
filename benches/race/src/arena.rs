//! The nodes, and the processes that use them.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use quorate_tests::{Nodes, RedisServer};

use crate::Outcome;
use crate::book::{Book, Leftover};
use crate::contest::RELEASE;
use crate::spec::Spec;

/// How many nodes all measures but one use.
pub(crate) const FIVE: usize = 5;

/// Nodes that run for as long as the race does.
pub(crate) struct Arena {
    nodes: Nodes,
}

/// What the nodes have done so far.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// Commands, those within scripts included, over all nodes.
    pub(crate) commands: f64,
    /// Commands of this name on each node.
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

    /// Starts a node again that was killed.
    pub(crate) fn restart(&self, place: usize) {
        self.nodes[place].restart();
        load_script(&self.nodes[place]);
    }

    /// All nodes run, and have nothing, whatever was done to them.
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

    /// Starts a worker on the first `count` nodes, and returns at once.
    pub(crate) fn spawn(&self, spec: &Spec, count: usize) -> Outcome<Worker> {
        let nodes = &self.nodes[..count];
        let addresses: Vec<_> = nodes.iter().map(RedisServer::address).collect();
        let pids = nodes.iter().filter_map(RedisServer::pid).map(|pid| pid.to_string());
        let pids: Vec<_> = pids.collect();
        let spec = spec.clone().with("addresses", addresses.join(",")).with("pids", pids.join(","));
        Worker::spawn(&spec)
    }

    /// What the nodes have done until now, but for the questions.
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

    /// Writes down what keys there are, and takes them away.
    pub(crate) fn sweep(&self, book: &mut Book, contestant: &str, place: &str) {
        let mut keys = self.nodes.keys_left();
        // Keys that a node keeps for good, where asked for: counters, and its server id.
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
    /// What was done since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let sets = self.sets.iter().zip(&earlier.sets).map(|(now, then)| now - then);
        Self {
            commands: self.commands - earlier.commands,
            sets: sets.collect(),
            evals: self.evals - earlier.evals,
        }
    }
}

/// Loads the script, as on nodes that have been in use.
fn load_script(node: &RedisServer) {
    let _ = node.cli(&["SCRIPT", "LOAD", RELEASE]);
}

/// A worker process, killed when this is dropped.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// What a worker reported.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) metrics: Vec<(String, f64)>,
    pub(crate) events: Vec<Vec<u64>>,
}

impl Told {
    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|(metric, _)| metric == name).map(|(_, value)| *value)
    }

    /// Enters all metrics.
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

    /// Waits until it is ready. Returns what it reported until then.
    pub(crate) fn wait_until_ready(&mut self) -> Outcome<Told> {
        self.read("ready")
    }

    /// Lets it go on.
    pub(crate) fn go(&mut self) -> Outcome {
        Ok(self.orders.write_all(b"go\n")?)
    }

    /// Waits until it has done its job.
    pub(crate) fn wait_until_done(&mut self) -> Outcome<Told> {
        self.read("done")
    }

    /// Has it close, and end.
    pub(crate) fn finish(mut self) -> Outcome<Told> {
        self.go()?;
        let told = self.read("")?;
        let status = self.child.wait()?;
        if status.success() { Ok(told) } else { Err(format!("a worker failed: {status}").into()) }
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) -> Outcome {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Reads until the line `end`, or the end.
    fn read(&mut self, end: &str) -> Outcome<Told> {
        let mut told = Told::default();
        let mut line = String::new();
        while self.answers.read_line(&mut line)? > 0 {
            let text = line.trim_end();
            if text == end {
                return Ok(told);
            }
            match text.split_once(' ') {
                Some(("metric", rest)) => {
                    let (name, value) = rest.rsplit_once(' ').ok_or("a metric without value")?;
                    told.metrics.push((name.to_owned(), value.parse()?));
                }
                Some(("event", rest)) => {
                    let numbers = rest.split(' ').map(str::parse).collect::<Result<_, _>>()?;
                    told.events.push(numbers);
                }
                _ => return Err(format!("a worker said {text}").into()),
            }
            line.clear();
        }
        if end.is_empty() { Ok(told) } else { Err(format!("a worker ended before `{end}`").into()) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

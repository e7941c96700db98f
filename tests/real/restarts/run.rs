//! One run: nodes, client processes, the nemesis, and the judge.

use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use quorate_tests::wait::{eventually, now};
use quorate_tests::{Nodes, RedisServer};

use crate::judge::{Hold, Verdict, judge};
use crate::nemesis::{self, Blows};
use crate::plan::{Guard, LOCKS, Plan};
use crate::resource::{counted, lost_without_tokens};

/// The nemesis goes on until there is enough to judge, for so many times the cycles.
const PATIENCE: u32 = 100;

/// What came of a run.
#[derive(Clone, Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "a part of the tests")]
pub struct Figures {
    /// What the nodes went through.
    pub blows: Blows,
    /// What the judge said of the holds.
    pub verdict: Verdict,
    /// Writes that a resource which checks tokens refused, though the lease had not run out when
    /// their holder last looked. With the guard on, it has by then: the holder did not run.
    pub refused: u64,
    /// Writes that the store acknowledged under a token.
    pub written: u64,
    /// How many of those are not there.
    pub lost: u64,
    /// The same of the cells in the processes.
    pub written_in_process: u64,
    /// How many of those are not there.
    pub lost_in_process: u64,
    /// Writes lost by the store that checks no token.
    pub lost_without_tokens: u64,
    /// Requests that ended without the lock, since another holder had it.
    pub held: u64,
    /// Requests that ended without the lock for another reason.
    pub failed: u64,
    /// How long it took.
    pub took: Duration,
}

/// Runs a plan.
///
/// # Panics
///
/// If nodes or processes do not start or do not do what they are asked to.
#[must_use]
pub fn run(plan: &Plan) -> Figures {
    let start = now();
    let mut nodes = Nodes::start_with(plan.nodes, &nemesis::node());
    let store = RedisServer::start();
    let clients = ["redis", "fred"].map(|client| Client::start(plan, client, &nodes, &store));
    let blows = nemesis::strike(plan, &mut nodes, |blows| {
        // However slow the machine is, and however few locks clients get on it.
        let has_enough = || {
            let holds: Vec<Hold> = clients.iter().flat_map(Client::holds).collect();
            let verdict = judge(&holds);
            let written = holds.iter().any(|hold| hold.written > 0 && hold.refused == 0);
            let refused = holds.iter().any(|hold| hold.refused > 0);
            let is_worked = written && verdict.tokens as u64 >= u64::from(plan.cycles);
            match plan.guard {
                Guard::On => is_worked,
                Guard::Off => is_worked && verdict.overlaps > 0 && refused && lost_by(&store) > 0,
            }
        };
        let most = PATIENCE.saturating_mul(plan.cycles);
        blows.cycles() >= plan.cycles && (has_enough() || blows.cycles() >= most)
    });
    let mut figures = Figures { blows, ..Figures::default() };
    let mut holds = Vec::new();
    for client in clients {
        client.finish(&mut holds, &mut figures);
    }
    for hold in &holds {
        figures.refused += u64::from(hold.refused);
        figures.written += u64::from(hold.written);
    }
    figures.verdict = judge(&holds);
    let counted: u64 = (0..LOCKS).map(|lock| counted(&store, lock)).sum();
    figures.lost = figures.written.abs_diff(counted);
    figures.lost_without_tokens = lost_by(&store);
    wait_for_the_last_keys(&nodes);
    figures.took = now() - start;
    figures
}

/// Writes that are not there, of the writes that no token protects.
fn lost_by(store: &RedisServer) -> u64 {
    (0..LOCKS).map(|lock| lost_without_tokens(store, lock)).sum()
}

/// A node that could not be asked to release forgets when the ttl is over.
fn wait_for_the_last_keys(nodes: &Nodes) {
    eventually("no lock key is left", || {
        !nodes.keys_left().iter().any(|(_, key)| key.starts_with("contended:"))
    });
}

/// A client process, and the thread that listens to it.
struct Client {
    child: Child,
    lines: JoinHandle<Vec<String>>,
    /// What it has reported so far.
    holds: Arc<Mutex<Vec<Hold>>>,
}

impl Client {
    fn start(plan: &Plan, client: &str, nodes: &Nodes, store: &RedisServer) -> Self {
        let mut child = Command::new(&plan.program)
            .args(["client", client, &store.port().to_string()])
            .args([&plan.ttl.as_millis().to_string(), plan.guard.word(), &plan.seed.to_string()])
            .args(nodes.addresses())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("our own program");
        let output = child.stdout.take().expect("a pipe");
        let holds = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&holds);
        let lines = thread::spawn(move || {
            let see = |line: &String| {
                let hold = line.strip_prefix("hold ").and_then(|hold| hold.parse::<Hold>().ok());
                seen.lock().unwrap_or_else(PoisonError::into_inner).extend(hold);
            };
            BufReader::new(output).lines().map_while(Result::ok).inspect(see).collect()
        });
        Self { child, lines, holds }
    }

    fn holds(&self) -> Vec<Hold> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends it, and takes down what it said.
    fn finish(mut self, holds: &mut Vec<Hold>, figures: &mut Figures) {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("our own child");
        let lines = self.lines.join().expect("it only reads");
        assert!(status.success(), "a client process failed: {status}: {:?}", lines.last());
        for line in lines {
            let numbers = |words: &str| -> (u64, u64) {
                let (one, other) = words.split_once(' ').expect("two numbers");
                (one.parse().expect("a number"), other.parse().expect("a number"))
            };
            match line.split_once(' ') {
                Some(("hold", words)) => holds.push(words.parse().expect("a hold")),
                Some(("cell", words)) => {
                    let (counted, written) = numbers(words);
                    figures.written_in_process += written;
                    figures.lost_in_process += written.abs_diff(counted);
                }
                Some(("missed", words)) => {
                    let (held, failed) = numbers(words);
                    figures.held += held;
                    figures.failed += failed;
                }
                _ => panic!("a client said {line}"),
            }
        }
    }
}

impl Figures {
    /// Whether that is what the plan promises.
    ///
    /// # Errors
    ///
    /// All that is not.
    pub fn judge(&self, plan: &Plan) -> Result<(), String> {
        let Verdict { overlaps, tokens, repeated, fallen, example } = &self.verdict;
        let mut wrong = Vec::new();
        let mut must = |is_so: bool, what: String| {
            if !is_so {
                wrong.push(what);
            }
        };
        let lost = self.lost + self.lost_in_process;
        must(lost == 0, format!("{lost} writes were lost that had been acknowledged"));
        must(self.written > 0 && self.written_in_process > 0, "nobody wrote".to_owned());
        must(*tokens as u64 >= u64::from(plan.cycles), format!("only {tokens} locks were had"));
        match plan.guard {
            Guard::On => {
                let example = example.as_deref().unwrap_or_default();
                must(*overlaps == 0, format!("{overlaps} holds overlap, one {example}"));
                must(*repeated == 0, format!("{repeated} tokens were given twice"));
                must(*fallen == 0, format!("{fallen} tokens fell"));
            }
            Guard::Off => {
                let seen = "without the guard, so this would not see it";
                must(*overlaps > 0, format!("no overlap was seen {seen}"));
                must(self.refused > 0, format!("no stale writer was refused {seen}"));
                must(self.lost_without_tokens > 0, format!("no write was lost {seen}"));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { overlaps, tokens, repeated, fallen, .. } = &self.verdict;
        writeln!(f, "  {}, {} cycles in {:.0?}", self.blows, self.blows.cycles(), self.took)?;
        writeln!(
            f,
            "  {tokens} locks had ({} requests found it held to the end, {} failed): \
             {overlaps} overlaps, {repeated} tokens repeated, {fallen} fell",
            self.held, self.failed
        )?;
        write!(
            f,
            "  under tokens {} writes in the store, {} in cells: {} and {} lost, {} refused; \
             without tokens {} lost",
            self.written,
            self.written_in_process,
            self.lost,
            self.lost_in_process,
            self.refused,
            self.lost_without_tokens
        )
    }
}

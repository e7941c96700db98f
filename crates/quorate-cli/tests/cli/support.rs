//! Runs of `quorate`, each with a folder of its own.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::inherited;
use quorate_tests::wait::eventually;
use quorate_tests::{Nodes, RedisServer, Reply, TempDir, temp_dir};
use rustix::process::{Pid, Signal, kill_process, test_kill_process, test_kill_process_group};
use serde_json::Value;

pub(crate) const QUORATE: &str = env!("CARGO_BIN_EXE_quorate");

/// A period that no test sees the end of.
pub(crate) const LONG_PERIOD: &str = "1month";

/// A lease whose renewals are seconds apart, and long enough for a busy machine.
pub(crate) const RENEWED_SOON: &str = "--ttl 9s --kill-after 100ms";

/// A script that says that it runs, and ends once there is a file `go`.
pub(crate) const UNTIL_GO: &str =
    "echo started > started; until [ -e go ] || [ ! -e here ]; do sleep 0.01; done";

/// A folder for the files of one command. When it is gone, scripts that loop while `here` exists end.
#[derive(Debug)]
pub(crate) struct Dir(TempDir);

impl Dir {
    pub(crate) fn new() -> Self {
        let dir = temp_dir();
        fs::write(dir.path().join("here"), "").unwrap();
        Self(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).unwrap();
    }

    /// The text of a file; empty if there is none.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// Waits until a script has written a line into the file.
    pub(crate) fn wait_for(&self, name: &str) -> String {
        eventually(format_args!("{name} in {self:?}"), || self.read(name).ends_with('\n'));
        self.read(name).trim_end().to_owned()
    }
}

/// `quorate` with these nodes in its environment. Neither a terminal nor the environment of the test concerns it.
pub(crate) fn quorate(dir: &Dir, addresses: &[String]) -> Command {
    with_nodes(Command::new(QUORATE), dir, addresses)
}

/// A program that runs `quorate`, with these nodes in its environment. It is not in the foreground of the test's terminal.
pub(crate) fn with_nodes(mut command: Command, dir: &Dir, addresses: &[String]) -> Command {
    inherited::settle(&mut command);
    // `setsid` leaves that terminal by itself. The leader of a group would have to fork.
    if command.get_program() != "setsid" {
        command.process_group(0);
    }
    command.env("QUORATE_NODES", addresses.join(" ")).current_dir(dir.path()).stdin(Stdio::null());
    command
}

/// A process that was started. Its output goes to files, which no process can block on.
#[derive(Debug)]
pub(crate) struct Started {
    child: Child,
    output: [PathBuf; 2],
}

/// A process that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    /// The exit code. A process that a signal ended has none.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// What it printed on standard error, but for the nodes that a busy machine gave no time to answer.
    pub(crate) fn told(&self) -> String {
        let is_late = |line: &&str| line.contains(" does not vote: no ");
        self.err.split_inclusive('\n').filter(|line| !is_late(line)).collect()
    }

    /// Whether each node that it named had the time to answer.
    pub(crate) fn is_answered(&self) -> bool {
        let late = ["no reply within ", "no connection within "];
        !late.iter().any(|late| self.out.contains(late) || self.err.contains(late))
    }

    /// What it printed with `--json`.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap()
    }

    /// Asserts that it ended with 0 and printed nothing.
    #[track_caller]
    pub(crate) fn assert_silent(&self) {
        assert_eq!((self.code(), &*self.out, &*self.told()), (Some(0), "", ""), "{self:?}");
    }
}

impl Started {
    pub(crate) fn spawn(command: Command, dir: &Dir) -> Self {
        Self::spawn_with(command, dir, None)
    }

    /// Starts a process with this standard error, if one is given.
    pub(crate) fn spawn_with(mut command: Command, dir: &Dir, errors: Option<Stdio>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let output = ["out", "err"].map(|name| dir.file(&format!("{number}.{name}")));
        let [out, err] = &output;
        let file = File::create(err).unwrap();
        command.stdout(File::create(out).unwrap()).stderr(errors.unwrap_or_else(|| file.into()));
        Self { child: command.spawn().unwrap(), output }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let _ = kill_process(self.pid(), signal);
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// What it has printed on standard error so far.
    pub(crate) fn err(&self) -> String {
        fs::read_to_string(&self.output[1]).unwrap()
    }

    pub(crate) fn done(&mut self) -> Done {
        eventually("the end of a process", || !self.is_running());
        let status = self.child.wait().unwrap();
        let [out, err] = self.output.each_ref().map(|file| fs::read_to_string(file).unwrap());
        Done { status, out, err }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts `quorate` with these words.
pub(crate) fn start(dir: &Dir, addresses: &[String], words: &[&str]) -> Started {
    let mut command = quorate(dir, addresses);
    command.args(words);
    Started::spawn(command, dir)
}

/// Runs `quorate` with these words to its end.
pub(crate) fn run(dir: &Dir, addresses: &[String], words: &[&str]) -> Done {
    start(dir, addresses, words).done()
}

/// Starts `quorate run` with these words and a script, and waits for a line that the script writes into a file.
pub(crate) fn begin(
    dir: &Dir,
    addresses: &[String],
    words: &str,
    script: &str,
    file: &str,
) -> (Started, String) {
    let words: Vec<&str> = ["run"].into_iter().chain(words.split_whitespace()).collect();
    let started = start(dir, addresses, &[&words[..], &["-c", script]].concat());
    (started, dir.wait_for(file))
}

/// Starts `quorate run` with these words, and a command that ends once there is a file `go`.
pub(crate) fn hold(dir: &Dir, addresses: &[String], words: &str) -> Started {
    begin(dir, addresses, words, UNTIL_GO, "started").0
}

/// Runs `quorate` again and again, until it has ended as `is_so` says.
pub(crate) fn run_until(is_so: impl Fn(&Done) -> bool, run: impl Fn() -> Done) -> Done {
    let mut last = None;
    eventually("such an end of a process", || is_so(last.insert(run())));
    last.unwrap()
}

/// Runs `quorate` with these words, which ask each node once, until each one has had the time to answer.
pub(crate) fn ask(dir: &Dir, addresses: &[String], words: &[&str]) -> Done {
    run_until(Done::is_answered, || run(dir, addresses, words))
}

/// Runs `quorate` until a quorum has had the time to answer: with `--once-per` it asks only once.
pub(crate) fn with_quorum(run: impl Fn() -> Done) -> Done {
    run_until(|done| done.code() != Some(69), run)
}

/// A process that a script named by its process id.
pub(crate) fn pid(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

/// The group of a process: 0 for one outside of our pid namespace.
pub(crate) fn group_of(process: Pid) -> i32 {
    ps(process, "pgid=").parse().unwrap()
}

fn ps(process: Pid, field: &str) -> String {
    let process = process.as_raw_nonzero().to_string();
    let output = Command::new("ps").args(["-o", field, "-p", &process]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Whether a process of the group runs. One that has ended and was not waited for by its parent does not.
pub(crate) fn is_group_alive(group: Pid) -> bool {
    if test_kill_process_group(group).is_err() {
        return false;
    }
    // Where processes can be looked at, zombies do not count.
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    let group = group.as_raw_nonzero().to_string();
    processes.flatten().any(|process| {
        let stat = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        let its = stat.rsplit(") ").next().and_then(|fields| fields.split(' ').nth(2));
        its == Some(&group) && !is_dead(&stat)
    })
}

/// Whether all threads of a process have ended. The first one reads `Z` while others live.
fn is_dead(stat: &str) -> bool {
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    fields[0] == "Z" && fields.get(17) == Some(&"1")
}

/// Whether a process is stopped.
pub(crate) fn is_stopped(process: Pid) -> bool {
    ps(process, "state=").starts_with('T')
}

/// Whether a process runs. One that waits for its burial does not.
pub(crate) fn is_alive(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    stat.map_or_else(|_| test_kill_process(process).is_ok(), |stat| !is_dead(&stat))
}

/// Another client takes the lock on all nodes, with a value as every Redlock library has it.
pub(crate) fn take(nodes: &Nodes, name: &str) {
    for node in nodes.iter() {
        let reply = node.cli(&["SET", name, "another client", "NX", "PX", "3600000"]);
        assert_eq!(reply, Reply::Simple("OK".to_owned()));
    }
}

/// Deletes the lock on all nodes.
pub(crate) fn delete(nodes: &Nodes, name: &str) {
    for node in nodes.iter() {
        node.cli(&["DEL", name]);
    }
}

/// The keys that are left when each node has executed all that it was sent: only then does the node end the connections
/// of processes that have ended.
pub(crate) fn keys_left(nodes: &Nodes) -> Vec<(usize, String)> {
    let is_alone = |node: &RedisServer| node.info("connected_clients") == "1";
    eventually("the end of all connections", || nodes.iter().all(is_alone));
    nodes.keys_left()
}

/// Ends the connections to the nodes, and waits until there are others at each: a renewal makes them.
pub(crate) fn connects_again(nodes: &Nodes) {
    let ours = |node: &RedisServer| {
        let list = node.cli(&["CLIENT", "LIST"]).text();
        let ours = list.lines().filter(|line| line.contains(" name=quorate "));
        ours.filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect::<Vec<_>>()
    };
    let before: Vec<_> = nodes.iter().map(ours).collect();
    for (node, before) in nodes.iter().zip(&before) {
        assert_ne!(*before, [""; 0]);
        assert_ne!(node.cli(&["CLIENT", "KILL", "TYPE", "normal"]).integer(), 0);
    }
    let is_new =
        |(node, before): (_, &Vec<String>)| ours(node).iter().any(|id| !before.contains(id));
    eventually("other connections", || nodes.iter().zip(&before).all(is_new));
}

/// Waits until another process waits for the lock.
pub(crate) fn wait_for_a_waiter(nodes: &Nodes, name: &str) {
    let waiters = quorate_tests::keys::waiters(name);
    eventually("a process that waits", || {
        nodes.iter().any(|node| node.cli(&["EXISTS", &waiters]).integer() == 1)
    });
}

/// Nodes that hang for writes: as stopped ones, no lock is acquired or extended there. Their ttls can be read.
pub(crate) fn pause_writes(nodes: &Nodes) {
    for node in &nodes[..2] {
        assert_eq!(node.cli(&["CLIENT", "PAUSE", "3600000", "WRITE"]).text(), "OK");
    }
}

pub(crate) fn unpause_writes(nodes: &Nodes) {
    for node in &nodes[..2] {
        assert_eq!(node.cli(&["CLIENT", "UNPAUSE"]).text(), "OK");
    }
}

//! A process that a test starts, and the lines that it prints.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::eventually;

/// A process with a pipe at its input and at its output. It does not outlive its value.
#[derive(Debug)]
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    lines: Arc<Mutex<Vec<String>>>,
    reader: JoinHandle<()>,
    /// How many lines [`line`](Self::line) has returned.
    read: usize,
}

impl Program {
    /// Starts the program at `path` with these words.
    pub fn start<W: AsRef<str>>(path: &str, words: impl IntoIterator<Item = W>) -> Self {
        let words = words.into_iter().map(|word| word.as_ref().to_owned());
        let mut command = Command::new(path);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a program");
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("a pipe"));
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&lines);
        let reader = thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Self { child, input, lines, reader, read: 0 }
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the next line.
    pub fn line(&mut self) -> String {
        eventually("a line of a program", || self.lines().len() > self.read);
        self.read += 1;
        self.lines().swap_remove(self.read - 1)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("our own child");
    }

    /// Ends its input and waits until it has ended. Returns all its lines.
    pub fn end(&mut self) -> Vec<String> {
        drop(self.input.take());
        assert!(self.child.wait().expect("our own child").success());
        eventually("the end of its output", || self.reader.is_finished());
        self.lines()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

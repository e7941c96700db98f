//! A terminal: the line that names the holder during a wait, and the command in the foreground.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use quorate_tests::Nodes;
use quorate_tests::wait::{eventually, receive};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::{
    Dir, UNTIL_GO, delete, group_of, is_alive, keys_left, pid, quorate, start, take,
    wait_for_a_waiter,
};
#[cfg(target_os = "linux")]
use crate::support::{QUORATE, is_stopped, with_nodes};

/// The two ends of a terminal. It goes away with the first.
pub(crate) fn ends() -> (File, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let slave = OpenOptions::new().read(true).write(true).open(path).unwrap();
    (master.into(), slave)
}

/// The other end of a terminal.
pub(crate) struct Terminal {
    master: File,
    slave: File,
    printed: Receiver<Vec<u8>>,
    text: String,
}

impl Terminal {
    pub(crate) fn open() -> Self {
        let (master, slave) = ends();
        let (sender, printed) = channel();
        let mut reader = master.try_clone().unwrap();
        thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { master, slave, printed, text: String::new() }
    }

    /// Starts a command with all three streams on the terminal.
    pub(crate) fn spawn(&self, mut command: Command) -> Child {
        let end = || self.slave.try_clone().unwrap();
        command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap()
    }

    /// Starts `quorate` with these words on the terminal.
    pub(crate) fn run(&self, dir: &Dir, nodes: &Nodes, words: &[&str]) -> Child {
        let mut command = quorate(dir, &nodes.addresses());
        command.args(words);
        self.spawn(command)
    }

    /// Starts a program in the foreground of a session of its own, whose terminal this is.
    #[cfg(target_os = "linux")]
    fn lead(&self, dir: &Dir, nodes: &Nodes, words: &[&str]) -> Child {
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(words);
        self.spawn(with_nodes(command, dir, &nodes.addresses()))
    }

    /// All that was printed, when nobody prints any more.
    fn end(self) -> String {
        let Self { slave, printed, mut text, .. } = self;
        drop(slave);
        printed.iter().for_each(|more| text += &String::from_utf8_lossy(&more));
        text
    }

    /// Waits until this was printed.
    pub(crate) fn wait_for(&mut self, text: &str) {
        // A line is written each second.
        for _ in 0..100 {
            if self.text.contains(text) {
                return;
            }
            let more =
                receive(&self.printed).unwrap_or_else(|| panic!("no {text:?}: {:?}", self.text));
            self.text += &String::from_utf8_lossy(&more);
        }
        panic!("no {text:?}: {:?}", self.text);
    }

    pub(crate) fn answer(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }
}

pub(crate) fn code(mut child: Child) -> Option<i32> {
    eventually("the end of a process", || child.try_wait().unwrap().is_some());
    child.wait().unwrap().code()
}

#[test]
fn x9_a_line_on_a_terminal_says_who_holds_it_and_for_how_long() {
    let (nodes, dir, mut terminal) = (&Nodes::start(3), &Dir::new(), Terminal::open());
    let words = ["run", "--label", "web-3 \u{202e}nightly", "orders:42", "-c", UNTIL_GO];
    let mut holder = start(dir, &nodes.addresses(), &words);
    dir.wait_for("started");
    // The same beside it, without a terminal.
    let words = ["run", "--wait", "1h", "orders:42", "--", "true"];
    let mut silent = start(dir, &nodes.addresses(), &words);
    // The first of its two names is free.
    let waiting =
        terminal.run(dir, nodes, &["run", "--wait", "1h", "orders:41", "orders:42", "--", "true"]);
    terminal.wait_for("\r\x1b[Korders:42: held by \"web-3 \\u{202e}nightly\", ");
    terminal.wait_for("s left; waiting for ");
    // A whole line, and the next one. Which seconds they say depends on how fast the nodes answer.
    terminal.wait_for(" s of 3600 s\r\x1b[K");
    dir.write("go", "");
    assert_eq!((holder.done().code(), code(waiting)), (Some(0), Some(0)));
    silent.done().assert_silent();
    // The line is cleared.
    let text = terminal.end();
    assert!(text.ends_with("\r\x1b[K"), "{text:?}");
}

/// Runs `quorate` as a background job of a shell, whose terminal this becomes.
#[cfg(target_os = "linux")]
fn spawn_behind(terminal: &Terminal, dir: &Dir, nodes: &Nodes, job: &str) -> Child {
    let script = format!(r#"set -m; "$0" {job} & wait $!"#);
    terminal.lead(dir, nodes, &["bash", "-c", &script, QUORATE])
}

/// The person types there, and does something else.
#[cfg(target_os = "linux")]
#[test]
fn x9_a_background_job_draws_no_line() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let (behind, mut front) = (Terminal::open(), Terminal::open());
    take(nodes, "lock");
    let job = spawn_behind(&behind, dir, nodes, "run --wait 1h lock -- true");
    wait_for_a_waiter(nodes, "lock");
    // This one began later, and has drawn two lines.
    let waiting = front.run(dir, nodes, &["run", "--wait", "1h", "lock", "--", "true"]);
    front.wait_for("s of 3600 s\r\x1b[Klock: held by ");
    delete(nodes, "lock");
    assert_eq!([code(job), code(waiting)], [Some(0); 2]);
    let text = behind.end();
    assert!(!text.contains("waiting for") && !text.contains("\x1b[K"), "{text:?}");
}

/// `stty tostop`: a job that prints in the background is stopped.
#[cfg(target_os = "linux")]
#[test]
fn x9_a_terminal_that_stops_a_background_job_that_prints_stops_nothing() {
    let (nodes, dir, terminal) = (&Nodes::start(3), &Dir::new(), Terminal::open());
    let set =
        Command::new("stty").arg("tostop").stdin(terminal.slave.try_clone().unwrap()).status();
    assert!(set.unwrap().success());
    // It prints before the command begins, and at the end.
    let job = spawn_behind(&terminal, dir, nodes, "run -v lock -c 'echo ran > ran'");
    assert_eq!((code(job), &*dir.read("ran")), (Some(0), "ran\n"));
}

/// INT, QUIT and TSTP are the terminal's; all others go to all of the command.
#[test]
fn x2_on_a_terminal_the_command_stays_in_our_group_and_all_of_it_is_signalled() {
    let (nodes, dir, terminal) = (&Nodes::start(3), &Dir::new(), Terminal::open());
    let script = "echo $$ > command; sh -c 'echo $$ > child; while [ -e here ]; do sleep 0.02; done; echo b > b' & \
                  while [ -e here ]; do sleep 0.02; done";
    let started = terminal.run(dir, nodes, &["run", "lock", "-c", script]);
    let (command, child) = (pid(&dir.wait_for("command")), pid(&dir.wait_for("child")));
    let quorate = Pid::from_child(&started);
    assert_eq!([command, child].map(group_of), [group_of(quorate); 2]);
    kill_process(quorate, Signal::TERM).unwrap();
    assert_eq!(code(started), Some(128 + 15));
    if cfg!(target_os = "linux") {
        assert!(!is_alive(child));
    }
}

/// The command itself may begin a session: it is the command all the same, with all below it.
#[cfg(target_os = "linux")]
#[test]
fn x2_a_command_that_begins_a_session_is_signalled() {
    let (nodes, dir, terminal) = (&Nodes::start(3), &Dir::new(), Terminal::open());
    let script =
        "echo $$ > session; sh -c 'echo $$ > child; while [ -e here ]; do sleep 0.02; done'; true";
    let started = terminal.run(dir, nodes, &["run", "lock", "--", "setsid", "sh", "-c", script]);
    let child = pid(&dir.wait_for("child"));
    assert_eq!(rustix::process::getsid(Some(child)).unwrap(), pid(&dir.wait_for("session")));
    kill_process(Pid::from_child(&started), Signal::TERM).unwrap();
    assert_eq!(code(started), Some(128 + 15));
    assert!(!is_alive(child));
}

/// The terminal signals the whole group in the foreground, and `quorate` adds nothing to that.
#[cfg(target_os = "linux")]
#[test]
fn x3_an_interrupt_key_reaches_the_command_once() {
    let (nodes, dir, mut terminal) = (&Nodes::start(3), &Dir::new(), Terminal::open());
    let script = "trap 'echo int >> ints' INT; trap 'echo quit >> ints' QUIT; trap 'echo usr1 > usr1' USR1; \
                  echo started > started; until [ -e usr1 ] || [ ! -e here ]; do sleep 0.02; done; exit 0";
    let started = terminal.lead(dir, nodes, &[QUORATE, "run", "lock", "-c", script]);
    let quorate = Pid::from_child(&started);
    dir.wait_for("started");
    // `quorate` takes notice when the command has had the signal.
    for (key, ints) in [(b"\x03", "int\n"), (b"\x1c", "int\nquit\n")] {
        kill_process(quorate, Signal::STOP).unwrap();
        eventually("a stop", || is_stopped(quorate));
        terminal.master.write_all(key).unwrap();
        eventually("a signal", || dir.read("ints") == ints);
        kill_process(quorate, Signal::CONT).unwrap();
    }
    // Forwarded, and after the others. It ends what the shell waits for.
    kill_process(quorate, Signal::USR1).unwrap();
    assert_eq!(code(started), Some(0));
    assert_eq!(dir.read("ints"), "int\nquit\n");
}

/// As `ssh`, `sudo` and `psql` do for a password, in a loop that reads a list of hosts.
#[cfg(target_os = "linux")]
#[test]
fn x2_a_command_can_ask_on_the_terminal_whatever_its_standard_input_is() {
    let (nodes, dir, mut terminal) = (&Nodes::start(3), &Dir::new(), Terminal::open());
    let script = r#""$0" run lock -c 'read line </dev/tty; echo "$line" > line' </dev/null"#;
    let started = terminal.lead(dir, nodes, &["sh", "-c", script, QUORATE]);
    terminal.answer("a password\n");
    assert_eq!(dir.wait_for("line"), "a password");
    assert_eq!(code(started), Some(0));
}

/// Ctrl-S: the terminal takes no more text. The wait goes on, the command runs, and the exit code arrives.
#[test]
fn x9_a_terminal_whose_output_is_stopped_stops_nothing() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    for signal in [None, Some(Signal::TERM)] {
        take(nodes, "lock");
        let mut terminal = Terminal::open();
        let waiting = terminal.run(
            dir,
            nodes,
            &["run", "-v", "--wait", "1h", "lock", "-c", "echo ran > ran"],
        );
        terminal.wait_for(" s of 3600 s");
        terminal.master.write_all(b"\x13").unwrap();
        match signal {
            None => delete(nodes, "lock"),
            Some(signal) => kill_process(Pid::from_child(&waiting), signal).unwrap(),
        }
        let expected = signal.map_or(0, |signal| 128 + signal.as_raw());
        assert_eq!(code(waiting), Some(expected));
        assert_eq!(dir.read("ran"), if signal.is_some() { "" } else { "ran\n" });
        delete(nodes, "lock");
        let _ = std::fs::remove_file(dir.file("ran"));
    }
}

/// The terminal goes away, and HUP with it, in the moment in which the lock is free: the winner leaves no key.
#[cfg(target_os = "linux")]
#[test]
fn x3_a_terminal_that_goes_away_at_the_turn_leaves_no_key() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    for _ in 0..50 {
        take(nodes, "lock");
        let (master, slave) = ends();
        let mut command = Command::new("setsid");
        command.args(["--ctty", QUORATE, "run", "--wait", "1h", "lock", "--", "true"]);
        let mut command = with_nodes(command, dir, &nodes.addresses());
        let end = || slave.try_clone().unwrap();
        let waiting = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        drop((command, slave));
        wait_for_a_waiter(nodes, "lock");
        delete(nodes, "lock");
        drop(master);
        let code = code(waiting);
        assert!(matches!(code, Some(0 | 129)), "{code:?}");
        assert_eq!(keys_left(nodes), []);
    }
}

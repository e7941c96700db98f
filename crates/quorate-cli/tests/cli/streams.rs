//! Standard error and standard output never decide about the lock.

use std::fs::{File, OpenOptions};
use std::io::pipe;
use std::process::{Command, Stdio};

use quorate_tests::Nodes;
use quorate_tests::wait::eventually;
use rustix::process::Signal;

use crate::support::{Dir, QUORATE, Started, keys_left, quorate, with_nodes};

/// A disk that is full.
pub(crate) fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// A pipe without a reader.
pub(crate) fn closed() -> Stdio {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    writer.into()
}

/// Runs `quorate` to its end, and returns its code and standard error.
fn run(dir: &Dir, mut command: Command, output: Stdio) -> (Option<i32>, String) {
    let errors = dir.file("errors");
    command.stdout(output).stderr(File::create(&errors).unwrap());
    let mut child = command.spawn().unwrap();
    eventually("the end of a process", || child.try_wait().unwrap().is_some());
    (child.wait().unwrap().code(), std::fs::read_to_string(errors).unwrap())
}

#[cfg(target_os = "linux")]
#[test]
fn x4_a_report_that_cannot_be_written_is_74_and_one_that_nobody_reads_is_quiet() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    for (words, code) in [
        (&["inspect", "--permits", "1", "lock"][..], 1),
        (&["inspect", "--json", "--permits", "1", "lock"], 1),
        (&["free", "--yes", "--permits", "1", "lock"], 0),
        (&["nodes"], 70),
        (&["--help"], 0),
        (&["run", "--help"], 0),
        (&["--version"], 0),
    ] {
        let quorate = || {
            let mut command = quorate(dir, &nodes.addresses());
            command.args(words);
            command
        };
        let (seen, errors) = run(dir, quorate(), full().into());
        assert_eq!(seen, Some(74), "{words:?}: {errors}");
        assert!(errors.starts_with("quorate: standard output: "), "{words:?}: {errors}");
        assert_eq!(run(dir, quorate(), closed()), (Some(code), String::new()), "{words:?}");
    }
}

/// Nobody can extend or release the lock, so it is free.
#[cfg(target_os = "linux")]
#[test]
fn x4_a_record_that_cannot_be_written_leaves_no_lock() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let lock = || {
        let mut command = quorate(dir, &nodes.addresses());
        command.args(["lock", "lock", "--ttl", "1h"]);
        command
    };
    let is_free = "the record was not written, the lock is free: ";
    // As std has it if standard output is closed: `>&-`.
    let (null, is_lost) = (Stdio::null(), "the record would be lost: standard output is /dev/null");
    for (output, text) in [(full().into(), is_free), (closed(), is_free), (null, is_lost)] {
        let (code, errors) = run(dir, lock(), output);
        assert_eq!(code, Some(74), "{errors}");
        assert!(errors.contains(text), "{errors}");
        assert_eq!(keys_left(nodes), []);
    }
    // A pipe that is full, and not read.
    let (reader, mut writer) = pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while std::io::Write::write(&mut writer, &[0; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let mut command = lock();
    command.stdout(writer).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    eventually("a lock", || nodes.keys_left().len() == 3);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    eventually("the end of a process", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(128 + 15));
    assert_eq!(keys_left(nodes), []);
    drop(reader);
}

/// A shell gives the command what it has opened, and nothing of ours is open there.
#[test]
fn x4_the_command_inherits_what_was_open_and_nothing_else() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let mut shell = Command::new("sh");
    let inner = "echo out; echo err >&2; cat; echo extra >&9; ls /proc/$$/fd > open";
    shell.args(["-c", r#"exec 9> extra; echo before >&9; echo in | exec "$0" run lock -c "$1""#]);
    shell.args([QUORATE, inner]);
    let done = Started::spawn(with_nodes(shell, dir, &nodes.addresses()), dir).done();
    assert_eq!((done.code(), &*done.out, &*done.told()), (Some(0), "out\nin\n", "err\n"));
    assert_eq!(dir.read("extra"), "before\nextra\n");
    if cfg!(target_os = "linux") {
        // A shell may keep its script or a copy of a stream above 9.
        let open = dir.read("open");
        let low = open.lines().filter(|number| number.len() == 1);
        assert_eq!(low.collect::<Vec<_>>(), ["0", "1", "2", "9"]);
    }
}

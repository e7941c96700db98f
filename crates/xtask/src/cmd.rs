//! Commands, shown before they run.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, io};

/// Nothing, or one line or more on what is wrong.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// Whether commands print only when they fail.
pub(crate) static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// A command to run at the top of the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cmd {
    words: Vec<String>,
    env: Vec<(String, String)>,
}

/// A cargo command, of the cargo that runs us.
pub(crate) fn cargo(args: &[&str]) -> Cmd {
    Cmd::new("cargo").args(args)
}

/// The top of the repository.
///
/// Asked at run time: clones may share a target directory, and so this program.
pub(crate) fn root() -> Outcome<PathBuf> {
    let own = env::var_os("CARGO_MANIFEST_DIR").ok_or("run it as `cargo xtask`")?;
    let root = PathBuf::from(own).join("../..");
    root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))
}

/// Whether a program is in `PATH`.
pub(crate) fn is_in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

impl Cmd {
    pub(crate) fn new(program: &str) -> Self {
        Self { words: vec![program.to_owned()], env: Vec::new() }
    }

    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.words.extend(args.iter().map(ToString::to_string));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs it with our input and output; in a [stage](crate::stage), in silence: if it fails, the error has
    /// what it printed.
    pub(crate) fn run(&self) -> Outcome {
        if IS_QUIET.load(Ordering::Relaxed) {
            return self.run_seeing(|_| {});
        }
        println!("$ {self}");
        let status = self.command()?.status();
        self.judge(status)
    }

    /// Runs it in silence, and shows each line of its output to `see`.
    pub(crate) fn run_seeing(&self, mut see: impl FnMut(&str)) -> Outcome {
        let output = self.command()?.stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("`{self}`: {error}"))?;
        let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        out.lines().for_each(&mut see);
        self.judge(Ok(output.status)).map_err(|why| format!("{why}\n{err}\n{out}\n{why}"))
    }

    /// Runs it in silence, and returns what it printed.
    pub(crate) fn read(&self) -> Outcome<String> {
        let mut text = String::new();
        self.run_seeing(|line| {
            text.push_str(line);
            text.push('\n');
        })?;
        Ok(text)
    }

    fn command(&self) -> Outcome<Command> {
        let (program, args) = self.words.split_first().ok_or("an empty command")?;
        let program = match program.as_str() {
            "cargo" => env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
            other => OsString::from(other),
        };
        let mut command = Command::new(program);
        // `cargo run` sets variables about our package. Build scripts in a cargo under us would
        // take them for a change and build everything again, and cargo-machete would not know its
        // caller.
        let of_a_package = ["CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_BIN_", "CARGO_CRATE_"];
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if of_a_package.iter().any(|of| text.starts_with(of)) {
                command.env_remove(&name);
            }
        }
        command
            .args(args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(root()?);
        Ok(command)
    }

    fn judge(&self, status: io::Result<ExitStatus>) -> Outcome {
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("`{self}`: {status}")),
            Err(error) => Err(format!("`{self}`: {error}")),
        }
    }
}

impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env = self.env.iter().map(|(name, value)| format!("{name}='{value}'"));
        let words: Vec<_> = env.chain(self.words.iter().cloned()).collect();
        f.write_str(&words.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_a_shell_would_take_it() {
        let cmd = cargo(&["doc", "--locked"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(cmd.to_string(), "RUSTDOCFLAGS='-D warnings' cargo doc --locked");
    }

    #[test]
    fn a_failing_command_fails_with_its_name() {
        let why = Cmd::new("false").run_seeing(|_| {}).unwrap_err();
        assert!(why.starts_with("`false`: "), "{why}");
        let why = Cmd::new("no-such-program").run_seeing(|_| {}).unwrap_err();
        assert!(why.starts_with("`no-such-program`: "), "{why}");
    }

    #[test]
    fn every_line_is_seen_and_a_late_failure_still_counts() {
        let mut seen = Vec::new();
        let cmd = Cmd::new("sh").args(&["-c", "echo a; echo b; exit 3"]);
        let outcome = cmd.run_seeing(|line| seen.push(line.to_owned()));
        assert_eq!(seen, ["a", "b"]);
        assert!(outcome.is_err());
    }
}

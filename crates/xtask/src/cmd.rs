//! Commands, shown before they run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fmt, fs};

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
    Cmd::new(&["cargo"]).args(args)
}

/// The top of the repository.
///
/// Asked at run time: clones may share a target directory, and so this program.
pub(crate) fn root() -> Outcome<PathBuf> {
    let own = env::var_os("CARGO_MANIFEST_DIR").ok_or("run it as `cargo xtask`")?;
    let root = PathBuf::from(own).join("../..");
    root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))
}

/// The paths in a folder of the repository, in the order of their names.
pub(crate) fn list(folder: &str) -> Outcome<Vec<PathBuf>> {
    let found = fs::read_dir(root()?.join(folder)).map_err(|error| format!("{folder}: {error}"))?;
    let mut paths: Vec<_> = found.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

/// The last part of a path, without its extension.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

pub(crate) fn is_in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

impl Cmd {
    pub(crate) fn new(words: &[&str]) -> Self {
        Self { words: Vec::new(), env: Vec::new() }.args(words)
    }

    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.words.extend(args.iter().map(ToString::to_string));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs it with our input and output; in a stage, in silence.
    pub(crate) fn run(&self) -> Outcome {
        if IS_QUIET.load(Ordering::Relaxed) {
            return self.read().map(drop);
        }
        println!("$ {self}");
        match self.command()?.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("`{self}`: {status}")),
            Err(error) => Err(format!("`{self}`: {error}")),
        }
    }

    /// Runs it in silence, and returns what it printed. If it fails, the error has that.
    pub(crate) fn read(&self) -> Outcome<String> {
        let (status, out, err) = self.run_silently()?;
        let why = format!("`{self}`: {status}");
        if status.success() { Ok(out) } else { Err(format!("{why}\n{err}\n{out}\n{why}")) }
    }

    /// Runs it in silence, and returns how it ended and what it printed.
    pub(crate) fn run_silently(&self) -> Outcome<(std::process::ExitStatus, String, String)> {
        let output = self.command()?.stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("`{self}`: {error}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status, text(&output.stdout), text(&output.stderr)))
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
            if of_a_package.iter().any(|of| name.to_string_lossy().starts_with(of)) {
                command.env_remove(&name);
            }
        }
        command.args(args).envs(self.env.iter().cloned()).current_dir(root()?);
        Ok(command)
    }
}

impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let env = self.env.iter().map(|(name, value)| format!("{name}='{value}'"));
        let words: Vec<_> = env.chain(self.words.iter().cloned()).collect();
        f.write_str(&words.join(" "))
    }
}

//! What a source file may say, by where it is.

use std::fs;
use std::path::Path;

use super::code::code_of;
use super::purity::impurities;
use crate::cmd::{Outcome, root};
use crate::metadata::Metadata;

const CORE: &str = "crates/quorate-core/src";

/// Backends may time their own reconnects, but nobody reads a clock that can be set.
const BACKENDS: &[&str] = &["crates/quorate-redis/src", "crates/quorate-fred/src"];

const WALL_CLOCKS: &[&str] = &["SystemTime", "UNIX_EPOCH"];

/// The one place that reads a wall clock: it decides no time, but where the numbers of fencing tokens
/// go on after a loss of data.
const HINT: &str = "crates/quorate-core/src/runtime/wall.rs";

/// A lease is judged by one clock only, the runtime's.
const CLOCKS: &[&str] = &["Instant::now", ".elapsed()", "SystemTime", "UNIX_EPOCH"];

pub(crate) fn breaches(metadata: &Metadata) -> Outcome<Vec<String>> {
    let core = metadata.package("quorate-core")?;
    let crates: Vec<String> =
        core.dependencies.iter().map(|dependency| dependency.name.replace('-', "_")).collect();
    let (algorithm, runtime) = (format!("{CORE}/algorithm"), format!("{CORE}/runtime"));
    let mut breaches = Vec::new();
    let mut pure_files = 0;
    for (path, source) in sources(CORE)? {
        let code = code_of(&source);
        let mut found = Vec::new();
        if !is_of_module(&path, &runtime) {
            found.extend(clocks(&code, CLOCKS, "outside of the core's runtime/"));
        } else if path != HINT {
            found.extend(clocks(&code, WALL_CLOCKS, "outside of wall.rs"));
        }
        if is_of_module(&path, &algorithm) {
            pure_files += 1;
            found.extend(impurities(&code, &crates));
        }
        breaches.extend(found.into_iter().map(|why| format!("{path}:{why}")));
    }
    for folder in BACKENDS {
        for (path, source) in sources(folder)? {
            let found = clocks(&code_of(&source), WALL_CLOCKS, "in a backend");
            breaches.extend(found.into_iter().map(|why| format!("{path}:{why}")));
        }
    }
    if pure_files == 0 {
        breaches.push(format!("{algorithm} has no files, so nothing was checked"));
    }
    Ok(breaches)
}

/// Whether a file is a module's own, `module.rs`, or one of its submodules'.
fn is_of_module(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

fn clocks(code: &str, banned: &[&str], place: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, line) in code.lines().enumerate() {
        let clock = banned.iter().find(|clock| line.contains(*clock));
        found.extend(clock.map(|clock| format!("{}: {clock} {place}", at + 1)));
    }
    found
}

/// All Rust files under a folder of the repository, by their paths in it, but not tests.
fn sources(folder: &str) -> Outcome<Vec<(String, String)>> {
    let root = root()?;
    let mut found = Vec::new();
    let mut open = vec![root.join(folder)];
    while let Some(folder) = open.pop() {
        let failed = |error| format!("{}: {error}", folder.display());
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|is| is == "rs") && !path.ends_with("tests.rs") {
                let text = fs::read_to_string(&path).map_err(failed)?;
                found.push((relative(&path, &root), text));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn relative(path: &Path, root: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    path.to_string_lossy().replace('\\', "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_found_in_code_and_only_there() {
        for bad in [
            "let now = Instant::now();",
            "let now = tokio::time::Instant::now();",
            "use std::time::SystemTime;",
            "x\n    .elapsed()",
        ] {
            assert_eq!(clocks(&code_of(bad), CLOCKS, "").len(), 1, "{bad}");
        }
        for good in [
            "fn f(now: Instant) {} // not Instant::now",
            "#[cfg(test)]\nmod tests { fn f() { Instant::now(); } }",
        ] {
            assert!(clocks(&code_of(good), CLOCKS, "").is_empty(), "{good}");
        }
        let (monotonic, wall) = ("Instant::now()", "SystemTime::now()");
        assert!(clocks(monotonic, WALL_CLOCKS, "").is_empty());
        assert_eq!(clocks(wall, WALL_CLOCKS, "").len(), 1);
    }

    #[test]
    fn a_breach_is_told_with_its_line() {
        let found = clocks("\n\nInstant::now()", CLOCKS, "outside of the core's runtime/");
        assert_eq!(found, ["3: Instant::now outside of the core's runtime/"]);
    }

    #[test]
    fn a_module_is_its_file_and_its_folder() {
        assert!(is_of_module("a/runtime.rs", "a/runtime"));
        assert!(is_of_module("a/runtime/smol.rs", "a/runtime"));
        assert!(!is_of_module("a/runtimes.rs", "a/runtime"));
        assert!(!is_of_module("a/driver.rs", "a/runtime"));
    }

    #[test]
    fn the_files_are_found() {
        let files = sources("crates/xtask/src").expect("our own");
        assert!(files.iter().any(|(path, _)| path == "crates/xtask/src/guards/sources.rs"));
        assert!(sources("crates/none").is_err());
    }
}

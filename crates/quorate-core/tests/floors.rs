//! The house has floors: a module imports only from floors below its own, or from modules to its left.
//!
//! The table in `lib.rs` says which module is on which floor.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

/// The modules of the table, the lowest floor first; on one floor, the left one first. A row is such as
/// `8 | [`request`](LockRequest) `manager` | what users call |`.
fn modules() -> Vec<String> {
    let lib = fs::read_to_string(src().join("lib.rs")).unwrap();
    let modules = |row: &str| -> Option<Vec<String>> {
        let mut cells = row.strip_prefix("//! | ")?.split(" | ");
        cells.next()?.parse::<u8>().ok()?;
        Some(cells.next()?.split('`').skip(1).step_by(2).map(str::to_owned).collect())
    };
    let mut floors: Vec<_> = lib.lines().filter_map(modules).collect();
    floors.reverse();
    floors.concat()
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The code of a module, without comments and unit tests.
fn code(path: &Path) -> String {
    let mut text = String::new();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap().path();
            if entry.file_stem().is_none_or(|stem| stem != "tests") {
                text += &code(&entry);
            }
        }
    } else if let Ok(file) = fs::read_to_string(path) {
        let file = file.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code = file.lines().filter(|line| !line.trim_start().starts_with("//"));
        text.extend(code.flat_map(|line| [line, "\n"]));
    }
    text
}

/// Whether a text imports or names a module of this crate, or something that `lib.rs` re-exports from it.
fn imports(text: &str, module: &str, exports: &[(String, String)]) -> bool {
    let names = |name: &str| {
        let path = format!("crate::{name}");
        text.match_indices(&path).any(|(at, _)| {
            !text[at + path.len()..].starts_with(|next: char| next.is_alphanumeric() || next == '_')
        })
    };
    names(module) || exports.iter().any(|(from, name)| from == module && names(name))
}

/// What `lib.rs` re-exports: the module, and the name at the root.
fn exports() -> Vec<(String, String)> {
    let lib = fs::read_to_string(src().join("lib.rs")).unwrap();
    let mut exports = Vec::new();
    for line in lib.replace("\npub use ", "\u{0}").split('\u{0}').skip(1) {
        let path = line.split(';').next().unwrap_or_default();
        let words = path.split(|part: char| !part.is_alphanumeric() && part != '_');
        let mut words = words.filter(|word| !word.is_empty());
        let module = words.next().unwrap_or_default().to_owned();
        exports.extend(words.map(|name| (module.clone(), name.to_owned())));
    }
    exports
}

#[test]
fn each_module_imports_only_from_below_or_from_its_left() {
    let modules = modules();
    let (mut breaches, exports) = (Vec::new(), exports());
    for (at, module) in modules.iter().enumerate() {
        let file = code(&src().join(format!("{module}.rs"))) + &code(&src().join(module));
        assert!(!file.is_empty(), "{module} is in the table, and not in the crate");
        let above = modules[at + 1..].iter().filter(|other| imports(&file, other, &exports));
        breaches.extend(above.map(|other| format!("{module} imports {other}")));
    }
    assert!(breaches.is_empty(), "{breaches:?}");
    for entry in fs::read_dir(src()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(name == "lib" || modules.contains(&name), "{name} is not in the table");
    }
}

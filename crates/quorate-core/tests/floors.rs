//! The house has floors: a module imports only from modules in rows below its own, and `over` what users have.
//!
//! The table in `lib.rs` says which module is on which floor. Its folder is named by the floor.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules of the table, the lowest first. A row is such as
/// `7 | [`manager/request`](LockRequest) | what a user asks for |`.
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

/// The code of a module and of all in its folder that has no row of its own, without comments and unit tests. Each import
/// of several names is one import a name.
fn code(module: &str, modules: &[String]) -> String {
    let file = fs::read_to_string(src().join(format!("{module}.rs"))).unwrap_or_default();
    let file = file.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut parts = file.split("use crate::{");
    let mut code = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (several, rest) = part.split_once("};").unwrap();
        for one in several.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            code += &format!("use crate::{one};\n");
        }
        code += rest;
    }
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    let mut code: String = code.lines().filter(is_code).flat_map(|line| [line, "\n"]).collect();
    let entries = fs::read_dir(src().join(module)).into_iter().flatten();
    let stems: BTreeSet<_> = entries.map(|entry| stem(&entry.unwrap().path())).collect();
    for stem in stems.into_iter().filter(|stem| stem != "tests") {
        let inner = format!("{module}/{stem}");
        if !modules.contains(&inner) {
            code += &self::code(&inner, modules);
        }
    }
    code
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

/// Whether a text names a module, or something in it that is in no other module of the table.
fn names(text: &str, module: &str, modules: &[String]) -> bool {
    let path = format!("crate::{}", module.replace('/', "::"));
    let inner = modules.iter().filter_map(|other| other.strip_prefix(module)?.strip_prefix('/'));
    let inner: Vec<_> = inner.map(|inner| format!("::{}", inner.replace('/', "::"))).collect();
    text.match_indices(&path).any(|(at, _)| {
        let rest = &text[at + path.len()..];
        !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_')
            && !inner.iter().any(|inner| rest.starts_with(inner.as_str()))
    })
}

/// What `lib.rs` re-exports: the path of the module, and the name at the root.
fn exports() -> Vec<(String, String)> {
    let lib = fs::read_to_string(src().join("lib.rs")).unwrap();
    let mut exports = Vec::new();
    for line in lib.replace("\npub use ", "\u{0}").split('\u{0}').skip(1) {
        let words = line.split(';').next().unwrap_or_default();
        let (path, names) = words.rsplit_once("::").unwrap();
        let path = path.replace("::", "/");
        let names = names.split(|part: char| !part.is_alphanumeric() && part != '_');
        for name in names.filter(|name| !name.is_empty()) {
            // A re-exported module, or something in one.
            let inner = format!("{path}/{name}");
            let is_module = src().join(format!("{inner}.rs")).exists();
            exports.push((if is_module { inner } else { path.clone() }, name.to_owned()));
        }
    }
    exports
}

#[test]
fn each_module_imports_only_from_rows_below_its_own() {
    let (modules, exports) = (modules(), exports());
    let mut breaches = Vec::new();
    for (at, module) in modules.iter().enumerate() {
        let code = code(module, &modules);
        assert!(!code.is_empty(), "{module} is in the table, and not in the crate");
        let above = modules[at + 1..].iter().filter(|other| {
            let mut exported = exports.iter().filter(|(from, _)| from == *other);
            names(&code, other, &modules) || exported.any(|(_, name)| names(&code, name, &[]))
        });
        breaches.extend(above.map(|other| format!("{module} imports {other}")));
    }
    assert!(breaches.is_empty(), "{breaches:?}");
}

/// Each file is in a module of the table, and each folder at the root is one floor.
#[test]
fn the_folders_are_the_floors() {
    let modules = modules();
    for entry in fs::read_dir(src()).unwrap() {
        let stem = stem(&entry.unwrap().path());
        let is_there = |module: &String| *module == stem || module.starts_with(&format!("{stem}/"));
        assert!(stem == "lib" || modules.iter().any(is_there), "{stem} is not in the table");
    }
}

/// The wall: what stands over the locks uses what users have, and what `access` lists.
#[test]
fn what_stands_over_the_locks_imports_what_users_have() {
    let (modules, exports) = (modules(), exports());
    let over: Vec<_> = modules.iter().filter(|module| module.starts_with("over/")).collect();
    assert!(over.len() > 5);
    for module in over.into_iter().filter(|module| *module != "over/access") {
        let code = code(module, &modules);
        for path in code.split("crate::").skip(1) {
            let name =
                path.split(|next: char| !next.is_alphanumeric() && next != '_').next().unwrap();
            let is_allowed = ["over", "error", "resource"].contains(&name)
                || exports.iter().any(|(_, exported)| exported == name);
            assert!(is_allowed, "{module} imports {name}");
        }
    }
}

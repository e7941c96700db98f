//! A2: the docs of every public future say what happens when it is dropped.

use std::fs;
use std::path::{Path, PathBuf};

/// A public item, with the docs of it and of the trait that it is in.
struct Item {
    place: String,
    signature: String,
    docs: String,
}

#[test]
fn a2_every_public_future_tells_its_cancel_safety() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut files = Vec::new();
    for member in fs::read_dir(crates).unwrap() {
        let sources = member.unwrap().path().join("src");
        if !sources.ends_with("xtask/src") {
            files_below(&sources, &mut files);
        }
    }
    let sources: Vec<(String, String)> = files
        .into_iter()
        .map(|file| (file.display().to_string(), fs::read_to_string(file).unwrap()))
        .collect();
    let types: Vec<&str> =
        sources.iter().flat_map(|(_, source)| types_of_futures(source)).collect();
    let items = sources.iter().flat_map(|(place, source)| public_items(place, source));
    let futures: Vec<Item> = items.filter(|item| is_future(&item.signature, &types)).collect();

    for item in &futures {
        let Item { place, signature, docs } = item;
        assert!(docs.contains("# Cancel safety"), "{place}: {signature}");
        let fails = signature.contains("fn ") && signature.contains("Result<");
        assert!(!fails || docs.contains("# Errors"), "{place}: {signature}");
    }
    // One of each kind, so that the reader is known to see it.
    for known in [
        "pub async fn extend(&self)",
        "pub async fn close(&self, limit: Duration)",
        "pub fn lost(&self) -> impl Future<",
        "pub struct LockRequest",
        "async fn perform(&self, call: &Call)",
        "async fn acquire(&self, claim: &Claim, options: AcquireOptions)",
        "fn sleep_until(&self, deadline: Instant) -> BoxFuture<",
        "pub async fn backend(testbed: &dyn Testbed)",
        "async fn put_list(&self, _key: &[u8])",
    ] {
        assert!(futures.iter().any(|item| item.signature.starts_with(known)), "{known}");
    }
}

fn files_below(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}

/// The types that are futures, or can be awaited.
fn types_of_futures(source: &str) -> Vec<&str> {
    let implemented = source.lines().filter_map(|line| {
        let (head, rest) = line.split_once("Future for ")?;
        let is_it = head.starts_with("impl") && (head.ends_with(' ') || head.ends_with("Into"));
        is_it.then_some(rest)
    });
    implemented.map(name_of).collect()
}

fn name_of(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// A function that returns one of `types` need not say it: the type does.
fn is_future(signature: &str, types: &[&str]) -> bool {
    if let Some((_, name)) = signature.split_once("struct ") {
        return types.contains(&name_of(name));
    }
    let head = signature.split(" where ").next().unwrap_or_default();
    let returned = head.rsplit_once("-> ").map_or("", |(_, returned)| returned);
    head.contains("async fn ")
        || returned.starts_with("impl Future<")
        || returned.starts_with("BoxFuture<")
}

/// Functions and structs that are `pub`, of which clippy ensures that they can be reached, and the
/// methods of `pub` traits.
fn public_items(place: &str, source: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let (mut docs, mut signature, mut attribute) = (String::new(), String::new(), false);
    let mut in_trait: Option<String> = None;
    let source = source.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
    for line in source.lines() {
        let text = line.trim_start();
        let is_method = in_trait.is_some() && line.len() - text.len() == 4;
        let begins = text.starts_with("pub ") || is_method && text.contains("fn ");
        if attribute || text.starts_with("#[") {
            attribute = !text.ends_with(']');
        } else if text.starts_with("///") {
            docs.push_str(text);
            docs.push('\n');
        } else if !signature.is_empty() || begins {
            signature.push_str(text);
            // A field, or a list of names: nothing that is looked for.
            let is_looked_for = ["fn ", "struct ", "trait "].iter().any(|k| signature.contains(k));
            if is_looked_for && !text.ends_with(['{', '}', ';']) {
                signature.push(' ');
                continue;
            }
            if signature.starts_with("pub trait ") {
                in_trait = Some(docs.clone());
            } else if is_looked_for {
                let docs = in_trait.clone().unwrap_or_default() + &docs;
                items.push(Item { place: place.to_owned(), signature: signature.clone(), docs });
            }
            docs.clear();
            signature.clear();
        } else {
            docs.clear();
            if line == "}" {
                in_trait = None;
            }
        }
    }
    items
}

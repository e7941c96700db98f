//! The pure half of the core: nothing that waits, tells the time, rolls dice or does I/O.

/// Never, wherever they stand.
const WORDS: &[&str] = &["async", "await", "Future", "IntoFuture", "Runtime"];

/// Parts of `std` that reach outside, or wait.
const MODULES: &[&str] =
    &["env", "fs", "future", "io", "net", "os", "process", "sync", "task", "thread"];

/// Where a path may begin. `crate` only goes on to what is pure, too.
const ROOTS: &[&str] = &["core", "crate", "self", "std", "super"];

/// Derives of `std`'s own traits: the one dependency that does nothing when a program runs.
const DERIVES: &str = "thiserror";

const PURE: &[&str] = &["algorithm", "resource"];

/// What is wrong with a file under `algorithm/`, each with its line; `crates` are the dependencies.
pub(crate) fn impurities(code: &str, crates: &[String]) -> Vec<String> {
    let words = words(code);
    let mut found = Vec::new();
    let mut use_begins = false;
    let mut in_use = false;
    for (at, word) in words.iter().enumerate() {
        let next = words.get(at + 1).filter(|_| word.is_joined);
        let next = next.map(|next| next.text);
        let why = if word.text == "use" {
            (use_begins, in_use) = (true, !word.ends_statement);
            continue;
        } else if WORDS.contains(&word.text) {
            Some(format!("`{}`", word.text))
        } else if use_begins && !ROOTS.contains(&word.text) {
            Some(format!("`use {}`", word.text))
        } else if (in_use || word.is_after_colons) && MODULES.contains(&word.text) {
            Some(format!("`::{}`", word.text))
        } else if word.is_before_colons
            && word.text != DERIVES
            && crates.iter().any(|name| name == word.text)
        {
            Some(format!("`{}::`", word.text))
        } else if word.text == "crate"
            && word.is_before_colons
            && !next.is_some_and(|next| PURE.contains(&next))
        {
            Some("`crate::` beyond algorithm and resource".to_owned())
        } else if word.text == "super" && next == Some("super") {
            Some("`super::super`".to_owned())
        } else {
            None
        };
        found.extend(why.map(|why| format!("{}: {why} in the pure half", word.line)));
        use_begins = false;
        in_use = in_use && !word.ends_statement;
    }
    found
}

struct Word<'a> {
    text: &'a str,
    line: usize,
    is_after_colons: bool,
    is_before_colons: bool,
    /// By colons and nothing else: neither a group nor a glob comes in between.
    is_joined: bool,
    ends_statement: bool,
}

fn words(code: &str) -> Vec<Word<'_>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut words: Vec<Word<'_>> = Vec::new();
    let mut line = 1;
    let mut rest = code;
    let mut between = String::new();
    while let Some(first) = rest.chars().next() {
        let length = rest.find(|c| is_word(c) != is_word(first)).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(length);
        rest = after;
        if is_word(first) {
            words.push(Word {
                text: piece,
                line,
                is_after_colons: between.ends_with("::"),
                is_before_colons: false,
                is_joined: false,
                ends_statement: false,
            });
            continue;
        }
        between = piece.split_whitespace().collect();
        line += piece.matches('\n').count();
        if let Some(last) = words.last_mut() {
            last.is_before_colons = between.starts_with("::");
            last.is_joined = between == "::";
            last.ends_statement = between.contains(';');
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> Vec<String> {
        let crates = ["tokio", "futures_util", "thiserror"].map(str::to_owned);
        impurities(code, &crates)
    }

    #[test]
    fn each_way_out_of_the_pure_half_is_found() {
        for bad in [
            "use tokio::time;",
            "use ::tokio::time;",
            "pub(crate) use rand;",
            "use crate::driver::Driver;",
            "use crate::{algorithm, driver};",
            "use crate::*;\nalgorithm::f();",
            "fn f() { crate::driver::f() }",
            "use super::super::driver;",
            "use std::future::Ready;",
            "use std::{fmt, io};",
            "use std::{\n    fmt,\n    net::TcpStream,\n};",
            "fn f() { std::thread::yield_now() }",
            "fn f() { ::tokio::spawn(x) }",
            "fn f() { futures_util::join!(x) }",
            "async fn f() {}",
            "fn f() -> impl Future {}",
            "fn f(runtime: &dyn Runtime) {}",
        ] {
            assert_eq!(found(bad).len(), 1, "{bad}: {:?}", found(bad));
        }
    }

    #[test]
    fn the_pure_half_may_name_itself_and_std() {
        for good in [
            "use std::fmt;\nuse std::time::{Duration, Instant};",
            "use super::lease::{Drift, Ttl};\nfn f() { super::g(); core::mem::take(x) }",
            "use crate::algorithm::quorum::Vote;\nuse crate::resource::Token;",
            "fn f(io: u8, process: u8) -> bool { use_it(io); Self::from(process).tokio }",
            "#[derive(Debug, thiserror::Error)]\nstruct InvalidTtl;",
            "pub mod lease;\npub(crate) fn f<'a>() -> Verdict {}",
        ] {
            assert_eq!(found(good), [""; 0], "{good}");
        }
    }

    #[test]
    fn a_breach_is_told_with_its_line() {
        assert_eq!(found("\n\nuse tokio::x;"), ["3: `use tokio` in the pure half"]);
    }
}

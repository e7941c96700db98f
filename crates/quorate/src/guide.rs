//! The guide: what to write, what a lock guarantees and what it cannot, and how to run the nodes.
//!
//! To begin:
//!
//! - [`start`]: from nothing to the first lock, and to the first test of your code.
//! - [`nodes`]: which servers, clients, pools and permissions; passwords that change, Sentinel, TLS, connections.
//! - [`coming_from`]: what to write instead of rslock, redlock-rs, redsync, node-redlock, Redisson, ShedLock, etcd and Consul.
//!
//! What to do with a lock:
//!
//! - [`jobs`]: work that one of several machines does once, or once per period.
//! - [`leading`]: one process leads, and another one takes over.
//! - [`waiting`]: what a request does while another client holds the lock.
//! - [`readers`]: readers hold a lock together, and a writer holds it alone.
//! - [`permits`]: at most N holders at a time, and one of several names.
//! - [`errors`]: which error says what, and the warning before a lease is lost.
//! - [`fencing`]: numbers with which a resource refuses a holder whose lock has ended.
//! - [`command`]: the command `quorate`, for cron jobs, deploy scripts and migrations.
//! - [`testing`]: how to test code that uses quorate, and how quorate is tested.
//!
//! To run it:
//!
//! - [`operations`]: who holds a lock, how to free it, a check at start-up, a readiness probe, alerts, log lines, and
//!   what a lock costs.
//! - [`restarts`]: nodes that restart or lose their data.
//! - [`changing_nodes`]: how to replace, add and remove a node.
//! - [`performance`]: latency and throughput beside other clients.
//!
//! What holds, and why:
//!
//! - [`guarantees`]: each guarantee with the tests that show it.
//! - [`limits`]: what no lock of this kind can do, and all limits with numbers.
//! - [`how_it_works`]: for readers of the code, where each reply, drop and timeout is handled.

/// A page whose examples need features.
macro_rules! page {
    ($name:ident, $path:literal) => {
        #[cfg_attr(all(feature = "fred", feature = "memory", feature = "redis", feature = "tokio"), doc = include_str!($path))]
        #[cfg_attr(
            not(all(feature = "fred", feature = "memory", feature = "redis", feature = "tokio")),
            doc = "Needs the features `fred`, `memory`, `redis` and `tokio`."
        )]
        pub mod $name {}
    };
}

page!(start, "../docs/start.md");
page!(nodes, "../docs/nodes.md");
page!(coming_from, "../docs/coming-from.md");
page!(testing, "../docs/testing.md");

#[doc = include_str!("../docs/jobs.md")]
pub mod jobs {}

#[doc = include_str!("../docs/leading.md")]
pub mod leading {}

#[doc = include_str!("../docs/waiting.md")]
pub mod waiting {}

#[doc = include_str!("../docs/readers.md")]
pub mod readers {}

#[doc = include_str!("../docs/permits.md")]
pub mod permits {}

#[doc = include_str!("../docs/errors.md")]
pub mod errors {}

#[doc = include_str!("../docs/fencing.md")]
pub mod fencing {}

#[doc = include_str!("../docs/command.md")]
pub mod command {}

#[doc = include_str!("../docs/operations.md")]
pub mod operations {}

#[doc = include_str!("../docs/restarts.md")]
pub mod restarts {}

#[doc = include_str!("../docs/changing-nodes.md")]
pub mod changing_nodes {}

#[doc = include_str!("../docs/performance.md")]
pub mod performance {}

#[doc = include_str!("../docs/guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("../docs/limits.md")]
pub mod limits {}

#[doc = include_str!("../docs/how-it-works.md")]
pub mod how_it_works {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// What is to be written instead stands in the example of the page, which is compiled.
    #[test]
    fn the_right_sides_of_the_tables_are_compiled() {
        let page = include_str!("../docs/coming-from.md");
        let (tables, example) = page.split_once("```rust,no_run").unwrap();
        let rows = tables.lines().filter(|line| line.starts_with("| `"));
        let rights = rows.map(|row| row.replace("\\|", "¦"));
        let rights = rights.filter_map(|row| Some(row.split('|').nth(2)?.replace('¦', "|")));
        let mut seen = 0;
        for cell in rights {
            for code in cell.split('`').skip(1).step_by(2).filter(|code| code.contains('(')) {
                assert!(example.contains(code), "{code}");
                seen += 1;
            }
        }
        assert!(seen > 50, "{seen}");
    }

    #[test]
    fn no_page_is_longer_than_150_lines_and_the_readme_is_under_180() {
        assert!(include_str!("../README.md").lines().count() < 180);
        for (path, text) in pages() {
            assert!(text.lines().count() <= 150, "{path}");
        }
    }

    /// Each type at the root of the crate.
    #[test]
    fn the_guide_names_each_type_that_users_meet() {
        let words = |text: &'static str| text.split(|c: char| !c.is_alphanumeric() && c != '_');
        let exports = include_str!("../../quorate-core/src/lib.rs").split("pub use ").skip(1);
        let exports = exports.filter_map(|rest| rest.split(';').next()).flat_map(words);
        let types = exports.filter(|name| name.starts_with(char::is_uppercase));
        let guide: String = pages().map(|(_, text)| text).collect();
        let named: BTreeSet<&str> =
            guide.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let unnamed: Vec<&str> = types.filter(|name| !named.contains(name)).collect();
        assert!(unnamed.is_empty() && named.contains("LockGuard"), "{unnamed:?}");
    }

    fn pages() -> impl Iterator<Item = (String, String)> {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        let pages = fs::read_dir(docs).unwrap().map(|page| page.unwrap().path());
        let pages = pages.filter(|path| path.extension().is_some_and(|kind| kind == "md"));
        pages.map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap()))
    }
}

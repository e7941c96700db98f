//! The guide: how to use a lock, its guarantees and limits, and how to run the nodes.
//!
//! To begin:
//!
//! - [`start`]: from nothing to the first lock, and to the first test of your code.
//! - [`nodes`]: what matters first; which servers, clients, pools and permissions; a new password,
//!   Sentinel, TLS.
//! - [`coming_from`]: what to write instead of other Redlock libraries, Redisson, ShedLock,
//!   Kubernetes' leader election, etcd and Consul.
//!
//! What to do with a lock:
//!
//! - [`jobs`]: work that one of several machines does once, or once per period.
//! - [`leading`]: one process leads, and another one takes over.
//! - [`waiting`]: what a request does while another client holds the lock.
//! - [`sharing`]: readers hold a lock together; at most N holders at a time; one of several names.
//! - [`shutting_down`]: SIGTERM, Kubernetes, axum, tasks.
//! - [`errors`]: the meaning of each error, and the warning before a lease is lost.
//! - [`fencing`]: numbers with which a resource refuses a holder whose lock has ended; SQL for
//!   them.
//! - [`command`]: the command `quorate`, for cron jobs, deploy scripts and migrations.
//! - [`testing`]: how to test code that uses quorate.
//!
//! To run it:
//!
//! - [`running_the_nodes`]: 3 a.m., persistence, the restart guard, restarts, upgrades, changing
//!   the nodes.
//! - [`operations`]: find the holder of a lock, free it, a readiness probe, alerts, log lines.
//! - [`capacity`]: locks a second, memory and commands, beside other clients.
//!
//! What holds, and why:
//!
//! - [`guarantees`]: each guarantee with the tests that show it.
//! - [`limits`]: is Redlock safe; choosing a ttl; all limits and settings with numbers.

/// Each page is in the documentation whatever features are on. Its examples are compiled with all
/// of them.
macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {$(
        #[cfg_attr(
            any(
                not(doctest),
                all(feature = "fred", feature = "memory", feature = "redis", feature = "tokio")
            ),
            doc = include_str!($path)
        )]
        pub mod $name {}
    )*};
}

pages! {
    start: "../docs/start.md",
    nodes: "../docs/nodes.md",
    running_the_nodes: "../docs/running-the-nodes.md",
    operations: "../docs/operations.md",
    command: "../docs/command.md",
    waiting: "../docs/waiting.md",
    jobs: "../docs/jobs.md",
    leading: "../docs/leading.md",
    sharing: "../docs/sharing.md",
    shutting_down: "../docs/shutting-down.md",
    errors: "../docs/errors.md",
    fencing: "../docs/fencing.md",
    testing: "../docs/testing.md",
    capacity: "../docs/capacity.md",
    guarantees: "../docs/guarantees.md",
    limits: "../docs/limits.md",
    coming_from: "../docs/coming-from.md",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use quorate_pure::core_source::algorithm::lease::{Drift, SafetyMargin, Ttl};
    use quorate_pure::core_source::algorithm::renewal::Renewal;

    const LIMITS: &str = include_str!("../docs/limits.md");

    /// 250 words a minute.
    #[test]
    fn the_guide_is_read_in_an_hour_and_the_readme_has_160_lines_at_most() {
        assert!(include_str!("../README.md").lines().count() <= 160);
        let words = |text: &str| text.split_whitespace().count();
        let all: usize = pages().map(|(_, text)| words(&text)).sum();
        assert!(all <= 14_500, "{all}");
        let of = |name: &str| words(&pages().find(|(path, _)| path.ends_with(name)).unwrap().1);
        let nodes = ["/nodes.md", "/running-the-nodes.md", "/operations.md"].map(of);
        assert!(nodes.iter().sum::<usize>() <= 3_400, "{nodes:?}");
    }

    /// A user page says what a rule says, and its code stands on one page.
    #[test]
    fn user_pages_have_no_codes_of_rules_and_the_first_ones_no_words_of_the_inside() {
        let words = |text: &str| -> Vec<String> {
            text.split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect()
        };
        let is_code = |word: &&String| {
            let digits = word.trim_start_matches(|c: char| c.is_ascii_uppercase());
            let letters = word.len() - digits.len();
            matches!((letters, digits.len()), (1 | 2, 1 | 2)) && digits.parse::<u8>().is_ok()
        };
        let inside = ["gate", "epoch", "lapsed", "vote", "round"];
        let plain = ["start", "command", "jobs", "leading", "errors", "running-the-nodes"];
        for (path, text) in pages().filter(|(path, _)| !path.ends_with("/guarantees.md")) {
            assert_eq!(words(&text).iter().find(is_code), None, "{path}");
            if plain.iter().any(|name| path.ends_with(&format!("/{name}.md"))) {
                // Between backticks are names of the code, and what a program prints.
                let prose = text.split('`').step_by(2).collect::<String>().to_lowercase();
                let known = |word: &&String| inside.contains(&word.trim_end_matches('s'));
                assert_eq!(words(&prose).iter().find(known), None, "{path}");
            }
        }
    }

    /// The table of *choosing a ttl*, in tenths of a second.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "only differences of times count")]
    fn the_times_of_a_ttl_are_those_of_the_page() {
        let (node_timeout, ttls) = (Duration::from_millis(500), [10, 30].map(Duration::from_secs));
        let ttls = ttls.map(|ttl| Ttl::try_from(ttl).unwrap());
        let validities = ttls.map(|ttl| SafetyMargin::default().validity(Drift::default(), ttl));
        let tenths =
            |time: Duration| format!("{:.1} s", time.as_millis().div_euclid(100) as f64 / 10.0);
        let row = |what: &str, [short, long]: [String; 2]| {
            assert!(
                LIMITS.contains(&format!("| {what} | {short} | {long} |")),
                "{what}: {short}, {long}"
            );
        };
        // Rounded up: 9.398 and 29.198.
        row(
            "validity, from the last extension",
            validities.map(|time| format!("{:.1} s", time.as_secs_f64())),
        );
        row("longest time between two renewals", validities.map(|time| tenths(time / 3)));
        row("pause of the process that it bears", validities.map(|time| tenths(time - time / 3)));
        // A try that began just before the nodes are back fails by its node timeout, and the next
        // one has to be in time.
        let bears = |validity: Duration, outage: Duration| {
            let renewal = Renewal::new(validity, validity / 3);
            let (start, valid_until) = (Instant::now(), Instant::now() + validity);
            let failed = renewal.next(valid_until, u64::MAX, start) + outage + node_timeout;
            renewal.retry(failed, valid_until, u64::MAX) < valid_until
        };
        let seconds = validities.map(|validity| {
            let borne = (1..).take_while(|outage| bears(validity, Duration::from_secs(*outage)));
            format!("{} s", borne.count())
        });
        row("outage of a quorum that a renewed lease bears", seconds);
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

//! Facts on pages that no compiler checks: features and their crates, versions, defaults, links,
//! names of tests.
//!
//! The code in README.md is compiled elsewhere: the facade includes it as its documentation.

use std::collections::BTreeSet;
use std::fs;

use crate::cmd::{Cmd, Outcome, cargo, root};

/// GitHub's views of a file or folder of ours: a path follows.
const VIEWS: [&str; 3] = ["blob/HEAD/", "raw/HEAD/", "tree/HEAD/"];

/// How the names of files end that pages speak of.
const KINDS: [&str; 6] = [".rs", ".md", ".toml", ".lua", ".yaml", ".patch"];

const REPOSITORY: &str = "https://github.com/quorate/quorate/";

/// Reports every mistake, not only the first.
pub(crate) fn check() -> Outcome {
    let root = root()?;
    let read = |path: &str| {
        fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
    };
    let list = Cmd::new(&["git", "ls-files", "--cached", "--others", "--exclude-standard"]);
    let (list, readme) = (list.read()?, read("README.md")?);
    let mut mistakes = untruths(&readme, &read("Cargo.toml")?, &read("crates/quorate/Cargo.toml")?);
    for (feature, told) in told_crates(&readme) {
        let counted = crates_of(feature)?;
        if told != counted.to_string() {
            mistakes.push(format!("README.md: `{feature}` brings {counted} crates, not {told}"));
        }
    }
    let defaults = read("crates/quorate-core/src/config/defaults.md")?;
    let limits = read("crates/quorate/docs/limits.md")?;
    let missing = defaults.lines().filter(|row| !limits.lines().any(|line| line == *row));
    mistakes.extend(missing.map(|row| format!("limits.md does not repeat the default {row}")));
    let is_there = |path: &str| root.join(path).exists();
    let (mut code, mut guide) = (String::new(), String::new());
    let files: Vec<&str> = list.lines().filter(|path| is_there(path)).collect();
    let paths: Vec<String> = files.iter().map(|path| format!("/{path}/")).collect();
    for path in files {
        if path.ends_with(".rs") {
            let text = read(path)?;
            let is_left_out = |line: &&str| line.trim_start().starts_with("#[ignore");
            let left_out = text.lines().filter(is_left_out);
            mistakes.extend(left_out.map(|line| format!("{path}: a test is left out: {line}")));
            code.push_str(&text);
        } else if path.ends_with(".md") {
            let page = read(path)?;
            let long = long_lines(&page);
            mistakes.extend(long.map(|line| format!("{path}: over 100 columns: {line}")));
            let dead = links_to_nothing(&page, &is_there);
            let lost = lost_paths(&page, &paths).map(str::to_owned);
            let nowhere = |to| format!("{path}: `{to}` leads nowhere");
            mistakes.extend(dead.chain(lost).map(nowhere));
            let is_page = |target: &str| target.ends_with(".md") && is_there(target);
            for (target, anchor) in anchors(&page).filter(|(target, _)| is_page(target)) {
                if !headings(&read(target)?).any(|heading| heading == anchor) {
                    mistakes.push(format!("{path}: {target} has no heading #{anchor}"));
                }
            }
            if path.starts_with("crates/") {
                let relative = relative_links(&page);
                mistakes.extend(relative.map(|link| format!("{path}: `{link}` is relative")));
            }
            let named = ["crates/", ".github/", "tests/how-it-is-tested.md"];
            if named.iter().any(|start| path.starts_with(start)) {
                guide.push_str(&page);
            }
        }
    }
    let how = read("crates/quorate-core/docs/how-it-works.md")?;
    let sources = ["core", "protocol"].map(|name| format!("crates/quorate-{name}/src/"));
    let is_source = |name: &str| sources.iter().any(|folder| is_there(&format!("{folder}{name}")));
    let lost = code_spans(&how).filter(|span| span.ends_with(".rs") && !is_source(span));
    mistakes.extend(lost.map(|name| format!("how-it-works.md: there is no `{name}`")));
    let read_source = |name: &str| {
        let paths = sources.iter().map(|folder| root.join(format!("{folder}{name}")));
        paths.filter_map(|path| fs::read_to_string(path).ok()).collect::<String>()
    };
    mistakes.extend(wrong_pauses(&how, read_source));
    mistakes.extend(missing_names(&guide, &code));
    if mistakes.is_empty() { Ok(()) } else { Err(format!("\n  {}", mistakes.join("\n  "))) }
}

/// What README.md says and the manifests of the workspace and the facade do not.
fn untruths(readme: &str, workspace: &str, facade: &str) -> Vec<String> {
    let section = |text: &str, title: &str, end: &str| {
        let (_, rest) = text.split_once(title).unwrap_or_default();
        rest.split(end).next().unwrap_or_default().to_owned()
    };
    let rows = section(readme, "## Features", "\n## ");
    let rows = rows.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let declared = section(facade, "[features]", "\n[");
    let declared = declared.lines().filter_map(|line| Some(line.split_once(" = [")?.0));
    let (rows, declared): (Vec<_>, Vec<_>) = (rows.collect(), declared.collect());
    let unnamed = declared.iter().filter(|name| !rows.contains(name));
    let unknown = rows.iter().filter(|name| !declared.contains(name));
    let differ = |name| format!("README.md or the manifest does not have the feature `{name}`");
    let mut found: Vec<_> = unnamed.chain(unknown).map(differ).collect();
    let field = |name: &str| {
        let line = workspace.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split('"').nth(1)).unwrap_or("none")
    };
    let version = field("version = ").rsplit_once('.').map_or("none", |(version, _)| version);
    let msrv = format!("(MSRV) is {}.", field("rust-version = "));
    for text in [format!("quorate = {{ version = \"{version}\""), msrv] {
        if !readme.contains(&text) {
            found.push(format!("README.md does not say `{text}`"));
        }
    }
    found
}

/// The features of the table in README.md, and how many crates it says that each brings.
fn told_crates(readme: &str) -> impl Iterator<Item = (&str, &str)> {
    let (_, table) = readme.split_once("## Features").unwrap_or_default();
    table.lines().filter_map(|line| {
        let mut cells =
            line.strip_prefix("| `")?.split('|').map(|cell| cell.trim().trim_end_matches('`'));
        cells.next().zip(cells.next_back().and_then(|_| cells.next_back()))
    })
}

/// How many crates beside our own a program gets with this feature of the facade, on Linux.
fn crates_of(feature: &str) -> Outcome<usize> {
    // TLS is nothing without a client.
    let features =
        if feature.starts_with("tls-") { format!("redis,{feature}") } else { feature.to_owned() };
    let tree = cargo(&["tree", "--package", "quorate", "--no-default-features", "--locked"])
        .args(&["--features", &features, "--edges", "normal", "--prefix", "none"])
        .args(&["--target", "x86_64-unknown-linux-gnu", "--format", "{p}"])
        .read()?;
    let foreign = tree.lines().filter(|line| !line.starts_with("quorate"));
    Ok(foreign.filter_map(|line| line.split(" (").next()).collect::<BTreeSet<_>>().len())
}

/// The lines that do not fit on a screen. A row of a table and the address of a link cannot be
/// broken.
fn long_lines(page: &str) -> impl Iterator<Item = &str> {
    let is_whole = |line: &&str| {
        line.starts_with('|') || (line.starts_with('[') && line.contains("]: https://"))
    };
    page.lines().filter(move |line| line.chars().count() > 100 && !is_whole(line))
}

/// The links that lead nowhere from docs.rs or crates.io. An anchor is one: docs.rs makes none.
fn relative_links(text: &str) -> impl Iterator<Item = &str> {
    let inline = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let below = text.lines().filter_map(|line| Some(line.strip_prefix('[')?.split_once("]: ")?.1));
    inline.chain(below).filter(|link| !link.starts_with("https://") && !link.starts_with("mailto:"))
}

/// The links into our repository to a file that is not there.
fn links_to_nothing(text: &str, is_there: &impl Fn(&str) -> bool) -> impl Iterator<Item = String> {
    let paths = text.split(REPOSITORY).skip(1).filter_map(|rest| {
        let path = VIEWS.iter().find_map(|view| rest.strip_prefix(view))?;
        path.split(|c: char| c.is_whitespace() || ")>\"'#?".contains(c)).next()
    });
    paths.filter(|path| !is_there(path)).map(str::to_owned)
}

/// The links into our repository to a heading of a page: its path, and the heading.
fn anchors(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(REPOSITORY).skip(1).filter_map(|rest| {
        let (path, rest) = rest.strip_prefix(VIEWS[0])?.split_once('#')?;
        let is_path = !path.contains(|c: char| c.is_whitespace() || ")>\"'".contains(c));
        let ends = |c: char| c.is_whitespace() || c == ')';
        is_path.then(|| (path, rest.split(ends).next().unwrap_or(rest)))
    })
}

/// The headings of a page, as GitHub writes them in links.
fn headings(page: &str) -> impl Iterator<Item = String> {
    let titles = page.lines().filter(|line| line.starts_with('#'));
    titles.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        title.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    })
}

/// The words between backticks outside of blocks of code.
fn code_spans(page: &str) -> impl Iterator<Item = &str> {
    page.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

/// The paths in code spans that lead nowhere. A page names a file from wherever that reads best:
/// the root, the crate, the page. So it is enough that some path of the repository, each of which
/// stands between slashes, has the parts.
fn lost_paths<'a>(page: &'a str, paths: &'a [String]) -> impl Iterator<Item = &'a str> {
    let is_there = |parts: &str| {
        let parts = format!("/{}/", parts.trim_start_matches("../").trim_matches('/'));
        paths.iter().any(|path| path.contains(&parts))
    };
    let is_path = move |span: &&str| {
        let in_folder = span.split_once('/').is_some_and(|(folder, _)| is_there(folder));
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        (in_folder || KINDS.iter().any(|kind| span.ends_with(kind))) && span.chars().all(is_part)
    };
    code_spans(page).filter(is_path).filter(move |span| !is_there(span))
}

/// The constants of the table of pauses that are not so in the files of their row.
fn wrong_pauses(how: &str, read: impl Fn(&str) -> String) -> Vec<String> {
    let (_, rest) = how.split_once("\n## Pauses\n").unwrap_or_default();
    let table = rest.split("\n## ").next().unwrap_or_default();
    let mut wrong = Vec::new();
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, _, _, constants, files, _] = cells[..] else {
            wrong.push(format!("how-it-works.md: a row of pauses has four cells: {row}"));
            continue;
        };
        let text: String = code_spans(files).map(&read).collect();
        for constant in constants.split(", ").filter(|constant| *constant != "none") {
            let words: Vec<&str> = constant.split(' ').collect();
            let is_so = match words[..] {
                [name, number, unit @ ("ms" | "s")] => {
                    let unit = if unit == "s" { "secs" } else { "millis" };
                    let (name, from) = (name.trim_matches('`'), format!("from_{unit}({number})"));
                    text.contains(&format!("const {name}: Duration = Duration::{from};"))
                }
                _ => false,
            };
            if !is_so {
                wrong.push(format!("how-it-works.md: {constant} is not so in {files}"));
            }
        }
    }
    wrong
}

/// Names in code spans with two underscores or more that are in no source: those of tests, and
/// texts such as metrics.
fn missing_names(guide: &str, code: &str) -> Vec<String> {
    let is_name = |span: &&str| {
        span.matches('_').count() > 1
            && span.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let names = guide.split('`').filter(is_name);
    let is_there = |name: &str| {
        [format!("fn {name}("), format!("\"{name}\"")].iter().any(|it| code.contains(it))
    };
    let missing = names.filter(|name| !is_there(name));
    missing.map(|name| format!("the guide names `{name}`, which is not there")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_untruth_is_found() {
        let readme = "The minimum (MSRV) is 1.88.\nquorate = { version = \"0.1\" }\n\n## \
                      Features\n\n| `redis` | nodes |\n| `tokio` | a runtime |\n\n## More\n\n| \
                      `it` |\n";
        let workspace = "version = \"0.1.0\"\nrust-version = \"1.88\"\n";
        let facade = "[features]\nredis = []\ntokio = [\"x\"]\n\n[dependencies]\nfred = [1]\n";
        assert_eq!(untruths(readme, workspace, facade), [""; 0]);
        for (from, to) in [
            ("| `redis` | nodes |\n", ""),
            ("\n\n## More", "\n| `fred` | nodes |\n\n## More"),
            ("1.88.", "1.87."),
            ("version = \"0.1\"", "version = \"0.2\""),
        ] {
            assert!(readme.contains(from));
            let found = untruths(&readme.replace(from, to), workspace, facade);
            assert_eq!(found.len(), 1, "{from} -> {to}: {found:?}");
        }
    }

    #[test]
    fn a_name_that_is_not_there_is_found() {
        let guide = "Rule Q1: `q1_a_quorum`, `max_ttl`, `LockError::Held_by_us`.";
        assert_eq!(missing_names(guide, "fn q1_a_quorum() {}"), [""; 0]);
        assert_eq!(missing_names(guide, "const Q1: &str = \"q1_a_quorum\";"), [""; 0]);
        assert_eq!(missing_names(guide, "fn q1_a_quorum_of_all() {}").len(), 1);
    }

    #[test]
    fn a_line_over_100_columns_is_found_and_a_table_and_an_address_are_not() {
        let (prose, long) = ("é".repeat(101), "x".repeat(200));
        let page = format!("{prose}\n{}\n| {long} |\n[a]: https://{long}\n", "é".repeat(100));
        assert_eq!(long_lines(&page).collect::<Vec<_>>(), [prose]);
    }

    #[test]
    fn a_pause_that_is_another_one_in_the_code_is_found() {
        let page = "a\n## Pauses\n\n| between | long | constants | where |\n|---|---|---|---|\n| a \
                    | b | `A` 5 ms, `B` 1 s | `x.rs`, `y.rs` |\n| a | b | none | `x.rs` |\n\n## \
                    B\n";
        let code = |name: &str| match name {
            "x.rs" => "const A: Duration = Duration::from_millis(5);".to_owned(),
            _ => "pub const B: Duration = Duration::from_secs(1);".to_owned(),
        };
        assert_eq!(wrong_pauses(page, code), [""; 0]);
        for (there, here) in [("5 ms", "6 ms"), ("1 s", "1 ms"), ("`B`", "`C`"), (" none |", "")] {
            assert_eq!(wrong_pauses(&page.replace(there, here), code).len(), 1, "{there}");
        }
    }

    #[test]
    fn code_spans_are_those_of_the_prose() {
        let page = "a `b.rs` c\n```text\n`d`\n```\n`e` f";
        assert_eq!(code_spans(page).collect::<Vec<_>>(), ["b.rs", "e"]);
    }

    #[test]
    fn a_path_that_leads_nowhere_is_found() {
        let paths = ["/crates/a/src/b/c.rs/", "/tests/README.md/"].map(str::to_owned);
        let page = "`b/c.rs`, `../c.rs`, `src/b/`, `/dev/null`, `a/b` of `1/2`, `cargo b/x`, \
                    `x.c.rs`, `tests/d`.";
        assert_eq!(lost_paths(page, &paths).collect::<Vec<_>>(), ["a/b", "x.c.rs", "tests/d"]);
    }

    #[test]
    fn the_count_of_a_feature_is_the_last_cell_of_its_row() {
        let readme =
            "| `no` | 1 |\n## Features\n| feature | adds | crates |\n| `a` | `b` | c | 27 |\n";
        assert_eq!(told_crates(readme).collect::<Vec<_>>(), [("a", "27")]);
    }

    #[test]
    fn a_heading_is_named_as_github_names_it() {
        let page = format!(
            "see [it]({REPOSITORY}blob/HEAD/a.md#who-holds-it-and-why) and \
             ({REPOSITORY}blob/HEAD/b.md) # no"
        );
        assert_eq!(anchors(&page).collect::<Vec<_>>(), [("a.md", "who-holds-it-and-why")]);
        let named: Vec<_> = headings("# Who holds it, and why\ntext\n## `no_wait`").collect();
        assert_eq!(named, ["who-holds-it-and-why", "no_wait"]);
    }
}

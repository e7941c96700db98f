//! What a published crate carries beside its code: a README whose links hold, and the licences.

use std::fs;

use crate::cmd::{Outcome, cargo, root};
use crate::metadata::{Metadata, Package};

const README: &str = "README.md";

const LICENCES: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT"];

/// The crate that has the README at the top for its own.
const FACADE: &str = "quorate";

/// GitHub's views of a file or folder, which come before a revision and a path.
const VIEWS: &[&str] = &["blob", "raw", "tree"];

pub(crate) fn breaches(metadata: &Metadata) -> Outcome<Vec<String>> {
    let root = root()?;
    let read = |path: &str| {
        fs::read_to_string(root.join(path)).map_err(|error| format!("{path}: {error}"))
    };
    let is_there = |path: &str| root.join(path).exists();
    let mut breaches = Vec::new();
    for package in metadata.published() {
        let packed = cargo(&["package", "--list", "--package", &package.name])
            .args(&["--allow-dirty", "--offline"])
            .read()?;
        breaches.extend(wrong(package, &packed, &read, &is_there)?);
    }
    Ok(breaches)
}

/// `packed` are the files of the package, a line each. Paths are those of the repository.
fn wrong(
    package: &Package,
    packed: &str,
    read: &impl Fn(&str) -> Outcome<String>,
    is_there: &impl Fn(&str) -> bool,
) -> Outcome<Vec<String>> {
    let name = &package.name;
    let mut found = Vec::new();
    // Where symbolic links are checked out as files, those have a path for their text.
    let same_as_top = LICENCES.iter().chain((name == FACADE).then_some(&README));
    for file in same_as_top {
        if !packed.lines().any(|path| path == *file) {
            found.push(format!("{name} is packed without {file}"));
        } else if read(&format!("crates/{name}/{file}")).ok() != Some(read(file)?) {
            found.push(format!("crates/{name}/{file} is not the {file} at the top"));
        }
    }
    if package.readme.as_deref() != Some(README) {
        found.push(format!("{name} has no {README} of its own"));
        return Ok(found);
    }
    let Some(repository) = &package.repository else {
        found.push(format!("{name} does not name its repository"));
        return Ok(found);
    };
    let anchors = anchors(&read(README)?);
    let readme = read(&format!("crates/{name}/{README}"))?;
    for link in links(&readme) {
        let why = if !is_absolute(&link) {
            "is relative"
        } else if leads_nowhere(&link, repository, &anchors, is_there) {
            "leads nowhere"
        } else {
            continue;
        };
        found.push(format!("crates/{name}/{README}: the link `{link}` {why}"));
    }
    Ok(found)
}

/// Not an anchor either: docs.rs makes none.
fn is_absolute(link: &str) -> bool {
    ["https://", "http://", "mailto:"].iter().any(|scheme| link.starts_with(scheme))
}

/// Whether it is a link into our repository, to a file or a heading of the README that is not there.
fn leads_nowhere(
    link: &str,
    repository: &str,
    anchors: &[String],
    is_there: &impl Fn(&str) -> bool,
) -> bool {
    let Some(rest) = link.strip_prefix(repository) else {
        return false;
    };
    if let Some(anchor) = rest.strip_prefix('#') {
        return !anchors.iter().any(|known| known == anchor);
    }
    let Some(rest) = rest.strip_prefix('/') else {
        return false;
    };
    let mut parts = rest.splitn(3, '/');
    if !parts.next().is_some_and(|view| VIEWS.contains(&view)) {
        return false;
    }
    let path = parts.nth(1).unwrap_or_default();
    let path = path.split(['#', '?']).next().unwrap_or_default();
    !is_there(path)
}

/// The anchors that GitHub makes of the headings.
fn anchors(text: &str) -> Vec<String> {
    let anchor = |line: &str| {
        let heading = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
        let heading = heading.trim().to_lowercase().replace(' ', "-");
        Some(heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect())
    };
    without_blocks(text).lines().filter_map(anchor).collect()
}

/// Where the links and images of a Markdown text lead; those in code are none.
fn links(text: &str) -> Vec<String> {
    let text: Vec<_> = without_blocks(text).split("\n\n").map(without_spans).collect();
    let text = text.join("\n\n");
    let mut found = Vec::new();
    for (at, opening) in text.match_indices("](") {
        found.push(target(&text[at + opening.len()..]));
    }
    for attribute in ["href=", "src="] {
        for (at, _) in text.match_indices(attribute) {
            let value = &text[at + attribute.len()..];
            found.push(value.split(['"', '\'']).nth(1).unwrap_or_default());
        }
    }
    for line in text.lines() {
        let definition = line.trim_start().strip_prefix('[').filter(|rest| !rest.starts_with('^'));
        found.extend(definition.and_then(|rest| rest.split_once("]:")).map(|(_, to)| target(to)));
    }
    found.into_iter().map(str::to_owned).collect()
}

/// `(target "title")` and `(<target>)`, from behind the bracket.
fn target(rest: &str) -> &str {
    let rest = rest.trim_start();
    let (rest, end): (_, &[char]) = match rest.strip_prefix('<') {
        Some(rest) => (rest, &['>']),
        None => (rest, &[' ', '\t', '\n', ')']),
    };
    rest.split(end).next().unwrap_or_default()
}

/// Blanks what is between ``` and ```.
fn without_blocks(text: &str) -> String {
    let mut fence = None;
    let mut kept = String::with_capacity(text.len());
    for line in text.lines() {
        let here = ["```", "~~~"].into_iter().find(|mark| line.trim_start().starts_with(mark));
        match (fence, here) {
            (None, None) => kept.push_str(line),
            (None, Some(_)) => fence = here,
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
        }
        kept.push('\n');
    }
    kept
}

/// Cuts what is between ` and ` in a paragraph.
fn without_spans(paragraph: &str) -> String {
    let mut kept = String::with_capacity(paragraph.len());
    let mut rest = paragraph;
    while let Some(at) = rest.find('`') {
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let ticks = rest.len() - rest.trim_start_matches('`').len();
        let (opening, after) = rest.split_at(ticks);
        rest = after.split_once(opening).map_or(after, |(_, behind)| behind);
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKED: &str = "Cargo.toml\nLICENSE-APACHE\nLICENSE-MIT\nREADME.md\nsrc/lib.rs\n";

    const GONE: &str = "gone";

    const OURS: &str = "https://github.com/us/it";

    fn package(name: &str) -> Package {
        Package {
            name: name.to_owned(),
            is_published: true,
            readme: Some(README.to_owned()),
            repository: Some(OURS.to_owned()),
            ..Package::default()
        }
    }

    /// In a repository where files of one name say the same, but for `files`.
    fn found(package: &Package, packed: &str, files: &[(&str, &str)]) -> Vec<String> {
        let read = |path: &str| {
            let file = files.iter().find(|(name, _)| *name == path);
            let name = path.rsplit('/').next().unwrap_or_default();
            let text =
                file.map_or_else(|| format!("# The {name}\n"), |(_, text)| (*text).to_owned());
            if text == GONE { Err(format!("{path}: gone")) } else { Ok(text) }
        };
        wrong(package, packed, &read, &|path| path == "src/lib.rs").expect("all can be read")
    }

    fn wrong_links(readme: &str) -> Vec<String> {
        found(&package("quorate-core"), PACKED, &[("crates/quorate-core/README.md", readme)])
    }

    #[test]
    fn a_crate_with_all_of_it_passes() {
        assert_eq!(found(&package("quorate"), PACKED, &[]), [""; 0]);
        let own = [("crates/quorate-core/README.md", "# Core\n")];
        assert_eq!(found(&package("quorate-core"), PACKED, &own), [""; 0]);
    }

    #[test]
    fn what_is_not_packed_is_found() {
        for file in LICENCES {
            let packed = PACKED.replace(&format!("{file}\n"), "");
            let found = found(&package("quorate-core"), &packed, &[]);
            assert_eq!(found, [format!("quorate-core is packed without {file}")]);
        }
        let elsewhere = PACKED.replace("LICENSE-MIT", "src/LICENSE-MIT");
        assert_eq!(found(&package("quorate"), &elsewhere, &[]).len(), 1);
        assert_eq!(found(&package("quorate"), &PACKED.replace("README.md\n", ""), &[]).len(), 1);
    }

    #[test]
    fn a_copy_that_says_something_else_is_found() {
        for file in ["LICENSE-APACHE", "LICENSE-MIT", "README.md"] {
            let (path, text) = (format!("crates/quorate/{file}"), format!("../../{file}"));
            let wrong = format!("{path} is not the {file} at the top");
            assert_eq!(found(&package("quorate"), PACKED, &[(&path, &text)]), [wrong.as_str()]);
            // What a manifest names elsewhere is packed, too.
            let package = Package { readme: None, ..package("quorate") };
            assert!(found(&package, PACKED, &[(&path, GONE)]).contains(&wrong));
        }
    }

    #[test]
    fn a_manifest_without_a_readme_in_its_folder_or_a_repository_is_found() {
        for readme in [None, Some("../../README.md".to_owned())] {
            let package = Package { readme, ..package("quorate") };
            assert_eq!(found(&package, PACKED, &[]), ["quorate has no README.md of its own"]);
        }
        let package = Package { repository: None, ..package("quorate") };
        assert_eq!(found(&package, PACKED, &[]).len(), 1);
    }

    #[test]
    fn relative_links_are_found_however_they_are_written() {
        for bad in [
            "see [it](src/lib.rs)",
            "see [`it`](src/lib.rs \"title\")",
            "see [it](<src/lib.rs>)",
            "see [it](/src/lib.rs)",
            "see [it](//example.com/src/lib.rs)",
            "see [below](#below)",
            "see [two\nlines](src/lib.rs)",
            "![an image](race.svg)",
            "[![an image](https://example.com/race.svg)](src/lib.rs)",
            "[it]\n\n[it]: src/lib.rs",
            "[`it`]\n\n  [`it`]: <src/lib.rs>",
            "<img width=\"9\" src=\"race.svg\">",
            "<a href='src/lib.rs'>it</a>",
            "```text\n[it](https://example.com)\n```\n[it](src/lib.rs)",
            "`not closed\n\n[it](src/lib.rs) `",
        ] {
            let found = wrong_links(bad);
            assert_eq!(found.len(), 1, "{bad}: {found:?}");
            assert!(found[0].ends_with("is relative"), "{bad}: {found:?}");
        }
    }

    #[test]
    fn absolute_links_and_code_pass() {
        for good in [
            "[it](https://example.com), <https://example.com>, [us](mailto:us@example.com)",
            "[it](https://github.com/us/it), [it](https://github.com/us/it-too/blob/x/y)",
            "[it](https://github.com/us/it/issues/1)",
            "[it]\n\n[it]: https://example.com",
            "a name [in brackets], [one more] (and this)\n[^1]: a note",
            "`[it](src/lib.rs)` and ``[`it`](src/lib.rs)``",
            "```text\n[it](src/lib.rs)\n[it]: src/lib.rs\n```",
        ] {
            assert_eq!(wrong_links(good), [""; 0], "{good}");
        }
    }

    #[test]
    fn a_link_to_what_the_repository_does_not_have_is_found() {
        for view in VIEWS {
            let link = |path: &str| format!("[it]({OURS}/{view}/HEAD/{path})");
            assert_eq!(wrong_links(&link("src/lib.rs")), [""; 0]);
            assert_eq!(wrong_links(&link("src/lib.rs?plain=1#L9")), [""; 0]);
            let found = wrong_links(&link("src/gone.rs"));
            assert_eq!(found.len(), 1, "{view}");
            assert!(found[0].ends_with("leads nowhere"), "{found:?}");
        }
        assert_eq!(wrong_links(&format!("[it]({OURS}#the-readmemd)")), [""; 0]);
        assert_eq!(wrong_links(&format!("[it]({OURS}#gone)")).len(), 1);
    }

    #[test]
    fn headings_have_the_anchors_of_github() {
        let text =
            "# It\n## What it can't do: `A`, b_c-d\n###### Deep\n#no\n```sh\n# a comment\n```\n";
        assert_eq!(anchors(text), ["it", "what-it-cant-do-a-b_c-d", "deep"]);
    }
}

//! What a published crate carries beside its code: a README whose links hold, and the licences.

use std::fs;

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

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
    let mut found = Vec::new();
    let mut is_heading = false;
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => {
                is_heading = true;
                found.push(String::new());
            }
            Event::End(TagEnd::Heading(_)) => is_heading = false,
            Event::Text(text) | Event::Code(text) if is_heading => {
                let text = text.to_lowercase().replace(' ', "-");
                let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_'));
                if let Some(anchor) = found.last_mut() {
                    anchor.extend(kept);
                }
            }
            _ => {}
        }
    }
    found
}

/// Where the links and images of a Markdown text lead.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                found.push(dest_url.into_string());
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                for attribute in ["href=", "src="] {
                    let values = html.split(attribute).skip(1);
                    found.extend(
                        values.filter_map(|v| v.split(['"', '\'']).nth(1)).map(str::to_owned),
                    );
                }
            }
            _ => {}
        }
    }
    found
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

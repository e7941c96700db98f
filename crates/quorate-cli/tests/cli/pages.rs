//! The manual pages and the completions are those of the command line.

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

use clap::CommandFactory as _;
use clap_complete::Shell;

#[expect(dead_code, reason = "the command line, without the command")]
#[path = "../../src/args.rs"]
mod args;

/// Each file, as it is to be.
fn pages() -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let mut command = args::Cli::command();
    for (shell, name) in
        [(Shell::Bash, "quorate.bash"), (Shell::Zsh, "_quorate"), (Shell::Fish, "quorate.fish")]
    {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), "quorate", &mut text);
        pages.insert(format!("completions/{name}"), String::from_utf8(text).unwrap());
    }
    command.build();
    let commands: Vec<_> = command.get_subcommands().cloned().collect();
    for command in [command].into_iter().chain(commands) {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
        let page = clap_mangen::Man::new(command.disable_help_flag(true));
        let page = page.title(&name).section("1").source("quorate").manual("quorate");
        let mut text = Vec::new();
        page.render(&mut text).unwrap();
        let text = with_sections(&String::from_utf8(text).unwrap());
        pages.insert(format!("man/{name}.1"), text);
    }
    pages
}

/// Makes sections of the titles in the end of the help, and keeps the lines of its lists and examples apart.
fn with_sections(page: &str) -> String {
    let Some((page, rest)) = page.split_once(".SH EXTRA\n") else { return page.to_owned() };
    let is_title =
        |line: &str| !line.is_empty() && line.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
    let mut text = page.to_owned();
    let mut is_apart = false;
    for line in rest.lines() {
        if line.starts_with("    ") != is_apart {
            is_apart = !is_apart;
            text += if is_apart { ".nf\n" } else { ".fi\n" };
        }
        text += &if is_title(line) { format!(".SH {line}\n") } else { format!("{line}\n") };
    }
    text
}

#[test]
fn the_manual_pages_and_the_completions_are_current() {
    const WRITE: &str = "QUORATE_WRITE_PAGES";
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = pages();
    for (name, text) in &pages {
        if env::var_os(WRITE).is_some() {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), text).unwrap();
        }
        let is_current = fs::read_to_string(root.join(name)).is_ok_and(|there| there == *text);
        assert!(is_current, "{name} is not current: {WRITE}=1 cargo test -p quorate-cli pages::");
    }
    for folder in ["man", "completions"] {
        for file in fs::read_dir(root.join(folder)).unwrap() {
            let name = format!("{folder}/{}", file.unwrap().file_name().to_string_lossy());
            assert!(pages.contains_key(&name), "{name} is no page of the command line");
        }
    }
    // X7 and the exit codes are in them.
    assert!(pages["man/quorate-run.1"].contains("setpriv \\-\\-pdeathsig KILL"));
    for code in ["64", "69", "71", "75", "78", "79", "126", "127"] {
        assert!(pages["man/quorate.1"].contains(code), "{code}");
    }
}

//! The manual pages and the completions are those of the command line.

use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

use clap::CommandFactory as _;
use clap_complete::Shell;

#[expect(dead_code, reason = "the command line, without the command")]
#[path = "../../src/args.rs"]
mod args;

/// Each shell, its file, and what clap does not know: behind `--`, the words are those of a command. The text stands behind
/// the place.
const SHELLS: [(Shell, &str, &str, &str); 3] = [
    (
        Shell::Bash,
        "quorate.bash",
        "    cmd=\"\"\n    opts=\"\"\n",
        r#"
    # Behind `--`, the words are those of a command.
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            if declare -F _comp_command_offset > /dev/null; then
                _comp_command_offset $((i + 1))
            elif declare -F _command_offset > /dev/null; then
                _command_offset $((i + 1))
            elif ((i + 1 == COMP_CWORD)); then
                COMPREPLY=( $(compgen -c -- "${cur}") )
            fi
            return 0
        fi
    done
"#,
    ),
    (
        Shell::Zsh,
        "_quorate",
        "    local ret=1\n",
        r#"
    # Behind `--`, the words are those of a command.
    integer at=${words[(ie)--]}
    if (( at < CURRENT )); then
        shift $at words
        (( CURRENT -= at ))
        _normal
        return
    fi
"#,
    ),
    (
        Shell::Fish,
        "quorate.fish",
        "",
        r#"
# Behind `--`, the words are those of a command.
function __fish_quorate_command
    set -l words (commandline -opc) (commandline -ct)
    set -l at (contains -i -- -- $words)
    __fish_complete_subcommand --commandline $words[(math $at + 1)..]
end
complete -c quorate -n "contains -- -- (commandline -opc)" -x -a "(__fish_quorate_command)"
"#,
    ),
];

/// Each file, as it is to be.
fn pages() -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let mut command = args::Cli::command();
    for (shell, name, place, more) in SHELLS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), "quorate", &mut text);
        let text = String::from_utf8(text).unwrap();
        let (before, behind) = text.rsplit_once(place).unwrap();
        pages.insert(format!("completions/{name}"), [before, place, more, behind].concat());
    }
    command = command.disable_help_subcommand(true);
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

/// Makes sections of the titles behind the help, and keeps the lines of its lists and examples apart.
fn with_sections(page: &str) -> String {
    let Some((page, rest)) = page.split_once(".SH EXTRA\n") else { return page.to_owned() };
    let is_title =
        |line: &str| !line.is_empty() && line.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
    let mut text = page.to_owned();
    let mut is_apart = false;
    for line in rest.lines() {
        if line.starts_with("    ") != is_apart {
            is_apart = !is_apart;
            text += if is_apart { ".RS 4\n.ad l\n.nh\n" } else { ".hy\n.ad b\n.RE\n" };
        }
        text += &match is_title(line) {
            true => format!(".SH {line}\n"),
            false if is_apart => format!(".br\n{}\n", line.trim_start()),
            false => format!("{line}\n"),
        };
    }
    text
}

/// What the completion of bash offers for the last of these words.
fn completed(words: &str) -> Vec<String> {
    const ASK: &str = r#"
        . "$1/completions/quorate.bash"
        COMP_WORDS=($2) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _quorate quorate "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut bash = std::process::Command::new("bash");
    bash.args(["--norc", "-c", ASK, "bash", env!("CARGO_MANIFEST_DIR"), words]);
    let done = bash.output().unwrap();
    assert!(done.status.success() && done.stderr.is_empty(), "{words}: {done:?}");
    String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_the_command_behind_the_dashes() {
    let offers = |words: &str, word: &str| completed(words).iter().any(|one| one == word);
    assert!(offers("quorate ru", "run"));
    assert!(offers("quorate run --once", "--once-per"));
    assert!(offers("quorate help ru", "run"));
    assert!(offers("quorate run name -- gre", "grep"));
    assert!(offers("quorate run --wait 5s a b -- gre", "grep"));
    assert!(!offers("quorate run name gre", "grep"));
    // Behind the command, bash completes files, as it does without us.
    assert_eq!(completed("quorate run name -- grep --o"), [""]);
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
    assert!(pages["man/quorate-run.1"].contains("If `quorate` is killed, Linux kills the command"));
    for code in ["64", "69", "70", "71", "74", "75", "78", "79", "126", "127"] {
        assert!(pages["man/quorate.1"].contains(code), "{code}");
    }
}

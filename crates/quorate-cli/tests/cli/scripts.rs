//! What users copy: the scripts of the README and of the page, the container file, the cron job of Kubernetes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use quorate_tests::Nodes;
use yaml_rust2::{Yaml, YamlLoader};

use crate::support::{Dir, Done, QUORATE, Started, run, with_nodes};

const README: &str = include_str!("../../../../README.md");
const PAGE: &str = include_str!("../../../quorate/docs/command.md");
const CONTAINER: &str = include_str!("../../../../examples/container/Containerfile");
const CRON_JOB: &str = include_str!("../../../../examples/container/cronjob.yaml");

/// The shell scripts of a page.
fn scripts(page: &str) -> Vec<&str> {
    page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// The script of a page with this word in it.
fn script<'a>(page: &'a str, word: &str) -> &'a str {
    let found: Vec<_> = scripts(page).into_iter().filter(|text| text.contains(word)).collect();
    let [script] = found[..] else { panic!("{word}: {found:?}") };
    script
}

/// Programs that a script runs. Each writes its words into `ran`, and ends with 0, or as the file `code` says.
fn install(dir: &Dir, names: &[&str]) {
    let text = "#!/bin/sh\necho \"${0##*/} $*\" >> ran\necho \"$QUORATE_FENCING_TOKEN\" > fence\nexit $(cat code 2>/dev/null)\n";
    for name in names {
        dir.write(name, text);
        fs::set_permissions(dir.file(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn sh(dir: &Dir, nodes: &Nodes, script: &str) -> Done {
    let folder = Path::new(QUORATE).parent().unwrap().display();
    let path = format!("{}:{folder}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("PATH", path);
    Started::spawn(with_nodes(command, dir, &nodes.addresses()), dir).done()
}

#[test]
fn the_scripts_of_the_readme_run() {
    let nodes = &Nodes::start(3);
    let cron = script(README, "--once-per");
    let (dir, other) = (&Dir::new(), &Dir::new());
    [dir, other].iter().for_each(|dir| install(dir, &["send-report"]));
    // Two machines.
    [dir, other].iter().for_each(|dir| sh(dir, nodes, cron).assert_silent());
    assert_eq!((&*dir.read("ran"), &*other.read("ran")), ("send-report \n", ""));

    for (word, program, words) in
        [("deploy", "deploy.sh", "production"), ("migrate", "migrate", "up")]
    {
        let (dir, text) = (&Dir::new(), script(README, word));
        install(dir, &[program]);
        sh(dir, nodes, text).assert_silent();
        assert_eq!(dir.read("ran"), format!("{program} {words}\n"));
        assert_eq!(text.contains("--fenced"), dir.read("fence").trim().parse::<u64>().is_ok());
        // The script has the exit code of its command, and stops there.
        dir.write("code", "3");
        assert_eq!(sh(dir, nodes, text).code(), Some(3), "{text}");
    }
}

#[test]
fn the_scripts_of_the_page_run() {
    let nodes = &Nodes::start(3);
    for text in scripts(PAGE) {
        let dir = &Dir::new();
        install(
            dir,
            &[
                "send-report",
                "deploy.sh",
                "migrate",
                "build.sh",
                "publish.sh",
                "work",
                "setpriv",
                "backup-one-host",
            ],
        );
        let done = sh(dir, nodes, text);
        assert_eq!((done.code(), &*done.err), (Some(0), ""), "{text}: {done:?}");
        assert_ne!(dir.read("ran"), "", "{text}: {done:?}");
        for name in ["report", "deploy"] {
            run(dir, &nodes.addresses(), &["free", "--now", "--yes", name]);
        }
        nodes.iter().for_each(quorate_tests::RedisServer::flushall);
    }
}

#[test]
fn the_first_locked_job_needs_less_than_ten_lines() {
    let (_, rest) = PAGE.split_once("## The first locked job").unwrap();
    let lines = rest.split("```").nth(1).unwrap().lines().skip(1).collect::<Vec<_>>();
    assert!(lines.len() < 10 && lines.last().unwrap().contains("quorate run"), "{lines:?}");
}

#[test]
fn the_container_runs_quorate_and_the_cron_job_gives_it_words_that_it_knows() {
    let entry = CONTAINER.lines().find_map(|line| line.strip_prefix("ENTRYPOINT "));
    assert_eq!(entry, Some(r#"["quorate"]"#));
    assert!(CONTAINER.lines().count() <= 12, "a few lines");

    let job = YamlLoader::load_from_str(CRON_JOB).unwrap().remove(0);
    assert_eq!(job["kind"].as_str(), Some("CronJob"));
    let pod = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let words: Vec<&str> =
        container["args"].as_vec().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let (dir, nodes) = (&Dir::new(), &Nodes::start(3));
    install(dir, &["send-report"]);
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    for _ in 0..2 {
        sh(dir, nodes, &format!("quorate {}", quoted.join(" "))).assert_silent();
    }
    assert_eq!(dir.read("ran"), "send-report \n");
    // The addresses come from a secret, since they hold passwords.
    let nodes = &container["env"][0];
    assert_eq!(nodes["name"].as_str(), Some("QUORATE_NODES"));
    assert_ne!(nodes["valueFrom"]["secretKeyRef"]["key"], Yaml::BadValue);
    // Kubernetes kills the pod that long after TERM: the command stops before.
    assert!(pod["terminationGracePeriodSeconds"].as_i64().unwrap() >= 30);
}

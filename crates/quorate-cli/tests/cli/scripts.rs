//! What users copy: the scripts of the README and of the page, the container file, the cron job of Kubernetes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use quorate::backend::{Drift, SafetyMargin, Ttl};
use quorate_pure::core_source::algorithm::renewal::Renewal;
use quorate_tests::Nodes;
use rustix::process::Signal;
use yaml_rust2::{Yaml, YamlLoader};

use crate::support::{Dir, Done, QUORATE, Started, keys_left, run, take, with_nodes, with_quorum};

const README: &str = include_str!("../../../../README.md");
const PAGE: &str = include_str!("../../../quorate/docs/command.md");
const CONTAINER: &str = include_str!("../../../../examples/container/Containerfile");
const CRON_JOB: &str = include_str!("../../../../examples/container/cronjob.yaml");

/// The shell scripts of a page, without the times of a crontab.
fn scripts(page: &str) -> Vec<String> {
    let scripts = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    scripts.map(|script| script.lines().map(without_times).collect()).collect()
}

fn without_times(line: &str) -> String {
    let command = match line.starts_with("*/") {
        true => line.splitn(6, ' ').nth(5).unwrap(),
        false => line,
    };
    format!("{command}\n")
}

/// The script of a page with this word in it.
fn script(page: &str, word: &str) -> String {
    let found: Vec<_> = scripts(page).into_iter().filter(|text| text.contains(word)).collect();
    let [script] = &found[..] else { panic!("{word}: {found:?}") };
    script.clone()
}

/// Programs that a script runs. Each writes its words into `ran`, and ends with 0, or as the file `code` says.
fn install(dir: &Dir, names: &str) {
    let text = "#!/bin/sh\necho \"${0##*/} $*\" >> ran\necho \"$QUORATE_FENCING_TOKEN\" > fence\nexit $(cat code 2>/dev/null)\n";
    names.split(' ').for_each(|name| write_program(dir, name, text));
}

fn write_program(dir: &Dir, name: &str, text: &str) {
    dir.write(name, text);
    fs::set_permissions(dir.file(name), fs::Permissions::from_mode(0o755)).unwrap();
}

fn sh(dir: &Dir, nodes: &Nodes, script: &str) -> Done {
    start_sh(dir, nodes, script).done()
}

fn start_sh(dir: &Dir, nodes: &Nodes, script: &str) -> Started {
    let folder = Path::new(QUORATE).parent().unwrap().display();
    let path = format!("{}:{folder}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("PATH", path);
    Started::spawn(with_nodes(command, dir, &nodes.addresses()), dir)
}

#[test]
fn the_scripts_of_the_readme_run() {
    let nodes = &Nodes::start(3);
    let cron = &script(README, "--once-per");
    let (dir, other) = (&Dir::new(), &Dir::new());
    [dir, other].iter().for_each(|dir| install(dir, "send-report"));
    // Two machines.
    [dir, other].iter().for_each(|dir| with_quorum(|| sh(dir, nodes, cron)).assert_silent());
    assert_eq!((&*dir.read("ran"), &*other.read("ran")), ("send-report \n", ""));

    for (word, program, words) in
        [("deploy", "deploy.sh", "production"), ("migrate", "migrate", "up")]
    {
        let (dir, text) = (&Dir::new(), &script(README, word));
        install(dir, program);
        sh(dir, nodes, text).assert_silent();
        assert_eq!(dir.read("ran"), format!("{program} {words}\n"));
        assert_eq!(text.contains("--fenced"), dir.read("fence").trim().parse::<u64>().is_ok());
        // The script has the exit code of its command, and stops there.
        dir.write("code", "3");
        assert_eq!(sh(dir, nodes, text).code(), Some(3), "{text}");
    }
}

/// The lock is taken away during the first step.
#[test]
fn a_pipeline_that_has_lost_its_lock_does_not_go_on() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let work = "#!/bin/sh\necho \"$*\" >> ran\nquorate free --now --yes deploy > freed\n";
    write_program(dir, "work", work);
    let done = sh(dir, nodes, &script(PAGE, "quorate extend"));
    assert_eq!((done.code(), &*dir.read("ran")), (Some(79), "build\n"), "{done:?}");
}

/// A step fails, or the lock is another's: the lock is as it was before, and no record is left.
#[test]
fn a_pipeline_that_fails_leaves_neither_its_lock_nor_its_record() {
    let (nodes, text) = (&Nodes::start(3), &script(PAGE, "quorate extend"));
    for (fails, ran, code) in [("build", "build\n", 3), ("publish", "build\npublish\n", 3)] {
        let dir = &Dir::new();
        let work = format!("#!/bin/sh\necho \"$*\" >> ran\n[ $1 != {fails} ] || exit {code}\n");
        write_program(dir, "work", &work);
        let done = sh(dir, nodes, text);
        assert_eq!((done.code(), &*dir.read("ran")), (Some(code), ran), "{done:?}");
        assert!(!dir.file("record").exists(), "{fails}");
        assert_eq!(keys_left(nodes), [], "{fails}");
    }
    let dir = &Dir::new();
    install(dir, "work");
    take(nodes, "deploy");
    // Left by somebody else.
    dir.write("record", "another record");
    let done = sh(dir, nodes, &text.replace("quorate lock", "quorate lock --no-wait"));
    assert_eq!((done.code(), &*dir.read("ran")), (Some(75), ""), "{done:?}");
    assert!(!dir.file("record").exists());
    assert_eq!(nodes.keys_left().len(), 3);
}

/// A signal ends it in the middle of a step.
#[test]
fn a_pipeline_that_is_ended_leaves_neither_its_lock_nor_its_record() {
    let (nodes, text) = (&Nodes::start(3), &script(PAGE, "quorate extend"));
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let dir = &Dir::new();
        let work = "#!/bin/sh\necho \"$*\" >> ran\n\
                    while [ -e here ] && [ ! -e go ]; do sleep 0.02; done\n";
        write_program(dir, "work", work);
        let mut pipeline = start_sh(dir, nodes, text);
        dir.wait_for("ran");
        pipeline.signal(signal);
        dir.write("go", "");
        let done = pipeline.done();
        assert_eq!((done.code(), &*dir.read("ran")), (Some(1), "build\n"), "{signal:?}: {done:?}");
        assert!(!dir.file("record").exists(), "{signal:?}");
        assert_eq!(keys_left(nodes), [], "{signal:?}");
    }
}

/// The monitor hears of a day that is done, on each machine: not while the job runs elsewhere, and
/// not when it has failed.
#[test]
fn the_ping_of_the_page_says_that_the_day_is_done() {
    let nodes = &Nodes::start(3);
    let page = script(PAGE, "ping-monitor");
    let cron = page.lines().find(|line| line.contains("ping-monitor")).unwrap();
    let (dir, other) = (&Dir::new(), &Dir::new());
    for dir in [dir, other] {
        install(dir, "backup-all ping-monitor");
    }
    let other_code = || with_quorum(|| sh(other, nodes, cron)).code();
    let work = "#!/bin/sh\necho > started\n\
                until [ -e go ] || [ ! -e here ]; do sleep 0.02; done\nexit 1\n";
    dir.write("backup-all", work);
    let mut running = start_sh(dir, nodes, cron);
    dir.wait_for("started");
    assert_eq!((other_code(), &*other.read("ran")), (Some(75), ""), "it runs elsewhere");
    dir.write("go", "");
    assert_eq!((running.done().code(), &*dir.read("ran")), (Some(1), ""), "it has failed");
    assert_eq!((other_code(), &*other.read("ran")), (Some(0), "backup-all \nping-monitor \n"));
    // The first machine calls again.
    sh(dir, nodes, cron).assert_silent();
    assert_eq!(dir.read("ran"), "ping-monitor \n");
}

#[test]
fn the_scripts_of_the_page_run() {
    let nodes = &Nodes::start(3);
    for text in &scripts(PAGE) {
        let dir = &Dir::new();
        let steps = "build.sh publish.sh work backup-all ping-monitor backup-one-host";
        install(dir, &format!("send-report deploy.sh migrate {steps}"));
        let done = sh(dir, nodes, text);
        assert_eq!((done.code(), &*done.told()), (Some(0), ""), "{text}: {done:?}");
        assert_ne!(dir.read("ran"), "", "{text}: {done:?}");
        for name in ["report", "deploy"] {
            run(dir, &nodes.addresses(), &["free", "--now", "--yes", name]);
        }
        nodes.iter().for_each(quorate_tests::RedisServer::flushall);
    }
}

#[test]
fn the_record_of_the_page_is_for_nobody_else() {
    let (dir, nodes) = (&Dir::new(), &Nodes::start(3));
    install(dir, "work");
    sh(dir, nodes, &script(PAGE, "> record").replace("rm -f record", "true")).assert_silent();
    let mode = fs::metadata(dir.file("record")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// TERM to the process of `ExecStart` alone, as `KillMode=mixed` sends it: the command gets it once.
#[test]
fn the_service_of_the_page_stops_its_command_once() {
    let unit = PAGE.split("```ini\n").nth(1).unwrap().split("```").next().unwrap();
    let value = |name: &str| {
        let mut lines = unit.lines().filter_map(|line| line.split_once('='));
        lines.find_map(|(key, value)| (key == name).then_some(value)).unwrap()
    };
    assert!(unit.starts_with("[Service]\n"));
    assert_eq!(value("KillMode"), "mixed");
    let (dir, nodes) = (&Dir::new(), &Nodes::start(3));
    // The pauses end by TERM as well, and the shell says so.
    let worker = "#!/bin/sh\nexec 2> /dev/null\ntrap 'echo TERM >> stops' TERM\necho > started\nuntil [ -e stops ] || [ ! -e here ]; do sleep 0.01; done\nexit 0\n";
    write_program(dir, "worker", worker);
    let start = value("ExecStart").replace("/usr/local/bin/quorate", QUORATE);
    let start = start.replace("/usr/local/bin/", &format!("{}/", dir.path().display()));
    let mut words = start.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    let mut service = Started::spawn(with_nodes(command, dir, &nodes.addresses()), dir);
    dir.wait_for("started");
    service.signal(Signal::TERM);
    service.done().assert_silent();
    assert_eq!((dir.read("stops"), keys_left(nodes)), ("TERM\n".to_owned(), vec![]));
}

/// All nodes fail at the worst moment, just before a renewal, and each try fails at once, as late as it may be.
#[test]
fn the_outage_of_the_page_is_what_a_run_bears_at_the_defaults() {
    let (ttl, kill_after) = (Duration::from_secs(30), Duration::from_secs(5));
    let margin = SafetyMargin::default();
    let validity = margin.validity(Drift::default(), Ttl::try_from(ttl).unwrap());
    let renewal = Renewal::new(validity, validity / 3);
    let now = quorate_tests::wait::now();
    let valid_until = now + validity;
    let begin = renewal.next(valid_until, u64::MAX, now);
    let is_borne = |outage: Duration| {
        let mut tried = begin;
        while tried < begin + outage {
            tried = renewal.retry(tried, valid_until, u64::MAX);
        }
        tried < valid_until - kill_after
    };
    assert!(PAGE.contains("an outage of all nodes of 12 s stops no command"));
    assert!(is_borne(Duration::from_secs(12)) && !is_borne(Duration::from_secs(15)));
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
    install(dir, "send-report");
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    for _ in 0..2 {
        with_quorum(|| sh(dir, nodes, &format!("quorate {}", quoted.join(" ")))).assert_silent();
    }
    assert_eq!(dir.read("ran"), "send-report \n");
    // The addresses come from a secret, since they hold passwords.
    let nodes = &container["env"][0];
    assert_eq!(nodes["name"].as_str(), Some("QUORATE_NODES"));
    assert_ne!(nodes["valueFrom"]["secretKeyRef"]["key"], Yaml::BadValue);
    // Kubernetes kills the pod that long after TERM: the command stops before.
    assert!(pod["terminationGracePeriodSeconds"].as_i64().unwrap() >= 30);
}

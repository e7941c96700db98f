//! Nothing of the command runs after the lease.

use quorate_tests::wait::{eventually, times};
use quorate_tests::{Nodes, RedisServer};
use rustix::process::Signal;

use crate::support::{
    Dir, RENEWED_SOON, Started, begin, delete, hold, is_group_alive, keys_left, pause_writes, pid,
    run, start, take, unpause_writes, wait_for_a_waiter,
};

/// The safety margin of this ttl is 500 ms: so late may a busy machine kill the command.
const TTL: &str = "5s";

/// A command of one kind: its options, and a script in which `WRITES` appends to `file` while it runs.
const KINDS: &[(&str, &str, &str)] = &[
    ("its grandchild ignores TERM, and it obeys", "", "(trap '' TERM; WRITES >> file) & wait"),
    ("it ignores TERM", "", "trap '' TERM; WRITES >> file"),
    ("it is stopped, and ignores TERM", "", "trap '' TERM; kill -STOP $$; WRITES >> file"),
    ("it is a pipeline", " --fenced", "trap '' TERM INT HUP; (WRITES) | cat >> file"),
    ("once per period", " --once-per 1month", "trap '' TERM; WRITES >> file"),
];

const WRITES: &str = "while [ -e here ]; do echo first; sleep 0.1; done";

/// A command under a lock, and a process that waits for that lock.
struct Pair {
    dir: Dir,
    kind: &'static str,
    /// The key of the lock.
    name: String,
    first: Started,
    second: Started,
}

impl Pair {
    fn start(number: usize, nodes: &Nodes) -> Self {
        let (dir, (kind, options, script)) = (Dir::new(), KINDS[number % KINDS.len()]);
        let script = script.replace("WRITES", WRITES);
        let script = format!("echo $$ > group; echo $QUORATE_LOCK > name; {script}");
        let words = format!("--ttl {TTL} --kill-after 1s{options} lock-{number}");
        let (first, name) = begin(&dir, &nodes.addresses(), &words, &script, "name");
        let second = ["run", "--wait", "1h", &name, "-c", "echo second >> file"];
        let second = start(&dir, &nodes.addresses(), &second);
        Self { dir, kind, name, first, second }
    }

    /// The milliseconds after which another client can have the lock.
    fn left(&self, nodes: &Nodes) -> i64 {
        nodes[..2].iter().map(|node| node.pttl(&self.name)).max().unwrap()
    }

    fn is_alive(&self) -> bool {
        is_group_alive(pid(&self.dir.read("group")))
    }
}

/// Two of three servers stop. When the keys of a lock expire, no process of its command lives.
#[test]
fn x1_nothing_of_the_command_runs_when_the_keys_expire() {
    let (nodes, clock) = (&Nodes::start(3), RedisServer::start());
    // Each one more is one more process that has to be killed in the same moment.
    let count = times(1, 4) * KINDS.len();
    let mut pairs: Vec<Pair> = (0..count).map(|number| Pair::start(number, nodes)).collect();
    // From now on nothing is extended there, and the ttls can still be read.
    pause_writes(nodes);
    for (number, pair) in pairs.iter().enumerate() {
        let left = pair.left(nodes);
        assert!(left > 0, "{}: the lock was lost before its nodes stopped", pair.kind);
        clock.cli(&["SET", &number.to_string(), "", "PX", &left.to_string()]);
    }
    nodes[..2].iter().for_each(RedisServer::pause);
    let mut alive: Vec<usize> = (0..pairs.len()).collect();
    eventually("the end of all ttls", || {
        alive.retain(|number| {
            let has_expired = clock.pttl(number.to_string()) == -2;
            let pair = &pairs[*number];
            assert!(!has_expired || !pair.is_alive(), "{}: alive after its keys", pair.kind);
            !has_expired
        });
        alive.is_empty()
    });
    // Now the waiting processes have the locks.
    nodes[..2].iter().for_each(RedisServer::resume);
    for pair in &pairs {
        assert_eq!(pair.left(nodes), -2, "{}: a key was extended", pair.kind);
    }
    unpause_writes(nodes);
    for pair in &mut pairs {
        let first = pair.first.done();
        assert_eq!(first.code(), Some(79), "{}: {first:?}", pair.kind);
        assert_eq!(pair.second.done().code(), Some(0), "{}", pair.kind);
        let file = pair.dir.read("file");
        assert!(!pair.is_alive() && file.ends_with("second\n"), "{}: {file}", pair.kind);
    }
}

/// The command gets TERM before it is killed: at `--kill-after` before the end, or at once if the nodes say that the
/// keys are not ours.
#[test]
fn x1_the_command_has_time_to_stop() {
    let nodes = &Nodes::start(3);
    let script = "trap 'echo stopped > stopped; exit 0' TERM; echo started > started; \
                  while [ -e here ]; do sleep 0.05; done";
    for is_deleted in [false, true] {
        let (dir, name) = (&Dir::new(), format!("lock-{is_deleted}"));
        // A renewal is due after 1.9 s at the latest.
        let words = format!("--ttl 6s --kill-after 1800ms {name}");
        let (mut first, _) = begin(dir, &nodes.addresses(), &words, script, "started");
        if is_deleted {
            delete(nodes, &name);
        } else {
            pause_writes(nodes);
        }
        // It ended with 0, and the lock was lost all the same.
        assert_eq!((first.done().code(), &*dir.read("stopped")), (Some(79), "stopped\n"));
        unpause_writes(nodes);
    }
}

/// It ignores TERM. Whatever came before, it has `--kill-after` to stop, since another one may have
/// the lock by then.
#[test]
fn x1_a_command_whose_keys_are_gone_is_killed_before_the_end_of_the_lease() {
    let nodes = &Nodes::start(3);
    let stubborn = "while [ -e here ]; do sleep 0.05; done";
    for (kind, is_revoked, script) in [
        ("lost", false, stubborn),
        ("revoked before", true, stubborn),
        (
            "revoked, and what is left",
            true,
            "(trap '' TERM; while [ -e here ]; do sleep 0.05; done) & \
             until [ -e got ]; do sleep 0.05; done",
        ),
    ] {
        let (dir, name) = (&Dir::new(), kind.replace(' ', "-"));
        let script = format!("trap 'echo term >> got' TERM; echo $$ > group; {script}");
        let words = format!("--ttl 1h --kill-after 300ms {name}");
        let (mut first, group) = begin(dir, &nodes.addresses(), &words, &script, "group");
        if is_revoked {
            let words = ["free", "--yes", "--no-wait", &name];
            assert_eq!(run(dir, &nodes.addresses(), &words).code(), Some(0), "{kind}");
            dir.wait_for("got");
        }
        delete(nodes, &name);
        let done = first.done();
        assert_eq!(done.code(), Some(79), "{kind}: {done:?}");
        assert!(!is_group_alive(pid(&group)), "{kind}");
        assert!(dir.read("got").lines().count() <= 1, "{kind}: it is asked once");
    }
}

/// As long as nobody else can have the lock, it has the time to stop.
#[test]
fn x1_a_command_whose_lock_was_revoked_has_the_rest_of_its_lease() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let script = "trap 'sleep 0.2; echo term >> got' TERM; echo $$ > group; \
                  while [ -e here ]; do sleep 0.05; done";
    let words = "--ttl 6s --kill-after 1ms lock";
    let (mut first, group) = begin(dir, &nodes.addresses(), words, script, "group");
    let freed = run(dir, &nodes.addresses(), &["free", "--yes", "lock"]);
    assert_eq!(freed.code(), Some(0), "{freed:?}");
    let done = first.done();
    assert_eq!((done.code(), is_group_alive(pid(&group))), (Some(79), false));
    assert_eq!(dir.read("got"), "term\n");
    // No renewal has failed.
    let lines: Vec<&str> = done.err.lines().filter(|line| line.contains(": lock: ")).collect();
    assert!(lines[0].starts_with("quorate: lock: revoked by \"") && lines.len() == 2, "{lines:?}");
    assert!(lines[0].ends_with(" of the lease are left"), "{lines:?}");
}

#[test]
fn x1_a_late_renewal_does_not_stop_the_stopping() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let script = "trap 'echo term > term' TERM; echo started > started; \
                  while [ -e here ]; do sleep 0.05; done";
    let words = "--ttl 6s --kill-after 1800ms lock";
    let (mut first, _) = begin(dir, &nodes.addresses(), words, script, "started");
    pause_writes(nodes);
    dir.wait_for("term");
    // All that was sent meanwhile is executed now, and the next renewal succeeds.
    unpause_writes(nodes);
    assert_eq!(first.done().code(), Some(79));
}

/// One line for each time that a renewal fails, and none with `-q`. The command goes on.
#[test]
fn a_renewal_that_fails_is_one_line() {
    let nodes = &Nodes::start(3);
    let set = |replicas: &str| {
        for node in &nodes[..2] {
            let reply = node.cli(&["CONFIG", "SET", "min-replicas-to-write", replicas]);
            assert_eq!(reply.text(), "OK");
        }
    };
    let is_warning = |line: &str| {
        line.starts_with("quorate: lock-")
            && line.contains(": a renewal has failed, and ")
            && line.contains("s of the lease are left: ")
            && line.contains(": NOREPLICAS ")
    };
    for (options, lines) in [("", 2), (" -q", 0)] {
        let (dir, name) = (&Dir::new(), format!("lock-{lines}"));
        let mut started = hold(dir, &nodes.addresses(), &format!("{RENEWED_SOON}{options} {name}"));
        let mut seen = 0;
        // On a busy machine a renewal may come too late for the lease: then the same risk goes on.
        for _ in 0..6 {
            set("1");
            eventually("a renewal that has failed", || {
                assert!(started.is_running(), "{:?}", started.done());
                let before = seen;
                seen = started.err().lines().filter(|line| is_warning(line)).count();
                // A renewal is due after 2.9 s at the latest.
                seen > before || nodes[..2].iter().all(|node| node.pttl(&name) < 5_500)
            });
            set("0");
            eventually("a renewal", || {
                assert!(started.is_running(), "{:?}", started.done());
                nodes[..2].iter().all(|node| node.pttl(&name) > 7_000)
            });
            if seen == lines {
                break;
            }
        }
        dir.write("go", "");
        let done = started.done();
        assert!(lines > 0 || done.err.is_empty(), "{done:?}");
        let warnings = done.err.lines().filter(|line| is_warning(line)).count();
        assert_eq!((done.code(), warnings), (Some(0), lines), "{done:?}");
    }
}

/// What a command leaves behind in its group ends before the lock is released.
#[test]
fn x1_what_the_command_leaves_behind_ends_before_the_release() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let script = "(trap '' TERM; while [ -e here ]; do echo first >> file; sleep 0.05; done) & \
                  echo $$ > group; until [ -e go ] || [ ! -e here ]; do sleep 0.01; done; exit 3";
    let words = "--ttl 60s --kill-after 300ms lock";
    let (mut first, group) = begin(dir, &nodes.addresses(), words, script, "group");
    let words = ["run", "--wait", "1h", "lock", "-c", "echo second >> file"];
    let mut second = start(dir, &nodes.addresses(), &words);
    wait_for_a_waiter(nodes, "lock");
    dir.write("go", "");
    assert_eq!((first.done().code(), second.done().code()), (Some(3), Some(0)));
    assert!(!is_group_alive(pid(&group)) && dir.read("file").ends_with("second\n"));
}

/// *Unconfirmed* is one line; *lost* is 79, see the exit codes.
#[test]
fn x5_a_release_that_no_quorum_confirms_is_one_line() {
    let nodes = &Nodes::start(3);
    for (options, lines) in [("", 1), (" -q", 0)] {
        let dir = &Dir::new();
        let mut started = hold(dir, &nodes.addresses(), &format!("--ttl 1h{options} lock"));
        nodes[..2].iter().for_each(RedisServer::pause);
        dir.write("go", "");
        let done = started.done();
        nodes[..2].iter().for_each(RedisServer::resume);
        assert_eq!((done.code(), done.told().lines().count()), (Some(0), lines), "{done:?}");
        // It has named the nodes: no line about one of them follows.
        let last = done.err.lines().last().unwrap_or_default();
        assert_eq!(last.contains("unconfirmed"), lines == 1, "{done:?}");
        assert_eq!(done.err.is_empty(), lines == 0, "{done:?}");
        // The servers execute what they were sent meanwhile.
        eventually("a free lock", || nodes.iter().all(|node| node.pttl("lock") == -2));
    }
}

/// Both are stopped until the lock has expired. The command may run for microseconds, and is killed.
#[test]
fn x8_after_a_stop_of_both_the_command_is_killed() {
    let (nodes, dir) = (&Nodes::start(3), &Dir::new());
    let script = "trap '' TERM; echo $$ > group; while [ -e here ]; do sleep 0.05; done";
    let words = "--ttl 6s --kill-after 100ms lock";
    let (mut first, group) = begin(dir, &nodes.addresses(), words, script, "group");
    let group = pid(&group);
    first.signal(Signal::STOP);
    rustix::process::kill_process_group(group, Signal::STOP).unwrap();
    eventually("a free lock", || nodes.iter().all(|node| node.pttl("lock") == -2));
    take(nodes, "lock");
    rustix::process::kill_process_group(group, Signal::CONT).unwrap();
    first.signal(Signal::CONT);
    assert_eq!(first.done().code(), Some(79));
    assert!(!is_group_alive(group));
}

/// Two of three nodes run somebody's script, until the command has heard so.
/// Rules C8, X5.
#[test]
fn the_end_of_a_command_releases_again_on_nodes_that_were_busy() {
    let slow = RedisServer::builder().config("lua-time-limit", &["1"]);
    let (nodes, dir) = (Nodes::start_with(3, &slow), &Dir::new());
    let mut started = hold(dir, &nodes.addresses(), "--ttl 1h lock");
    eventually("each node has the lock", || nodes.iter().all(|node| node.get("lock").is_some()));
    let is_busy = |node: &RedisServer| {
        node.cli(&["GET", "lock"]).error().is_some_and(|error| error.starts_with("BUSY"))
    };
    std::thread::scope(|scope| {
        for node in &nodes[..2] {
            scope.spawn(|| node.connect().command(&["EVAL", "while true do end", "0"]).map(drop));
        }
        eventually("two nodes are busy", || nodes[..2].iter().all(is_busy));
        dir.write("go", "");
        eventually("the command has heard so", || started.err().contains("unconfirmed"));
        nodes[..2].iter().for_each(|node| drop(node.cli(&["SCRIPT", "KILL"])));
    });
    let done = started.done();
    assert_eq!(done.code(), Some(0), "{done:?}");
    assert_eq!(keys_left(&nodes), [], "{done:?}");
}

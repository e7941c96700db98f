//! The harness does what the other tests trust it to do.

use std::env;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use quorate_tests::wait::{LIMIT, eventually};
use quorate_tests::{Connection, Direction, Mode, Nodes, Proxy, RedisServer, Reply, When};
use rustix::process::{Pid, test_kill_process};

fn refuses_connections(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn process_exists(pid: u32) -> bool {
    let pid = pid.try_into().ok().and_then(Pid::from_raw).expect("a process id");
    test_kill_process(pid).is_ok()
}

fn ask(connection: &mut Connection, command: &[&str]) -> Reply {
    connection.command(command).expect("an answer")
}

#[test]
fn a_started_node_serves_reads_and_writes() {
    let node = RedisServer::start();
    assert_eq!(node.address(), format!("redis://127.0.0.1:{}", node.port()));
    assert_eq!(node.get("k"), None);
    node.set("k", b"a\r\n\0b");
    assert_eq!(node.get("k").as_deref(), Some(&b"a\r\n\0b"[..]));
    assert_eq!(node.pttl("k"), -1);
    assert_eq!(node.pttl("absent"), -2);
    node.lpush("l", "x");
    assert_eq!(node.keys(), ["k", "l"]);
    let error = node.cli(&["GET", "l"]);
    assert!(error.error().is_some_and(|text| text.starts_with("WRONGTYPE")), "{error:?}");
    node.flushall();
    assert_eq!(node.keys(), [""; 0]);
    assert_eq!(node.run_id().len(), 40);
}

#[test]
fn a_paused_node_answers_only_after_it_resumes() {
    let node = RedisServer::start();
    let mut connection = node.connect();
    // Twice: the first pause must leave nothing that makes the second look done.
    for _ in 0..2 {
        node.pause();
        node.pause();
        assert!(node.is_running());
        connection.send(&["PING"]).expect("the kernel takes it");
        connection.set_read_timeout(Duration::from_millis(30)).expect("not zero");
        let silence = connection.receive().expect_err("a stopped process says nothing");
        assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);

        node.resume();
        connection.set_read_timeout(LIMIT).expect("not zero");
        assert_eq!(connection.receive().expect("the late reply").text(), "PONG");
    }
}

#[test]
fn a_killed_node_refuses_and_restarts_empty_on_the_same_port() {
    let node = RedisServer::start();
    let (port, run_id) = (node.port(), node.run_id());
    node.set("k", "v");
    let mut connection = node.connect();

    node.kill();
    assert!(!node.is_running());
    assert_eq!(node.pid(), None);
    assert!(refuses_connections(port));
    connection.command(&["PING"]).expect_err("the other end is gone");
    node.kill();

    node.restart();
    assert!(node.is_running());
    assert_eq!(node.port(), port);
    assert_eq!(node.keys(), [""; 0]);
    assert_ne!(node.run_id(), run_id);
}

#[test]
fn an_append_only_node_restarts_with_its_data() {
    let node = RedisServer::builder().append_only().start();
    node.set("k", "v");
    node.restart();
    assert_eq!(node.get("k").as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_node_that_dies_by_itself_is_noticed() {
    let node = RedisServer::start();
    let mut connection = node.connect();
    connection.send(&["SHUTDOWN", "NOSAVE"]).expect("a live connection");
    connection.receive().expect_err("the end of the connection");
    node.wait_until_dead();
    assert!(!node.is_running());
}

/// Also while it is paused, and while its test panics.
#[test]
fn a_dropped_node_leaves_no_process_and_no_file() {
    let (tell, told) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let node = RedisServer::start();
        let pid = node.pid().expect("it runs");
        assert!(process_exists(pid) && node.dir().exists());
        tell.send((pid, node.port(), node.dir().to_owned())).expect("a listener");
        node.pause();
        std::panic::resume_unwind(Box::new("as a failed assertion would"));
    });
    test.join().expect_err("it panics");
    let (pid, port, dir) = told.recv().expect("it started");
    assert!(!process_exists(pid) && !dir.exists());
    assert!(refuses_connections(port));
}

#[test]
fn a_killed_test_process_leaves_no_process_and_no_file() {
    const NAME: &str = "harness::a_killed_test_process_leaves_no_process_and_no_file";
    const VICTIM: &str = "QUORATE_HARNESS_VICTIM";
    if env::var_os(VICTIM).is_some() {
        let node = RedisServer::start();
        node.pause();
        let line = format!("victim {} {}\n", node.port(), node.dir().display());
        io::stdout().write_all(line.as_bytes()).expect("a listener");
        let _ = io::stdin().read_line(&mut String::new());
        return;
    }

    let mut victim = Command::new(env::current_exe().expect("this test"))
        .args(["--exact", NAME, "--nocapture"])
        .env(VICTIM, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this test once more");
    let mut lines =
        BufReader::new(victim.stdout.take().expect("piped")).lines().map_while(Result::ok);
    // The test runner may have written "test NAME ... " before it, on the same line.
    let line =
        lines.find_map(|line| Some(line.split_once("victim ")?.1.to_owned())).expect("its node");
    let (port, dir) = line.split_once(' ').expect("two words");
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port.parse().expect("a port")))
        .expect("the kernel accepts");
    connection.set_read_timeout(Some(LIMIT)).expect("not zero");
    assert!(Path::new(dir).exists());

    victim.kill().expect("our own child");
    victim.wait().expect("our own child");

    // The node's end closes only with the node, and the watchdog holds the victim's stderr until it is done.
    match connection.read(&mut [0]) {
        Ok(read) => assert_eq!(read, 0),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
    victim.stderr.take().expect("piped").read_to_end(&mut Vec::new()).expect("the end");
    assert!(!Path::new(dir).exists());
}

#[test]
fn passwords_and_rules_of_users_are_for_all_but_the_harness() {
    let closed = RedisServer::builder().password("open \"sesame\"").start();
    assert_eq!(closed.cli(&["PING"]).text(), "PONG");
    let mut stranger = closed.connect_as_stranger();
    assert!(ask(&mut stranger, &["PING"]).error().is_some_and(|text| text.starts_with("NOAUTH")));
    assert_eq!(ask(&mut stranger, &["AUTH", "open \"sesame\""]).text(), "OK");
    assert_eq!(ask(&mut stranger, &["PING"]).text(), "PONG");

    let node = RedisServer::builder().user("ann", "on >pw ~orders:* +get").start();
    assert_eq!(node.address_as("ann", "pw"), format!("redis://ann:pw@127.0.0.1:{}", node.port()));
    let mut ann = node.connect_as_stranger();
    assert_eq!(ask(&mut ann, &["AUTH", "ann", "pw"]).text(), "OK");
    assert_eq!(ask(&mut ann, &["GET", "orders:1"]), Reply::Nil);
    let denied = ask(&mut ann, &["GET", "bills:1"]);
    assert!(denied.error().is_some_and(|text| text.starts_with("NOPERM")));
}

#[test]
fn a_replica_that_lags_takes_over_the_address_and_is_what_restarts() {
    let at_once = RedisServer::builder()
        .config("repl-diskless-sync-delay", &["0"])
        .config("rdb-del-sync-files", &["yes"]);
    let mut node = at_once.clone().start();
    let (port, primary) = (node.port(), node.run_id());
    node.set("heard", "x");
    let line = Proxy::start(port);
    let replica = at_once.replica_through(&line).start();
    replica.wait_until_in_sync();
    line.set(Mode::BlackHole(Direction::ToClient));
    node.set("missed", "x");
    let (run_id, pid) = (replica.run_id(), replica.pid());
    node.take_over(replica);

    assert_eq!((node.port(), node.run_id(), node.pid()), (port, run_id, pid));
    assert_ne!(node.run_id(), primary);
    assert_eq!(node.keys(), ["heard"]);
    node.set("k", "v");
    node.restart();
    assert_eq!((node.port(), node.keys().len()), (port, 0));
    node.set("k", "v");
}

#[test]
fn a_monitor_sees_every_command_between_start_and_stop() {
    let node = RedisServer::start();
    node.set("before", "x");
    let monitor = node.monitor();
    node.set("k", "a \"b\"\\ \n\u{1}");
    node.cli(&["EVAL", "return redis.call('GET', KEYS[1])", "1", "k"]);
    let commands = monitor.stop();

    let args: Vec<_> = commands.iter().map(|command| command.args.join("|")).collect();
    let script = "EVAL|return redis.call('GET', KEYS[1])|1|k";
    assert_eq!(args, ["SET|k|a \"b\"\\ \n\\x01", script, "GET|k"]);
    assert!(commands[0].client.starts_with("127.0.0.1:"));
    assert_eq!(commands[2].client, "lua");
}

#[test]
fn nodes_are_independent() {
    let nodes = Nodes::start(3);
    assert_eq!(nodes.addresses().len(), 3);
    nodes[0].set("a", "1");
    nodes[2].set("c", "1");
    nodes[2].set("b", "1");
    let left = [(0, "a".to_owned()), (2, "b".to_owned()), (2, "c".to_owned())];
    assert_eq!(nodes.keys_left(), left);
    nodes[2].kill();
    assert_eq!(nodes.keys_left(), left[..1]);
    assert_eq!(
        nodes[0].cli(&["MGET", "a", "b"]),
        Reply::Array(vec![Reply::Bulk(b"1".to_vec()), Reply::Nil])
    );
}

#[test]
#[should_panic(expected = "found no free port")]
fn a_taken_port_is_told_from_a_broken_configuration() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = taken.local_addr().expect("a bound socket").port();
    let _ = RedisServer::builder().config("port", &[&port.to_string()]).start();
}

#[test]
#[should_panic(expected = "must be one of the following: everysec")]
fn a_broken_configuration_is_told_with_what_the_node_said() {
    let _ = RedisServer::builder().config("appendfsync", &["at times"]).start();
}

#[test]
fn a_missing_redis_server_is_told_in_one_line() {
    let output = Command::new(env::current_exe().expect("this test"))
        .args(["--exact", "harness::a_started_node_serves_reads_and_writes"])
        .env("PATH", "/nowhere")
        .env_remove("QUORATE_REDIS_SERVER")
        .output()
        .expect("this test once more");
    assert!(!output.status.success());
    let told = "redis-server is not installed: run `cargo xtask test`, which installs it, \
                or use your package manager";
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.lines().any(|line| line == told), "{text}");
}

/// A node, a proxy in front of it, and a connection that goes through.
fn proxied() -> (RedisServer, Proxy, Connection) {
    let node = RedisServer::start();
    let proxy = Proxy::start(node.port());
    let mut connection = Connection::to_port(proxy.port()).expect("it listens");
    assert_eq!(ask(&mut connection, &["PING"]).text(), "PONG");
    (node, proxy, connection)
}

fn end_of(connection: &mut Connection) -> io::ErrorKind {
    connection.command(&["PING"]).expect_err("no answer").kind()
}

#[test]
fn a_proxy_hands_on_every_byte_in_both_directions() {
    let (node, proxy, mut connection) = proxied();
    proxy.wait_until_more_passed(Direction::ToClient, 6);
    let [sent, heard] = [Direction::ToNode, Direction::ToClient].map(|way| proxy.passed(way));
    assert_eq!((sent, heard), (14, 7), "PING and PONG");
    let big = "x".repeat(3_000_000);
    assert_eq!(ask(&mut connection, &["SET", "k", &big]).text(), "OK");
    assert_eq!(ask(&mut connection, &["GET", "k"]).text(), big);
    assert_eq!(node.get("k").map(|value| value.len()), Some(big.len()));
    let mut other = Connection::to_port(proxy.port()).expect("it listens");
    assert_eq!(ask(&mut other, &["GET", "k"]).text(), big);
    proxy.wait_until_more_passed(Direction::ToClient, heard + 2 * 3_000_000);
}

#[test]
fn what_a_slow_proxy_delays_arrives_in_order() {
    let (_node, proxy, mut connection) = proxied();
    let delay = Duration::from_millis(40);
    for (to_node, to_client) in [(delay, Duration::ZERO), (Duration::ZERO, delay), (delay, delay)] {
        proxy.set(Mode::Delay { to_node, to_client });
        for word in ["a", "b", "c"] {
            connection.send(&["ECHO", word]).expect("the kernel takes it");
        }
        let echoes = ["a", "b", "c"].map(|_| connection.receive().expect("later").text());
        assert_eq!(echoes, ["a", "b", "c"]);
    }
}

/// An hour in one direction: bytes sent that way are not seen at the other end.
#[test]
fn a_slow_proxy_delays_one_direction_and_not_the_other() {
    let hour = Duration::from_secs(3_600);
    for (to_node, to_client) in [(hour, Duration::ZERO), (Duration::ZERO, hour)] {
        let (node, proxy, mut connection) = proxied();
        proxy.wait_until_more_passed(Direction::ToClient, 6);
        let [sent, heard] = [Direction::ToNode, Direction::ToClient].map(|way| proxy.passed(way));
        proxy.set(Mode::Delay { to_node, to_client });
        connection.send(&["SET", "k", "v"]).expect("the kernel takes it");
        if to_node.is_zero() {
            proxy.wait_until_more_passed(Direction::ToNode, sent);
            eventually("the node has carried it out", || node.get("k").is_some());
        }
        connection.set_read_timeout(Duration::from_millis(30)).expect("not zero");
        let silence = connection.receive().expect_err("it is held back");
        assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(node.get("k").is_some(), to_node.is_zero());
        assert_eq!(proxy.passed(Direction::ToNode) > sent, to_node.is_zero());
        assert_eq!(proxy.passed(Direction::ToClient), heard);
        proxy.set(Mode::Pass);
        connection.set_read_timeout(LIMIT).expect("not zero");
        assert_eq!(connection.receive().expect("now").text(), "OK");
    }
}

#[test]
fn a_black_hole_swallows_one_direction_and_then_the_connection() {
    for (direction, arrives) in [(Direction::ToNode, false), (Direction::ToClient, true)] {
        let (node, proxy, mut connection) = proxied();
        let passed = proxy.passed(Direction::ToNode);
        proxy.set(Mode::BlackHole(direction));
        connection.send(&["SET", "k", "v"]).expect("the kernel takes it");
        if arrives {
            proxy.wait_until_more_passed(Direction::ToNode, passed);
        }
        connection.set_read_timeout(Duration::from_millis(30)).expect("not zero");
        let silence = connection.receive().expect_err("no reply comes through");
        assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(node.get("k").is_some(), arrives, "{direction:?}");

        connection.set_read_timeout(LIMIT).expect("not zero");
        let mut untouched = Connection::to_port(proxy.port()).expect("it listens");
        proxy.set(Mode::Pass);
        let torn = connection.receive().expect_err("bytes are missing");
        assert_eq!(torn.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(ask(&mut untouched, &["PING"]).text(), "PONG");
        assert_eq!(node.get("k").is_some(), arrives, "{direction:?}");
    }
}

#[test]
fn a_stuck_connection_hands_on_some_bytes_and_a_new_one_works() {
    for (bytes, arrived) in [(0, &b""[..]), (2, b"+O")] {
        let (node, proxy, connection) = proxied();
        drop(connection);
        let mut stuck =
            TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).expect("it listens");
        stuck.write_all(b"PING\r\n").expect("the kernel takes it");
        stuck.read_exact(&mut [0; 7]).expect("a reply");
        proxy.stick_after(bytes);
        stuck.write_all(b"SET k v\r\n").expect("the kernel takes it");
        eventually("the node has the key", || node.get("k").is_some());
        let mut reply = vec![0; bytes];
        stuck.read_exact(&mut reply).expect("the part of a reply");
        assert_eq!(reply, arrived);
        stuck.set_read_timeout(Some(Duration::from_millis(30))).expect("not zero");
        let silence = stuck.read(&mut [0]).expect_err("nothing more");
        assert_eq!(silence.kind(), io::ErrorKind::WouldBlock);
        let mut new = Connection::to_port(proxy.port()).expect("it listens");
        assert_eq!(ask(&mut new, &["PING"]).text(), "PONG");
    }
}

#[test]
fn a_proxy_cuts_with_a_fin_and_resets_with_an_rst() {
    for (now, used, how) in [
        (Mode::Cut(When::Now), Mode::Cut(When::Used), io::ErrorKind::UnexpectedEof),
        (Mode::Reset(When::Now), Mode::Reset(When::Used), io::ErrorKind::ConnectionReset),
    ] {
        let (node, proxy, mut connection) = proxied();
        proxy.set(used);
        connection.send(&["SET", "k", "v"]).expect("the kernel takes it");
        assert_eq!(connection.receive().expect_err("no reply").kind(), how, "{used:?}");
        let mut unused = Connection::to_port(proxy.port()).expect("it listens");
        unused.set_read_timeout(Duration::from_millis(30)).expect("not zero");
        let open = unused.receive().expect_err("nothing was asked");
        assert_eq!(open.kind(), io::ErrorKind::WouldBlock, "{used:?}");

        proxy.set(now);
        unused.set_read_timeout(LIMIT).expect("not zero");
        assert_eq!(unused.receive().expect_err("it ended").kind(), how, "{now:?}");
        // A reset may even come before `connect` returns.
        if let Ok(mut new) = Connection::to_port(proxy.port()) {
            assert_eq!(new.receive().expect_err("it ended").kind(), how, "{now:?}");
        }

        proxy.set(Mode::Pass);
        let mut healed = Connection::to_port(proxy.port()).expect("it listens");
        assert_eq!(ask(&mut healed, &["GET", "k"]), Reply::Nil, "the node got nothing");
        assert_eq!(node.keys(), [""; 0]);
    }
}

#[test]
fn a_refusing_proxy_looks_like_a_node_that_is_down() {
    let (_node, proxy, mut connection) = proxied();
    for _ in 0..3 {
        proxy.set(Mode::Refuse);
        assert_eq!(
            connection.receive().expect_err("it ended").kind(),
            io::ErrorKind::ConnectionReset
        );
        assert!(refuses_connections(proxy.port()));
        proxy.set(Mode::Pass);
        connection = Connection::to_port(proxy.port()).expect("it listens again");
        assert_eq!(ask(&mut connection, &["PING"]).text(), "PONG");
    }
}

#[test]
fn a_proxy_passes_on_that_its_node_is_gone() {
    let (node, proxy, mut connection) = proxied();
    node.kill();
    assert_ne!(end_of(&mut connection), io::ErrorKind::WouldBlock);
    if let Ok(mut new) = Connection::to_port(proxy.port()) {
        assert_ne!(end_of(&mut new), io::ErrorKind::WouldBlock);
    }
    node.restart();
    let mut back = Connection::to_port(proxy.port()).expect("it listens");
    assert_eq!(ask(&mut back, &["PING"]).text(), "PONG");
}

#[test]
fn a_dropped_proxy_leaves_no_connection_and_no_listener() {
    let (node, proxy, mut connection) = proxied();
    let port = proxy.port();
    let mut observer = Connection::to_port(node.port()).expect("it listens");
    let mut clients = || {
        // A client that has gone is listed until what came with the news has been answered.
        assert_eq!(ask(&mut observer, &["PING"]).text(), "PONG");
        ask(&mut observer, &["CLIENT", "LIST"]).text().lines().count()
    };
    assert_eq!(clients(), 2);
    drop(proxy);
    assert_ne!(end_of(&mut connection), io::ErrorKind::WouldBlock);
    assert!(refuses_connections(port));
    assert_eq!(clients(), 1);
}

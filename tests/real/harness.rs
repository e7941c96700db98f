//! The helpers do what the other tests trust them to do: a fault that is none would hide what a test looks for.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use quorate_tests::wait::{LIMIT, eventually};
use quorate_tests::{Connection, Direction, End, Mode, Nodes, Proxy, RedisServer, Reply, When};

const HOUR: Duration = Duration::from_secs(3_600);

/// Long enough for a reply that is not held back, on most machines.
const SHORT: Duration = Duration::from_millis(30);

fn receive(connection: &mut Connection, limit: Duration) -> Result<String, ErrorKind> {
    connection.set_read_timeout(limit).expect("not zero");
    connection.receive().map(|reply| reply.text()).map_err(|error| error.kind())
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
        assert_eq!(receive(&mut connection, SHORT), Err(ErrorKind::WouldBlock));
        node.resume();
        assert_eq!(receive(&mut connection, LIMIT).as_deref(), Ok("PONG"));
    }
}

#[test]
fn a_killed_node_refuses_and_restarts_empty_and_the_keys_of_the_others_are_told() {
    let nodes = Nodes::start(3);
    let (port, run_id) = (nodes[2].port(), nodes[2].run_id());
    let mut connection = nodes[2].connect();
    for (node, key) in [(0, "a"), (2, "c"), (2, "b")] {
        nodes[node].set(key, b"\r\n\0");
        assert_eq!(nodes[node].get(key).as_deref(), Some(&b"\r\n\0"[..]));
    }
    let left = [(0, "a".to_owned()), (2, "b".to_owned()), (2, "c".to_owned())];
    assert_eq!(nodes.keys_left(), left);
    nodes[2].kill();
    nodes[2].kill();
    assert!(!nodes[2].is_running() && refuses_connections(port));
    connection.command(&["PING"]).expect_err("the other end is gone");
    assert_eq!(nodes.keys_left(), left[..1]);
    nodes[2].restart();
    assert_eq!((nodes[2].port(), nodes[2].keys().len()), (port, 0));
    assert_ne!(nodes[2].run_id(), run_id);
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

fn refuses_connections(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

fn to(proxy: &Proxy) -> io::Result<Connection> {
    Connection::to_port(proxy.port())
}

/// A node, a proxy in front of it, and a connection that goes through.
fn proxied() -> (RedisServer, Proxy, Connection) {
    let node = RedisServer::start();
    let proxy = Proxy::start(node.port());
    let mut connection = to(&proxy).expect("it listens");
    assert_eq!(connection.command(&["PING"]).expect("a reply").text(), "PONG");
    (node, proxy, connection)
}

#[test]
fn a_proxy_does_to_connections_what_its_mode_says() {
    const SILENCE: ErrorKind = ErrorKind::WouldBlock;
    const FIN: ErrorKind = ErrorKind::UnexpectedEof;
    const RST: ErrorKind = ErrorKind::ConnectionReset;
    let ok = || Ok("OK".to_owned());
    // What a call meets, whether the node executes it, what it meets once all passes again, and what a connection meets
    // that sends nothing.
    for (mode, call, arrives, then, idle) in [
        (Mode::Pass, ok(), true, Err(SILENCE), SILENCE),
        (Mode::Delay(SHORT), ok(), true, Err(SILENCE), SILENCE),
        (Mode::Delay(HOUR), Err(SILENCE), false, ok(), SILENCE),
        (Mode::BlackHole(Direction::ToNode), Err(SILENCE), false, Err(RST), SILENCE),
        (Mode::BlackHole(Direction::ToClient), Err(SILENCE), true, Err(RST), SILENCE),
        (Mode::End(End::Cut, When::Used), Err(FIN), false, Err(FIN), SILENCE),
        (Mode::End(End::Reset, When::Used), Err(RST), false, Err(FIN), SILENCE),
        (Mode::End(End::Cut, When::Now), Err(FIN), false, Err(FIN), FIN),
        (Mode::End(End::Reset, When::Now), Err(RST), false, Err(FIN), RST),
        (Mode::Refuse, Err(RST), false, Err(FIN), RST),
    ] {
        let (node, proxy, mut used) = proxied();
        let mut unused = to(&proxy).expect("it listens");
        unused.command(&["PING"]).expect("a reply");
        proxy.set(mode);
        let limit = |met: ErrorKind| if met == SILENCE { SHORT } else { LIMIT };
        // Where connections have ended, this may fail.
        let ended = idle != SILENCE;
        let sent = ended || used.send(&["SET", "k", "v"]).is_ok();
        assert!(sent, "{mode:?}");
        let met = receive(&mut used, call.as_ref().err().map_or(LIMIT, |met| limit(*met)));
        assert_eq!(met, call, "{mode:?}");
        assert_eq!(receive(&mut unused, limit(idle)), Err(idle), "{mode:?}");
        if arrives {
            eventually("the node has the key", || node.get("k").is_some());
        }
        assert_eq!(node.get("k").is_some(), arrives, "{mode:?}");
        assert_eq!(refuses_connections(proxy.port()), mode == Mode::Refuse);
        // A reset may even come before `connect` returns.
        if ended && let Ok(mut new) = to(&proxy) {
            assert_eq!(receive(&mut new, LIMIT), Err(idle), "{mode:?}");
        }

        proxy.set(Mode::Pass);
        let met = receive(&mut used, then.as_ref().err().map_or(LIMIT, |met| limit(*met)));
        assert_eq!(met, then, "{mode:?}");
        let mut healed = to(&proxy).expect("it listens");
        let reply = healed.command(&["GET", "k"]).expect("a reply");
        assert_eq!(reply == Reply::Nil, !arrives && then != ok(), "{mode:?}: {reply:?}");
        assert!(ended || idle == receive(&mut unused, SHORT).expect_err("silence"), "{mode:?}");
    }
}

#[test]
fn a_proxy_hands_on_every_byte_in_order() {
    let (_node, proxy, mut connection) = proxied();
    let big = "x".repeat(3_000_000);
    for mode in [Mode::Pass, Mode::Delay(Duration::from_millis(5))] {
        proxy.set(mode);
        let words = [["ECHO", "a"], ["ECHO", &big], ["ECHO", "b"]];
        words.iter().for_each(|words| connection.send(words).expect("the kernel takes it"));
        for [_, word] in words {
            assert_eq!(receive(&mut connection, LIMIT).as_deref(), Ok(word));
        }
    }
}

#[test]
fn a_stuck_connection_hands_on_some_bytes_and_a_new_one_works() {
    for (bytes, arrived) in [(0, &b""[..]), (2, b"+O")] {
        let (node, proxy, _) = proxied();
        let mut stuck = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).expect("a proxy");
        stuck.write_all(b"PING\r\n").expect("the kernel takes it");
        stuck.read_exact(&mut [0; 7]).expect("a reply");
        proxy.stick_after(bytes);
        stuck.write_all(b"SET k v\r\n").expect("the kernel takes it");
        eventually("the node has the key", || node.get("k").is_some());
        let mut reply = vec![0; bytes];
        stuck.read_exact(&mut reply).expect("the part of a reply");
        assert_eq!(reply, arrived);
        stuck.set_read_timeout(Some(SHORT)).expect("not zero");
        let silence = stuck.read(&mut [0]).expect_err("nothing more");
        assert_eq!(silence.kind(), ErrorKind::WouldBlock);
        let mut new = to(&proxy).expect("it listens");
        assert_eq!(new.command(&["PING"]).expect("a reply").text(), "PONG");
    }
}

//! The helpers do what the other tests trust them to do: a fault that is none would hide what a test looks for.

use std::io::{self, ErrorKind};
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

//! A node that ends each connection at once: the error names the cause.

use std::future::IntoFuture;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use quorate::error::Answer;
use quorate_tests::RedisServer;
use quorate_tests::wait::within_limit;

use crate::client::{Client, on_tokio, unhurried, unreachable};

/// Something that sends `first` to each client, reads once if `reads`, replies `second` and hangs up.
fn peer(first: &'static [u8], reads: bool, second: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(first);
            if reads {
                let _ = stream.read(&mut [0; 512]);
            }
            let _ = stream.write_all(second);
        }
    });
    address
}

/// Both clients name it, in their own words. The reply of a server that turns a client away may get lost.
#[test]
fn fred_names_what_ended_a_connection() {
    const HANGS_UP: &[&str] = &["closed the connection before it replied", "maxclients"];
    const NO_REDIS: &[&str] = &["the reply is no"];
    let full = RedisServer::builder().config("maxclients", &["1"]).start();
    let _only = full.connect();
    let tls = RedisServer::builder().tls().start();
    let tls = tls.tls_address().replace("rediss://localhost", "redis://127.0.0.1");
    let at = |address: SocketAddr| format!("redis://{address}");
    let denied = b"-DENIED Redis is running in protected mode because it is enabled\r\n";
    let http = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    let cases = [
        (full.address(), &["max"][..]),
        (tls, HANGS_UP),
        (at(peer(denied, false, b"")), &["protected mode"]),
        (at(peer(b"", true, denied)), &["protected mode"]),
        (at(peer(b"", false, b"")), HANGS_UP),
        (at(peer(b"", true, b"")), HANGS_UP),
        (format!("redis://user:pw@{}/2", peer(b"", false, b"")), HANGS_UP),
        (at(peer(b"", true, http)), NO_REDIS),
        (at(peer(b"SSH-2.0-OpenSSH_9.2\r\n", true, b"")), NO_REDIS),
        // An alert of TLS.
        (at(peer(b"", true, b"\x15\x03\x03\x00\x02\x02\x46")), NO_REDIS),
        // The beginning of a reply.
        (at(peer(b"", true, b"-DENIED Redis is run")), &["Redis"]),
    ];
    on_tokio(async {
        for ((address, parts), client) in
            cases.iter().flat_map(|case| Client::ALL.map(|client| (case, client)))
        {
            let nodes = client.connect(std::slice::from_ref(address));
            let manager = unhurried(nodes).build().unwrap();
            let request = manager.lock("r").no_wait().into_future();
            let failure = unreachable(within_limit("the error", request).await);
            let Answer::Failed(error) = &failure.nodes()[0].answer else { panic!("{failure}") };
            let text = error.to_string();
            assert!(error.is_not_sent(), "{client:?} at {address}: {text}");
            assert!(
                parts.iter().all(|part| text.contains(part)),
                "{client:?} at {address}: {text}"
            );
        }
    });
}

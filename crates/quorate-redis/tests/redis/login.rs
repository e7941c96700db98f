//! Connections that break while they are made, and peers that are no node.

use std::io::Write;

use quorate_core::BackendErrorKind;

use crate::calls::{acquire, acquire_in_the_end, block_on, claim, one};
use crate::peer::{Peer, grant, read_some};

#[test]
fn a6_what_is_not_redis_is_told_without_the_password_it_echoes() {
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b"\x00\xff\x07 what is this\r\n\r\n"] {
        let peer = Peer::raw(move |_, mut stream| {
            let request = read_some(&mut stream)?;
            stream.write_all(answer)?;
            stream.write_all(&request)
        });
        let node = one(&peer.address_as("ann:hunter2@"));
        let error = block_on(acquire(&node, &claim("r"))).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Protocol, "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
}

/// A renamed command repeats what follows it: the password, or the token.
#[test]
fn a6_a_renamed_command_tells_no_password() {
    let peer = Peer::start(|_, command| match command[0].as_str() {
        "HELLO" => Some(
            "-ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'ann' 'hunter2'\r\n",
        ),
        "AUTH" => {
            Some("-ERR unknown command 'AUTH', with args beginning with: 'ann' 'hunter2'\r\n")
        }
        _ => grant(command),
    });
    let node = one(&peer.address_as("ann:hunter2@"));
    let error = block_on(acquire(&node, &claim("r"))).unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Auth, "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
}

#[test]
fn a_connection_that_breaks_during_the_login_is_a_lost_connection() {
    for last in ["HELLO", "SELECT", "EVAL"] {
        let peer =
            Peer::start(
                move |connection, command| {
                    if connection == 1 && command[0] == last { None } else { grant(command) }
                },
            );
        let node = one(&format!("{}/3", peer.address()));
        let error = block_on(acquire(&node, &claim("r"))).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Connection, "{last}: {error}");
        assert!(error.is_not_sent());
        block_on(acquire_in_the_end(&node, &claim("r")));
    }
}

/// As of a server at `maxclients`, or in protected mode, if its reason is lost.
#[test]
fn a_node_that_turns_its_clients_away_is_one_that_may_be_full() {
    let peer = Peer::raw(|_, _| Ok(()));
    for login in ["", "ann:x@", ":x@"] {
        for database in ["", "/1"] {
            let node = one(&format!("{}{database}", peer.address_as(login)));
            let error = block_on(acquire(&node, &claim("r"))).unwrap_err();
            assert_eq!(error.kind(), BackendErrorKind::Connection);
            let text = error.to_string();
            assert!(text.ends_with("it may be at maxclients, or in protected mode"), "{text}");
        }
    }
}

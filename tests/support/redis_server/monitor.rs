//! The commands that a node executes: the MONITOR stream.

use super::{Connection, RedisServer, Reply};

/// Collects the commands that a node executes, from [`RedisServer::monitor`] until [`stop`](Self::stop).
///
/// It sees no AUTH, and it sees the harness's own commands. The node keeps the lines until they
/// are read, so nothing is missed meanwhile.
#[derive(Debug)]
#[must_use = "the commands come from `stop`"]
pub struct Monitor<'a> {
    node: &'a RedisServer,
    connection: Connection,
}

/// One command that a node executed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Monitored {
    /// The sender: a peer's address, `unix:…`, or `lua` for a call inside a script.
    pub client: String,
    /// The command and its arguments; a byte that is not printable ASCII comes as `\xHH`.
    pub args: Vec<String>,
}

impl<'a> Monitor<'a> {
    pub(super) fn start(node: &'a RedisServer) -> Self {
        let mut connection = node.connect();
        let reply = connection.command(&["MONITOR"]).expect("MONITOR");
        assert_eq!(reply, Reply::Simple("OK".to_owned()));
        Self { node, connection }
    }

    /// The commands executed until now.
    pub fn stop(mut self) -> Vec<Monitored> {
        const LAST: &str = "quorate-tests: the last one";
        self.node.cli(&["ECHO", LAST]);
        let mut commands = Vec::new();
        loop {
            let line = self.connection.receive().expect("a line of MONITOR").text();
            let command =
                Monitored::parse(&line).unwrap_or_else(|| panic!("not from MONITOR: {line}"));
            if command.args.last().is_some_and(|arg| arg == LAST) {
                return commands;
            }
            commands.push(command);
        }
    }
}

impl Monitored {
    /// Reads `1339518083.107412 [0 127.0.0.1:60866] "SET" "key" "a \"quoted\" value"`.
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once('[')?;
        let (origin, rest) = rest.split_once("] ")?;
        let (_, client) = origin.split_once(' ')?;
        let mut args = Vec::new();
        let mut chars = rest.chars();
        while chars.next() == Some('"') {
            let mut arg = String::new();
            loop {
                match (chars.next()?, &mut chars) {
                    ('"', _) => break,
                    ('\\', chars) => match chars.next()? {
                        'n' => arg.push('\n'),
                        'r' => arg.push('\r'),
                        't' => arg.push('\t'),
                        plain @ ('"' | '\\') => arg.push(plain),
                        other => arg.extend(['\\', other]),
                    },
                    (plain, _) => arg.push(plain),
                }
            }
            args.push(arg);
            chars.next(); // The blank between two arguments.
        }
        Some(Self { client: client.to_owned(), args })
    }
}

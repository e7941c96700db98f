//! What listens where a node should be, and is none.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// How an impostor answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manners {
    /// Garbage, from the first command on.
    None,
    /// Like a node until it is asked for a vote; then garbage.
    UntilTheVote,
}

/// A TCP server on 127.0.0.1 that answers with bytes of no protocol. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Impostor {
    port: u16,
    is_over: Arc<AtomicBool>,
    visits: Arc<Mutex<Vec<Visit>>>,
    reception: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Visit {
    connection: TcpStream,
    conversation: JoinHandle<()>,
}

impl Impostor {
    pub(crate) fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let is_over = Arc::new(AtomicBool::new(false));
        let visits = Arc::<Mutex<Vec<Visit>>>::default();
        let reception = thread::spawn({
            let (is_over, visits) = (Arc::clone(&is_over), Arc::clone(&visits));
            move || {
                for connection in listener.incoming().map(Result::unwrap) {
                    if is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    let talk = connection.try_clone().unwrap();
                    let conversation = thread::spawn(move || {
                        // It ends when the client hangs up.
                        let _ = converse(talk, port, manners);
                    });
                    visits.lock().unwrap().push(Visit { connection, conversation });
                }
            }
        });
        Self { port, is_over, visits, reception: Some(reception) }
    }

    pub(crate) fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(reception) = self.reception.take() {
            let _ = reception.join();
        }
        let visits = self.visits.lock().map(|mut visits| std::mem::take(&mut *visits));
        for visit in visits.unwrap_or_default() {
            let _ = visit.connection.shutdown(Shutdown::Both);
            let _ = visit.conversation.join();
        }
    }
}

fn converse(mut connection: TcpStream, port: u16, manners: Manners) -> io::Result<()> {
    let mut requests = BufReader::new(connection.try_clone()?);
    loop {
        let words = request(&mut requests)?;
        let told = match manners {
            Manners::None => None,
            Manners::UntilTheVote => polite(&words, port),
        };
        let garbage = || b"\x00\xff HTTP/1.1 418 I'm a teapot\r\n\r\n".to_vec();
        connection.write_all(&told.unwrap_or_else(garbage))?;
    }
}

/// What a node would say, if it is not asked to vote.
fn polite(words: &[String], port: u16) -> Option<Vec<u8>> {
    let is =
        |place: usize, word: &str| words.get(place).is_some_and(|w| w.eq_ignore_ascii_case(word));
    let asks_for_scripts = is(0, "EVAL") && is(1, "return 1");
    if is(0, "SET") || is(0, "EVALSHA") || is(0, "EVAL") && !asks_for_scripts {
        return None;
    }
    Some(if asks_for_scripts {
        b":1\r\n".to_vec()
    } else if is(0, "COMMAND") {
        b"*1\r\n+del\r\n".to_vec()
    } else if is(0, "INFO") {
        let info = format!("# Server\r\nredis_version:7.0.0\r\nrun_id:{port:040}\r\n");
        format!("${}\r\n{info}\r\n", info.len()).into_bytes()
    } else if is(0, "CLIENT") && is(1, "ID") {
        b":1\r\n".to_vec()
    } else if is(0, "PING") {
        b"+PONG\r\n".to_vec()
    } else {
        b"+OK\r\n".to_vec()
    })
}

/// A request: an array of bulk strings.
fn request(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<String>> {
    let count = length(stream)?;
    let word = |_| {
        let mut bytes = vec![0; length(stream)? + 2];
        stream.read_exact(&mut bytes)?;
        bytes.truncate(bytes.len() - 2);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    (0..count).map(word).collect()
}

fn length(stream: &mut BufReader<TcpStream>) -> io::Result<usize> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let digits = line.trim_end().get(1..).unwrap_or_default();
    digits.parse().map_err(|_| io::ErrorKind::InvalidData.into())
}

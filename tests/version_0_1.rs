//! A process of version 0.1, frozen: it sends the commands that 0.1 sends, and knows nothing of the library.
//!
//! - `version_0_1 contend RESOURCE TIMES PORT…` acquires a lock and extends it, again and again, and prints each hold.
//! - `version_0_1 hold RESOURCE PORT…` says `waits` when it is in the wait queue, and `holds` when it has the lock.
//!   It releases at the end of its input.
//! - `version_0_1 detach RESOURCE PORT…` acquires, prints the record of the detached lock and ends.
//! - `version_0_1 adopt RECORD PORT…` goes on as `hold` with a lock that was detached.
//!
//! It asks the gate again and again where 0.1 watches a key: that leaves no trace on a node.

#![expect(clippy::print_stdout, reason = "its output is what the test reads")]

use std::env;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read as _};

use quorate_tests::clock::now;
use quorate_tests::judge::Hold;
use quorate_tests::wait::{LONG_TTL, eventually};
use quorate_tests::{Connection, Reply};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The scripts of 0.1.
const RELEASE: &str = "\
local ours = 0
for i = 1, #KEYS do
  local held = redis.pcall('GET', KEYS[i])
  if type(held) == 'table' and held.err and not string.find(held.err, 'WRONGTYPE') then return held end
  if held == ARGV[1] then ours = ours + redis.call('DEL', KEYS[i]) end
end
if ours == #KEYS then return 1 end
return 0
";

const EXTEND: &str = "\
for i = 1, #KEYS do
  if redis.call('GET', KEYS[i]) ~= ARGV[1] then return 0 end
end
for i = 1, #KEYS do
  if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
end
return 1
";

const REFRESH: &str = "\
local waiters, seen, me = KEYS[1], KEYS[2], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', now)) do
  redis.call('ZREM', waiters, entry)
  redis.call('ZREM', seen, entry)
end
if not redis.call('ZSCORE', waiters, me) then
  local last = redis.call('ZRANGE', waiters, -1, -1, 'WITHSCORES')
  redis.call('ZADD', waiters, (last[2] or 0) + 1, me)
end
redis.call('ZADD', seen, string.format('%.0f', now + 2000), me)
redis.call('PEXPIRE', waiters, 10000)
redis.call('PEXPIRE', seen, 10000)
if redis.call('PTTL', KEYS[3]) < 5000 then redis.call('SET', KEYS[3], '', 'PX', 10000) end
local rank, before = redis.call('ZRANK', waiters, me), ''
if rank > 0 then before = redis.call('ZRANGE', waiters, rank - 1, rank - 1)[1] end
local held = 0
for i = 4, #KEYS do
  if redis.call('PTTL', KEYS[i]) > 0 then held = i - 3 end
end
return {held, before, redis.call('ZRANGE', waiters, 0, 0)[1]}
";

const LEAVE: &str = "\
for i = 1, #ARGV do
  redis.call('ZREM', KEYS[1], ARGV[i])
  redis.call('ZREM', KEYS[2], ARGV[i])
  redis.call('DEL', KEYS[2 + i])
end
return redis.call('EXISTS', KEYS[1])
";

fn main() -> Outcome {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match *words {
        ["contend", key, times, ref ports @ ..] => {
            let mut nodes = Nodes::connect(ports)?;
            for _ in 0..times.parse()? {
                let (token, acquired) = (nodes.lock(key)?, now());
                nodes.each(&[
                    "EVAL",
                    EXTEND,
                    "1",
                    key,
                    &token,
                    &LONG_TTL.as_millis().to_string(),
                ])?;
                println!("{}", Hold { acquired, end: now(), ..Hold::default() });
                nodes.release(key, &token)?;
            }
            Ok(())
        }
        ["hold", key, ref ports @ ..] => {
            let mut nodes = Nodes::connect(ports)?;
            let token = nodes.lock(key)?;
            nodes.hold(key, &token)
        }
        ["detach", key, ref ports @ ..] => {
            let token = Nodes::connect(ports)?.lock(key)?;
            println!("quorate1:{}:{token}:{}", LONG_TTL.as_millis(), hex(key.as_bytes()));
            Ok(())
        }
        ["adopt", record, ref ports @ ..] => {
            let ["quorate1", ttl, token, key] = *record.split(':').collect::<Vec<_>>() else {
                return Err("no record of one key".into());
            };
            let key = String::from_utf8(unhex(key)?)?;
            let mut nodes = Nodes::connect(ports)?;
            let extended = nodes.each(&["EVAL", EXTEND, "1", &key, token, ttl])?;
            if !nodes.is_quorum(&extended, &Reply::Integer(1)) {
                return Err("the lock was lost".into());
            }
            nodes.hold(&key, token)
        }
        _ => Err("contend|hold|detach|adopt".into()),
    }
}

struct Nodes(Vec<Connection>);

impl Nodes {
    fn connect(ports: &[&str]) -> Outcome<Self> {
        let connect = |port: &&str| Ok(Connection::to_port(port.parse()?)?);
        Ok(Self(ports.iter().map(connect).collect::<Outcome<_>>()?))
    }

    /// Acquires the lock, waiting in its queue after a lost round, and behind others. Returns the token.
    fn lock(&mut self, key: &str) -> Outcome<String> {
        let [waiters, ..] = beside(key, b"");
        let hint = self.gate(key).command(&[b"EXISTS", &*waiters])?;
        if hint == Reply::Integer(0)
            && let Some(token) = self.attempt(key)?
        {
            return Ok(token);
        }
        let entry = random::<16>()?;
        let mut has_said = false;
        loop {
            let mut failed = None;
            eventually("the first entry and a free lock", || {
                let refreshed = self.refresh(key, &entry);
                if refreshed.is_ok() && !std::mem::replace(&mut has_said, true) {
                    println!("waits");
                }
                match refreshed {
                    Ok(is_due) => is_due,
                    Err(error) => {
                        failed = Some(error);
                        true
                    }
                }
            });
            if let Some(error) = failed {
                return Err(error);
            }
            if let Some(token) = self.attempt(key)? {
                self.leave(key, &entry)?;
                return Ok(token);
            }
        }
    }

    /// One round. If it is lost, it is undone.
    fn attempt(&mut self, key: &str) -> Outcome<Option<String>> {
        let token = hex(&random::<20>()?);
        let ttl = LONG_TTL.as_millis().to_string();
        let granted = self.each(&["SET", key, &token, "NX", "PX", &ttl])?;
        if self.is_quorum(&granted, &Reply::Simple("OK".to_owned())) {
            return Ok(Some(token));
        }
        self.release(key, &token)?;
        Ok(None)
    }

    fn release(&mut self, key: &str, token: &str) -> Outcome {
        self.each(&["EVAL", RELEASE, "1", key, token]).map(drop)
    }

    fn hold(&mut self, key: &str, token: &str) -> Outcome {
        println!("holds");
        io::stdin().read_to_end(&mut Vec::new())?;
        self.release(key, token)
    }

    /// Keeps the entry alive. Returns whether it is the first one, and the lock free.
    fn refresh(&mut self, key: &str, entry: &[u8]) -> Outcome<bool> {
        let [waiters, seen, own] = beside(key, entry);
        let words =
            [b"EVAL", REFRESH.as_bytes(), b"4", &waiters, &seen, &own, key.as_bytes(), entry];
        let reply = self.gate(key).command(&words)?;
        match &*reply.clone().array() {
            [Reply::Integer(held), _, Reply::Bulk(first)] => Ok(*held == 0 && first == entry),
            _ => Err(format!("{reply:?}").into()),
        }
    }

    fn leave(&mut self, key: &str, entry: &[u8]) -> Outcome {
        let [waiters, seen, own] = beside(key, entry);
        let words = [b"EVAL", LEAVE.as_bytes(), b"3", &waiters, &seen, &own, entry];
        let reply = self.gate(key).command(&words)?;
        if matches!(reply, Reply::Integer(_)) { Ok(()) } else { Err(format!("{reply:?}").into()) }
    }

    /// The gate of 0.1 depends on the key and on the order of the nodes.
    fn gate(&mut self, key: &str) -> &mut Connection {
        let mix = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let hash = key.bytes().fold(0x811c_9dc5, mix);
        let at = hash as usize % self.0.len();
        &mut self.0[at]
    }

    /// What each node replies. An error is no reply here.
    fn each(&mut self, words: &[&str]) -> Outcome<Vec<Reply>> {
        let reply = |node: &mut Connection| match node.command(words)? {
            Reply::Error(text) => Err(text.into()),
            reply => Ok(reply),
        };
        self.0.iter_mut().map(reply).collect()
    }

    fn is_quorum(&self, replies: &[Reply], wanted: &Reply) -> bool {
        replies.iter().filter(|reply| *reply == wanted).count() > self.0.len() / 2
    }
}

fn beside(key: &str, entry: &[u8]) -> [Vec<u8>; 3] {
    [&b"waiters"[..], b"seen", entry].map(|what| [key.as_bytes(), b":quorate:", what].concat())
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Outcome<Vec<u8>> {
    let pairs = (0..digits.len()).step_by(2).map(|at| digits.get(at..at + 2).unwrap_or_default());
    pairs.map(|pair| Ok(u8::from_str_radix(pair, 16)?)).collect()
}

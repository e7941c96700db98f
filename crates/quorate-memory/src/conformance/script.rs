//! Plays the cases of `cases.txt` against a backend.
//!
//! A case begins with what the backend must be able to do, and its name. Each line is a step, and what
//! is seen: `STEP = SEEN`, with ` or ` between alternatives. A line that begins with `;` is a comment.
//!
//! | step | what it does |
//! |---|---|
//! | `1 acquire ab …` | holder 1 acquires keys a and b; also `extend` and `release` |
//! | `… for 20ms`, `fenced 7`, `guarded 120s`, `raising 7`, `hint` | options of these calls |
//! | `1 raise a 7` | raises the fencing number |
//! | `refresh a e1 bc` | refreshes entry e1 in the queue of a, for a lock over b and c (a) |
//! | `leave a e1 e2` | removes e1, and e2 if it is there |
//! | `watch a`, `watch a e1` | begins a watch of the key, or of the key of an entry |
//! | `notified`, `expired` | waits for all watches, or for the watches of keys that were there |
//! | `inspect a`, `server` | what the backend says |
//! | `a`, `a lives 60s` | what the testbed says about the key |
//! | `expire a`, `list a`, `pass 20ms`, `forget`, `restart` | what the testbed does |
//! | `x > y+7` | compares numbers. `granted x` gives a number its name |

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use quorate_core::backend::Holder;
use quorate_core::backend::{
    AcquireOptions, Capabilities, Entry, ExtendOptions, ReleaseOptions, Server, Watched,
};
use quorate_core::{BackendError, FenceHint, FencingToken, RestartGuard, Ttl, Vote};

use super::bench::{Bench, Checked, TTL, text};
use super::ensure;
use crate::keys;

/// Far longer than a notification takes on any machine.
const LIMIT: Duration = Duration::from_secs(30);

/// A case of the text.
pub(super) struct Script {
    pub(super) needs: Capabilities,
    pub(super) name: &'static str,
    steps: &'static str,
}

/// All cases of the text, in their order.
pub(super) fn scripts() -> impl Iterator<Item = Script> {
    include_str!("cases.txt").split("\n\n").filter_map(|case| {
        let (needs, case) = case.strip_prefix('[')?.split_once("] ")?;
        let (name, steps) = case.split_once('\n')?;
        let needs = needs.split(' ').fold(Capabilities::NONE, |all, one| {
            all | match one {
                "fencing" => Capabilities::FENCING,
                "guard" => Capabilities::GUARD,
                "inspect" => Capabilities::INSPECT,
                "queue" => Capabilities::QUEUE,
                "watch" => Capabilities::WATCH,
                _ => Capabilities::NONE,
            }
        });
        Some(Script { needs, name, steps })
    })
}

impl Script {
    /// Plays the steps until one is seen to end otherwise.
    pub(super) async fn play(&self, bench: &Bench<'_>) -> Checked {
        let mut player = Player {
            bench,
            numbers: HashMap::new(),
            watches: Vec::new(),
            server: None,
            last_server: None,
        };
        player.numbers.extend([("far", FenceHint::MAX.get()), ("max", FencingToken::MAX.get())]);
        for line in self.steps.lines().filter(|line| !line.starts_with(';')) {
            let (step, expected) = line.split_once(" = ").unwrap_or((line, DONE));
            let words: Vec<&str> = step.split(' ').collect();
            let Some(seen) =
                player.play(&words).await.map_err(|error| format!("{step}: {error}"))?
            else {
                // The testbed cannot do that, so the rest cannot be checked.
                return Ok(());
            };
            let is_expected =
                expected.split(" or ").any(|expected| player.matches(expected, &seen));
            ensure!(is_expected, "{step}: {seen}, not {expected}");
        }
        Ok(())
    }
}

/// What is seen of a step that only does something.
const DONE: &str = "yes";

struct Player<'a> {
    bench: &'a Bench<'a>,
    /// The fencing numbers that have a name.
    numbers: HashMap<&'static str, u64>,
    watches: Vec<Watched>,
    /// The server that replied last under the restart guard, and the id of the one before.
    server: Option<Server>,
    last_server: Option<String>,
}

impl Player<'_> {
    /// Plays a step. Returns what is seen; `None` if the testbed cannot do it.
    async fn play(&mut self, words: &[&'static str]) -> Result<Option<String>, String> {
        let (bench, testbed) = (self.bench, self.bench.testbed);
        match *words {
            ["expire", what] => testbed.expire(&self.stored(what)?).await,
            ["list", _] if !testbed.has_other_values() => return Ok(None),
            ["list", what] => {
                testbed.expire(&self.stored(what)?).await;
                testbed.put_list(&self.stored(what)?).await;
            }
            ["pass", time] => testbed.pass(duration(time)?).await,
            ["forget"] => testbed.forget_scripts().await,
            ["restart"] if !testbed.restart().await => return Ok(None),
            ["restart"] => {}
            ["notified"] => self.wait(|_| true).await?,
            ["expired"] => self.wait(Watched::is_held).await?,
            [what] if what != "server" => {
                let value = testbed.value(&self.stored(what)?).await;
                return Ok(Some(match value {
                    Some(value) => self.holder(|token| token == value)?,
                    None => "free".to_owned(),
                }));
            }
            [what, "lives", time] => {
                let left = testbed.time_left(&self.stored(what)?).await;
                ensure!(bench.is_left(left, duration(time)?), "{left:?} are left");
            }
            [left, ">", right] => {
                let (left, right) = (self.number(left)?, self.number(right)?);
                ensure!(left > right, "they are {left} and {right}");
            }
            _ => return self.ask(words).await.map(Some),
        }
        Ok(Some(DONE.to_owned()))
    }

    /// Calls the backend.
    async fn ask(&mut self, words: &[&'static str]) -> Result<String, String> {
        let (bench, backend) = (self.bench, self.bench.backend);
        let entry = |name: &str| Entry::new(name.as_bytes());
        Ok(match *words {
            ["inspect", name] => match backend.inspect(&bench.key(name)?).await {
                Ok(Some(seen)) => {
                    let holder = self.holder(|token| seen.holder == Holder::new(token))?;
                    ensure!(bench.is_left(seen.time_left, TTL), "{seen:?}");
                    format!("{holder} for {TTL:?}")
                }
                Ok(None) => "free".to_owned(),
                Err(error) => failed(&error),
            },
            ["server"] => self.server().await?,
            ["watch", name, ref of_entry @ ..] => {
                let of_entry = of_entry.first().map(|name| entry(name));
                match backend.watch(&bench.key(name)?, of_entry.as_ref()).await {
                    Ok(watched) => {
                        self.watches.push(watched);
                        let is_held = self.watches.last().is_some_and(Watched::is_held);
                        if is_held { "held" } else { "free" }.to_owned()
                    }
                    Err(error) => failed(&error),
                }
            }
            ["refresh", name, own, ref locks @ ..] => {
                let names = locks.first().unwrap_or(&name);
                let locks = bench.keys(names)?;
                match backend.queue_refresh(&bench.key(name)?, &entry(own), &locks).await {
                    Ok(seen) => {
                        let text =
                            |entry: &Entry| String::from_utf8_lossy(entry.as_bytes()).into_owned();
                        let before = seen.predecessor.as_ref().map_or_else(|| "-".to_owned(), text);
                        let held = seen.held.and_then(|held| names.get(held..=held));
                        format!("{before} {} {}", text(&seen.first), held.unwrap_or("free"))
                    }
                    Err(error) => failed(&error),
                }
            }
            ["leave", name, own, ref also @ ..] => {
                let also = also.first().map(|name| entry(name));
                let seen = backend.queue_leave(&bench.key(name)?, &entry(own), also.as_ref()).await;
                seen.map_or_else(|error| failed(&error), |is_left| waiters(is_left).to_owned())
            }
            [holder, operation, names, ref options @ ..] => {
                self.call(holder, operation, names, options).await?
            }
            _ => return Err("this is no step".to_owned()),
        })
    }

    /// Calls the backend with a claim.
    async fn call(
        &mut self,
        holder: &str,
        operation: &str,
        names: &str,
        words: &[&'static str],
    ) -> Result<String, String> {
        let backend = self.bench.backend;
        let option = |name: &str| {
            let place = words.iter().position(|word| *word == name)?;
            words.get(place + 1).copied()
        };
        let ttl = Ttl::try_from(option("for").map_or(Ok(TTL), duration)?).map_err(text)?;
        let claim = self.bench.claim(names, holder.parse().map_err(text)?)?.with_ttl(ttl);
        let hint = option("fenced").map(|number| self.number(number)).transpose()?;
        let raising = option("raising").map(|number| self.number(number)).transpose()?;
        let waiters = words.contains(&"hint");
        let seen = match operation {
            "acquire" => {
                let mut options = AcquireOptions::default();
                (options.fencing, options.waiters) = (hint.and_then(FenceHint::new), waiters);
                let max_ttl = option("guarded").map(duration).transpose()?;
                options.guard = max_ttl.map(RestartGuard::strict);
                let seen = backend.acquire(&claim, options).await;
                if let Some(server) = seen.as_ref().ok().and_then(|seen| seen.server.clone()) {
                    self.last_server = self.server.replace(server).map(|server| server.id);
                }
                seen.map(|seen| (seen.vote, seen.number, seen.waiters))
            }
            "extend" => {
                let mut options = ExtendOptions::default();
                options.waiters = waiters;
                backend.extend(&claim, options).await.map(|seen| (seen.vote, None, seen.waiters))
            }
            "release" => {
                let mut options = ReleaseOptions::default();
                options.waiters = waiters;
                options.raise_to = raising.and_then(FencingToken::new);
                backend.release(&claim, options).await.map(|seen| (seen.vote, None, seen.waiters))
            }
            "raise" => {
                let number = self.number(words.first().unwrap_or(&""))?;
                let number = FencingToken::new(number).ok_or("no fencing token")?;
                backend.raise(&claim, number).await.map(|vote| (vote, None, None))
            }
            _ => return Err("this is no operation".to_owned()),
        };
        Ok(seen.map_or_else(|error| failed(&error), answer))
    }

    /// Waits for the watches that fulfil a condition, and ends the others.
    async fn wait(&mut self, is_meant: impl Fn(&Watched) -> bool) -> Checked {
        for watched in std::mem::take(&mut self.watches).into_iter().filter(is_meant) {
            let limit = self.bench.testbed.pass(LIMIT);
            let changed = pin!(watched.changed());
            let is_notified = matches!(select(changed, limit).await, Either::Left(_));
            ensure!(is_notified, "no notification within {LIMIT:?}");
        }
        Ok(())
    }

    /// Compares what the replies under the restart guard say with each other, and with the server.
    async fn server(&mut self) -> Result<String, String> {
        let server = self.server.clone().ok_or("no reply named a server")?;
        if self.bench.can(Capabilities::SERVER_ID) {
            let id = self.bench.backend.server_id().await.map_err(text)?;
            ensure!(id.as_ref() == Some(&server.id), "{id:?} calls itself {:?}", server.id);
        }
        Ok(match &server.before {
            None => "the one whose data it has".to_owned(),
            before if *before == self.last_server && *before != Some(server.id.clone()) => {
                "another one than before".to_owned()
            }
            _ => format!("{server:?} after {:?}", self.last_server),
        })
    }

    /// The holder whose token fulfils a condition.
    fn holder(&self, is_token: impl Fn(&[u8]) -> bool) -> Result<String, String> {
        for holder in 1..=9 {
            if is_token(self.bench.claim("a", holder)?.token().as_bytes()) {
                return Ok(format!("held by {holder}"));
            }
        }
        Ok("held by nobody".to_owned())
    }

    fn stored(&self, what: &str) -> Result<Vec<u8>, String> {
        Ok(match (what, what.strip_prefix("number:")) {
            ("epoch", _) => keys::EPOCH.into(),
            ("quarantine", _) => keys::QUARANTINE.into(),
            (_, Some(name)) => keys::counter(&self.bench.key(name)?),
            (name, None) => self.bench.key(name)?.as_bytes().to_vec(),
        })
    }

    /// A number, or a name with something added or subtracted.
    fn number(&self, text: &str) -> Result<u64, String> {
        let of = |name: &str| self.numbers.get(name).copied().or_else(|| name.parse().ok());
        let sum = match (text.split_once('+'), text.split_once('-')) {
            (Some((left, right)), _) => of(left).zip(of(right)).map(|(left, right)| left + right),
            (_, Some((left, right))) => of(left).zip(of(right)).map(|(left, right)| left - right),
            _ => of(text),
        };
        sum.ok_or_else(|| format!("{text} is no number"))
    }

    /// Whether this was expected. A number that has no name yet gets the expected one.
    fn matches(&mut self, expected: &'static str, seen: &str) -> bool {
        let number = |text: &str| text.strip_prefix("granted ")?.parse().ok();
        match (expected.strip_prefix("granted "), number(seen)) {
            (Some(name), Some(seen)) => match self.number(name) {
                Ok(expected) => expected == seen,
                Err(_) => self.numbers.insert(name, seen).is_none(),
            },
            _ => expected == seen,
        }
    }
}

fn answer((vote, number, hint): (Vote, Option<FencingToken>, Option<bool>)) -> String {
    let vote = if vote == Vote::Granted { "granted" } else { "refused" };
    let number = number.map(|number| format!(" {number}")).unwrap_or_default();
    let hint = hint.map(|hint| format!(", {}", waiters(hint))).unwrap_or_default();
    format!("{vote}{number}{hint}")
}

const fn waiters(is_left: bool) -> &'static str {
    if is_left { "others wait" } else { "nobody waits" }
}

fn failed(error: &BackendError) -> String {
    format!("error {:?}", error.kind())
}

/// A time such as `20ms` or `60.9s`.
fn duration(time: &str) -> Result<Duration, String> {
    let (seconds, unit) = match time.strip_suffix("ms") {
        Some(millis) => (millis, 1_000.0),
        None => (time.trim_end_matches('s'), 1.0),
    };
    Ok(Duration::from_secs_f64(seconds.parse::<f64>().map_err(text)? / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_of_the_text_is_read() {
        let text = include_str!("cases.txt");
        let names = text.lines().filter(|line| line.starts_with('['));
        assert!(names.clone().count() > 30);
        assert!(
            scripts()
                .map(|script| script.name)
                .eq(names.map(|line| line.split_once("] ").unwrap().1))
        );
        assert!(scripts().all(|script| !script.steps.contains('[')));
    }

    #[test]
    fn a_time_is_read_to_the_millisecond() {
        assert_eq!(duration("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(duration("60.9s"), Ok(TTL));
        assert!(duration("soon").is_err());
    }
}

//! Plays the cases of `cases.txt` against a backend.
//!
//! A case begins with what the backend must be able to do, and its name. Each line is a step, and
//! what is seen: `STEP = SEEN`, with ` or ` between alternatives. A line that begins with `;` is a
//! comment, and `unless queue: STEP` is for backends that lack that ability. An acquire that was
//! not sent is made once more.
//!
//! | step | what it does |
//! |---|---|
//! | `1 acquire ab …` | holder 1 acquires keys a and b; also `extend` and `release` |
//! | `… for 20ms`, `fenced 7`, `guarded 120s`, `raising 7` | options of these calls |
//! | `… asking a` | asks whether others wait: a release for a, a reader for its keys |
//! | `1 read ab …` | the same as a reader; also `reread` (extends) and `unread` (releases) |
//! | `1 raise a 7` | raises the fencing number |
//! | `refresh a e1 bc` | refreshes entry e1 in the queue of a, for a lock over b and c (a) |
//! | `leave a e1 e2` | removes e1, and e2 if it is there |
//! | `watch a`, `watch a e1` | begins a watch of the key, or of the key of an entry |
//! | `notified`, `expired` | waits for all watches, or for the watches of keys that were there |
//! | `inspect a`, `describe` | what the backend says |
//! | `mark a` | asks the holder of a to leave |
//! | `1 look ab`, `told` | holder 1 looks at a and b; waits for the push |
//! | `revoke a 9`, `delete a` | takes a away, with the token of holder 9; says what was there |
//! | `… of 1 2`, `… of` | only from these holders, or from none |
//! | `server` | how many servers have replied, if the backend knows it |
//! | `a`, `a lives 60s` | what the testbed says about the key |
//! | `expire a`, `list a`, `pass 20ms`, `forget`, `restart` | what the testbed does |
//! | `play …` | plays what one call after another cannot show |
//! | `x > y+7` | compares numbers. `granted x` gives a number its name |

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quorate_core::backend::{
    AcquireOptions, Asked, CallReply, Capabilities, Choice, Entry, ExtendOptions, FenceHint,
    Holder, KeyState, Mode, Operation, ReleaseOptions, Revoke, Ttl, Vote, Waiters,
};
use quorate_core::resource::{Label, Token};
use quorate_core::{BackendError, FencingToken, RestartGuard};

use super::bench::{self, Bench, Checked, TTL, text};
use super::{calls, ensure, order};
use crate::keys;
use crate::node::ABILITIES;

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
        let needs = needs.split(' ').map(ability).fold(Capabilities::NONE, |all, one| all | one);
        Some(Script { needs, name, steps })
    })
}

fn ability(name: &str) -> Capabilities {
    let found = ABILITIES.into_iter().find(|(_, one, _)| *one == name);
    found.map_or(Capabilities::NONE, |(one, ..)| one)
}

impl Script {
    /// Plays the steps until one is seen to end otherwise.
    pub(super) async fn play(&self, bench: &Bench<'_>) -> Checked {
        let mut player = Player {
            bench,
            numbers: HashMap::new(),
            watches: Vec::new(),
            told: None,
            servers: Vec::new(),
        };
        let max = FencingToken::MAX.get();
        player.numbers.extend([("far", FenceHint::MAX.get()), ("max", max), ("max-1", max - 1)]);
        for line in self.steps.lines().filter(|line| !line.starts_with(';')) {
            let line = match line.strip_prefix("unless ").and_then(|line| line.split_once(": ")) {
                Some((name, _)) if bench.can(ability(name)) => continue,
                Some((_, line)) => line,
                None => line,
            };
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

/// How long the quarantine lasts that a description shows.
const QUARANTINE: Duration = Duration::from_millis(120_300);

struct Player<'a> {
    bench: &'a Bench<'a>,
    /// The fencing numbers that have a name.
    numbers: HashMap<&'static str, u64>,
    /// The watches, each with whether its key was there.
    watches: Vec<(bool, Asked)>,
    /// The last look.
    told: Option<Asked>,
    /// The servers that have replied, without repetitions.
    servers: Vec<Arc<str>>,
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
            ["play", "binary", "names"] => calls::binary(bench).await?,
            ["play", "one", "of", "many"] => calls::one_of_many(bench).await?,
            ["play", "dropped", "calls"] => calls::dropped(bench).await?,
            ["play", "calls", "in", "order"] => order::calls(bench).await?,
            ["play", "calls", "of", "one", "moment"] => order::together(bench).await?,
            ["play", "calls", "of", "the", "queue"] => order::queue(bench).await?,
            ["told"] => {
                let told = self.told.take().ok_or("nothing was looked at")?;
                bench.notified(told).await?;
            }
            ["notified"] => self.wait(|_| true).await?,
            ["expired"] => self.wait(|was_there| was_there).await?,
            [what] if !["server", "describe"].contains(&what) => {
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
            _ => return self.call(words).await.map(Some),
        }
        Ok(Some(DONE.to_owned()))
    }

    /// Calls the backend.
    async fn call(&mut self, words: &[&'static str]) -> Result<String, String> {
        let bench = self.bench;
        let key = || bench.key(words[1]);
        let entry = |name: &&str| Entry::new(name.as_bytes());
        let operation = match *words {
            ["inspect", _] => Operation::Inspect { key: key()? },
            ["server"] => Operation::ServerId,
            ["describe"] => Operation::Describe,
            [verb @ ("revoke" | "mark" | "delete"), what, ref words @ ..] => {
                let (how, of) = match (verb, words) {
                    ("revoke", [holder, of @ ..]) => (Revoke::replace(self.token(holder)?), of),
                    ("mark", of) => (Revoke::mark(Label::new("asked").map_err(text)?), of),
                    (_, of) => (Revoke::delete(), of),
                };
                let holder = |name: &&str| Ok(Holder::new(self.token(name)?.as_bytes()));
                let how = match of {
                    ["of", of @ ..] => {
                        how.of(of.iter().map(holder).collect::<Result<Vec<_>, String>>()?)
                    }
                    _ => how,
                };
                Operation::Revoke { key: bench::key(&self.stored(what)?)?, how }
            }
            ["watch", _, ref of @ ..] => {
                Operation::Watch { key: key()?, entry: of.first().map(entry) }
            }
            ["refresh", name, own, ref locks @ ..] => {
                let choice = if locks.contains(&"any") { Choice::Any } else { Choice::All };
                let locks = bench.keys(locks.first().unwrap_or(&name))?.into();
                Operation::Refresh { key: key()?, entry: entry(&own), locks, choice }
            }
            ["leave", _, own, ref also @ ..] => {
                Operation::Leave { key: key()?, entry: entry(&own), also: also.first().map(entry) }
            }
            [holder, what, names, ref options @ ..] => {
                self.operation(holder, what, names, options)?
            }
            _ => return Err("this is no step".to_owned()),
        };
        let mut asked = bench.begin(&operation);
        let mut result = (&mut asked).await;
        if sets_a_key(&operation) && result.as_ref().is_err_and(BackendError::is_not_sent) {
            // The node had forgotten its scripts. A second command could come behind a release
            // (C3).
            result = bench.begin(&operation).await;
        }
        match (&operation, &result) {
            (Operation::Look(_), _) => self.told = Some(asked),
            (_, Ok(CallReply::Watched(was_there))) => self.watches.push((*was_there, asked)),
            _ => {}
        }
        match result {
            Ok(reply) => self.text(reply, &operation),
            Err(error) => Ok(failed(&error)),
        }
    }

    fn token(&self, holder: &str) -> Result<Token, String> {
        Ok(self.bench.claim("a", holder.parse().map_err(text)?)?.token().clone())
    }

    /// An operation with a claim.
    fn operation(
        &self,
        holder: &str,
        what: &str,
        names: &str,
        words: &[&'static str],
    ) -> Result<Operation, String> {
        let option = |name: &str| {
            let place = words.iter().position(|word| *word == name)?;
            words.get(place + 1).copied()
        };
        let number = |name| option(name).map(|number| self.number(number)).transpose();
        let ttl = Ttl::try_from(option("for").map_or(Ok(TTL), duration)?).map_err(text)?;
        let claim = self.bench.claim(names, holder.parse().map_err(text)?)?.with_ttl(ttl);
        let mode = if what.ends_with("read") { Mode::Shared } else { Mode::Exclusive };
        let claim = claim.with_mode(mode);
        Ok(match what {
            "acquire" | "read" => {
                let mut options = AcquireOptions::default();
                options.fencing = number("fenced")?.and_then(FenceHint::new);
                let max_ttl = option("guarded").map(duration).transpose()?;
                options.guard = max_ttl.map(RestartGuard::strict);
                options.asks = option("asking").is_some();
                Operation::Acquire(claim, options)
            }
            "look" => Operation::Look(claim),
            "extend" | "reread" => Operation::Extend(claim, ExtendOptions::default()),
            "release" | "unread" => {
                let mut options = ReleaseOptions::default();
                options.raise_to = number("raising")?.and_then(FencingToken::new);
                options.was_held = true;
                let asks = option("asking").map(|names| self.bench.keys(names)).transpose()?;
                options.asks = asks.map(Arc::from);
                Operation::Release(claim, options)
            }
            "raise" => {
                let number = self.number(words.first().unwrap_or(&""))?;
                Operation::Raise(claim, FencingToken::new(number).ok_or("no fencing token")?)
            }
            _ => return Err("this is no operation".to_owned()),
        })
    }

    /// The text for a reply.
    fn text(&mut self, reply: CallReply, operation: &Operation) -> Result<String, String> {
        Ok(match (reply, operation) {
            (CallReply::Voted(reply), _) => {
                self.note_server(reply.server);
                let vote = match reply.vote {
                    Vote::Granted => "granted",
                    Vote::Refused if reply.is_marked => "marked",
                    Vote::Refused => "refused",
                };
                let number = reply.number.map(|number| format!(" {number}"));
                let waiters = match reply.waiters {
                    Waiters::Unknown => String::new(),
                    Waiters::Nobody => ", nobody waits".to_owned(),
                    Waiters::For(at) => format!(", others wait for {at}"),
                };
                format!("{vote}{}{waiters}", number.unwrap_or_default())
            }
            (CallReply::Watched(true), _) => "held".to_owned(),
            (CallReply::Watched(false), _) => "free".to_owned(),
            (CallReply::Waiters(true), _) => "others wait".to_owned(),
            (CallReply::Waiters(false), _) => "nobody waits".to_owned(),
            (CallReply::Refreshed(seen), Operation::Refresh { locks, choice, .. }) => {
                let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
                let before = seen.predecessor.as_ref().map(Entry::as_bytes);
                let before = before.map_or_else(|| "-".to_owned(), text);
                let (named, else_it_is) = match choice {
                    Choice::All => (seen.held, "free"),
                    Choice::Any => (seen.free, "held"),
                };
                ensure!(
                    *choice == Choice::All || seen.held.is_some() == named.is_none(),
                    "{seen:?}"
                );
                // The name is the last letter of the key.
                let named = named.and_then(|at| locks.get(at)?.as_bytes().chunks(1).last());
                let named = named.map_or_else(|| else_it_is.to_owned(), text);
                format!("{} {before} {} {named}", seen.place, text(seen.first.as_bytes()))
            }
            (CallReply::Sighted(KeyState::Free), _) => "free".to_owned(),
            (CallReply::Sighted(KeyState::Read { readers }), _) => {
                let readers = readers.iter().map(|one| {
                    ensure!(self.bench.is_left(Some(one.time_left), TTL), "{one:?}");
                    self.holder(|token| one.holder == Holder::new(token))
                });
                let mut readers = readers.collect::<Result<Vec<_>, _>>()?;
                readers.sort_unstable();
                readers.join(" and ").replace("held", "read")
            }
            (CallReply::Sighted(KeyState::Held { holder, time_left }), _) => {
                let holder = self.holder(|token| holder == Holder::new(token))?;
                if time_left.is_none() {
                    return Ok(format!("{holder} for ever"));
                }
                ensure!(self.bench.is_left(time_left, TTL), "{time_left:?}");
                format!("{holder} for {TTL:?}")
            }
            (CallReply::Described(told), _) => {
                self.note_server(told.server_id);
                match told.quarantine_left {
                    Some(left) => {
                        ensure!(self.bench.is_left(Some(left), QUARANTINE), "{left:?} are left");
                        format!("quarantined for {QUARANTINE:?}")
                    }
                    None => "described".to_owned(),
                }
            }
            (CallReply::ServerId(id), _) => {
                ensure!(id.as_deref() != Some(""), "the id is empty");
                self.note_server(id);
                format!("number {}", self.servers.len())
            }
            (reply, _) => return Err(format!("the reply is {reply:?}")),
        })
    }

    fn note_server(&mut self, id: Option<Arc<str>>) {
        self.servers.extend(id.filter(|id| self.servers.last() != Some(id)));
    }

    /// Waits for the watches that fulfil a condition, and ends the others.
    async fn wait(&mut self, is_meant: impl Fn(bool) -> bool) -> Checked {
        for (was_there, watch) in std::mem::take(&mut self.watches) {
            if is_meant(was_there) {
                self.bench.notified(watch).await?;
            }
        }
        Ok(())
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

    /// A number, or a name with something added.
    fn number(&self, text: &str) -> Result<u64, String> {
        let of = |name: &str| self.numbers.get(name).copied().or_else(|| name.parse().ok());
        let number = match text.split_once('+') {
            Some((left, right)) => of(left).zip(of(right)).map(|(left, right)| left + right),
            None => of(text),
        };
        number.ok_or_else(|| format!("{text} is no number"))
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

const fn sets_a_key(operation: &Operation) -> bool {
    matches!(operation, Operation::Acquire(..) | Operation::Refresh { .. })
}

fn failed(error: &BackendError) -> String {
    if error.is_not_sent() { "not sent".to_owned() } else { format!("error {:?}", error.kind()) }
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
}

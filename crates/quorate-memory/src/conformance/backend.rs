//! The contract of a backend.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::{join_all, poll_immediate};
use quorate_core::protocol::{fence, quarantine, queue};
use quorate_core::runtime::BoxFuture;
use quorate_core::{
    BackendError, BackendErrorKind, Claim, Key, LockBackend, Resource, Token, Ttl, Vote,
};

use super::{Failure, Testbed, ensure};
use crate::node::MemoryNode;
use crate::rng::SplitMix64;
use crate::store::Value;

mod carried;
mod guarded;
mod looked;
mod numbers;
mod order;
mod queued;
mod watched;

/// Not whole seconds: a node that cuts them off would end before the holder does.
const TTL: Duration = Duration::from_millis(60_900);

/// How far the clocks of a node and of this process may be apart at the end of a case. Half of what
/// cutting off the last second would cost.
const GRACE: Duration = Duration::from_millis(450);

/// Checks the contract of [`LockBackend`], and returns the names of the cases.
///
/// What only some backends can do is checked on those that can.
///
/// The keys begin with `quorate:conformance:`. They are removed before and after, as are their
/// [counters](fence::counter) and what the [restart guard](quarantine) keeps: run it on nodes that
/// nobody else uses.
///
/// # Errors
///
/// The first [`Failure`].
///
/// # Cancel safety
///
/// Dropped, it leaves on the node what the case under way has put there. A run to the end removes it.
pub async fn backend(testbed: &dyn Testbed) -> Result<Vec<&'static str>, Failure> {
    type Case = for<'a> fn(&'a Bench<'a>) -> BoxFuture<'a, Result<(), String>>;
    let mut cases: Vec<(&'static str, Case)> = vec![
        ("a free key is granted, with the token and the ttl", |b| Box::pin(grants(b))),
        ("a taken key is refused and left alone", |b| Box::pin(refuses(b))),
        ("our own token in place is a grant", |b| Box::pin(recognises(b))),
        ("an expired key is free", |b| Box::pin(expires(b))),
        ("a key ends by itself when its ttl is over", |b| Box::pin(ends(b))),
        ("a release frees ours, and only ours", |b| Box::pin(releases(b))),
        ("an extension lengthens and never shortens", |b| Box::pin(extends(b))),
        ("an extension neither takes nor brings back", |b| Box::pin(extends_only_ours(b))),
        ("several keys are taken together or not at all", |b| Box::pin(all_or_none(b))),
        ("names are bytes, of any length", |b| Box::pin(binary(b))),
        ("of many at once, one is granted", |b| Box::pin(one_of_many(b))),
        ("forgotten scripts are sent again", |b| Box::pin(forgotten(b))),
        ("a dropped call disturbs no other", |b| Box::pin(dropped(b))),
    ];
    if testbed.has_other_values() {
        cases.push(("a value of another type is an unknown vote", |b| Box::pin(wrong_type(b))));
    }
    let backend = testbed.backend();
    if backend.keeps_order() {
        cases.push(("calls arrive in the order in which they set out", |b| {
            Box::pin(order::kept(b))
        }));
    }
    if backend.carrier().is_some() {
        let carrying: [(&'static str, Case); 2] = [
            ("what is carried is as if it had been asked for", |b| Box::pin(carried::keeps(b))),
            ("what is carried and not wanted does not leave", |b| Box::pin(carried::unwanted(b))),
        ];
        cases.extend(carrying);
    }
    if backend.inspector().is_some() {
        cases.push(("a look tells the holder and the time left, and changes nothing", |b| {
            Box::pin(looked::at(b))
        }));
    }
    if backend.watcher().is_some() {
        let watching: [(&'static str, Case); 5] = [
            ("a watch of a free key ends at once", |b| Box::pin(watched::free(b))),
            ("a watch is told of release, of expiry and of change", |b| {
                Box::pin(watched::changes(b))
            }),
            ("a watch tells who has a key, and when another has", |b| Box::pin(watched::all(b))),
            ("a watch of what is no lock is an error", |b| Box::pin(watched::no_lock(b))),
            ("a dropped watch disturbs no other", |b| Box::pin(watched::dropped(b))),
        ];
        cases.extend(watching);
    }
    if backend.queue().is_some() {
        let queues: [(&'static str, Case); 3] = [
            ("who joins a queue stands behind the last", |b| Box::pin(queued::in_order(b))),
            ("a queue is no lock, and each key has its own", |b| Box::pin(queued::apart(b))),
            ("what is no queue is an error", |b| Box::pin(queued::no_queue(b))),
        ];
        cases.extend(queues);
    }
    if backend.queue().is_some() && backend.watcher().is_some() {
        cases.push(("a place tells the one before it, and when it is left", |b| {
            Box::pin(queued::watched(b))
        }));
    }
    if backend.fencer().is_some() {
        let fences: [(&'static str, Case); 7] = [
            ("a grant with a number takes the key and raises the number", |b| {
                Box::pin(numbers::counts(b))
            }),
            ("our own token in place is a grant with the same number", |b| {
                Box::pin(numbers::recounts(b))
            }),
            ("only the holder raises a number, and nobody lowers it", |b| {
                Box::pin(numbers::raises(b))
            }),
            ("a number outlives its lock, and excludes nobody", |b| Box::pin(numbers::outlives(b))),
            ("several keys have one number", |b| Box::pin(numbers::counts_together(b))),
            ("numbers end with an error, and none is lower than before", |b| {
                Box::pin(numbers::end(b))
            }),
            ("a number of another type is an error, and holds no lock", |b| {
                Box::pin(numbers::of_another_type(b))
            }),
        ];
        cases.extend(fences);
    }
    if backend.quarantine().is_some() {
        let guards: [(&'static str, Case); 5] = [
            (
                "a node without an epoch neither grants nor refuses until its quarantine is over",
                |b| Box::pin(guarded::begins(b)),
            ),
            ("a quarantined node knows what is there", |b| Box::pin(guarded::knows(b))),
            ("a node that knows another max_ttl changes nothing", |b| {
                Box::pin(guarded::disagrees(b))
            }),
            ("several keys are guarded together or not at all", |b| Box::pin(guarded::together(b))),
            ("a node that restarts with its data is quarantined", |b| {
                Box::pin(guarded::restarts(b))
            }),
        ];
        cases.extend(guards);
    }
    let mut passed = Vec::new();
    for (number, (case, check)) in cases.into_iter().enumerate() {
        let begun = Instant::now();
        let bench = Bench { testbed, backend: &*backend, number, begun };
        bench.clear().await;
        bench.clear_guard().await;
        check(&bench).await.map_err(|detail| Failure { case, detail })?;
        bench.clear().await;
        bench.clear_counters().await;
        bench.clear_guard().await;
        passed.push(case);
    }
    Ok(passed)
}

/// One case: three names and three tokens of its own.
struct Bench<'a> {
    testbed: &'a dyn Testbed,
    backend: &'a dyn LockBackend,
    number: usize,
    /// When the case began: whatever was set in it was set later.
    begun: Instant,
}

impl Bench<'_> {
    /// Whether this can be left of `ttl` by now, however slow the machine is.
    fn is_left(&self, left: Duration, ttl: Duration) -> bool {
        left <= ttl && left + GRACE + self.begun.elapsed() > ttl
    }

    fn key(&self, name: u8) -> Result<Key, String> {
        let name = format!("quorate:conformance:{}:{}", self.number, char::from(name));
        key(name.as_bytes())
    }

    fn claim(&self, names: &[u8], holder: u64) -> Result<Claim, String> {
        let keys: Result<Vec<Key>, String> = names.iter().map(|name| self.key(*name)).collect();
        claim(keys?, holder, TTL)
    }

    async fn value(&self, name: u8) -> Result<Option<Vec<u8>>, String> {
        Ok(self.testbed.value(self.key(name)?.as_bytes()).await)
    }

    async fn time_left(&self, name: u8) -> Result<Duration, String> {
        let left = self.testbed.time_left(self.key(name)?.as_bytes()).await;
        left.ok_or_else(|| "the key has no end".to_owned())
    }

    async fn clear(&self) {
        for name in *b"abc" {
            if let Ok(key) = self.key(name) {
                self.testbed.expire(key.as_bytes()).await;
                self.testbed.expire(queue::last(&key).as_bytes()).await;
            }
        }
    }

    /// Puts a value there that is no lock; `false` where there is no such.
    async fn put_list(&self, key: &Key) -> bool {
        let may = self.testbed.has_other_values();
        if may {
            self.testbed.put_list(key.as_bytes()).await;
        }
        may
    }

    /// The node knows no epoch, and is in no quarantine.
    async fn clear_guard(&self) {
        for key in [quarantine::EPOCH, quarantine::KEY] {
            self.testbed.expire(key.as_bytes()).await;
        }
    }

    /// Where our own backends keep the numbers. (They go on from wherever others left them.)
    async fn clear_counters(&self) {
        for name in *b"abc" {
            if let Ok(key) = self.key(name) {
                self.testbed.expire(fence::counter(&key).as_bytes()).await;
            }
        }
    }
}

fn key(name: &[u8]) -> Result<Key, String> {
    Ok(Key::new(b"", &Resource::new(name).map_err(|error| error.to_string())?))
}

fn claim(keys: Vec<Key>, holder: u64, ttl: Duration) -> Result<Claim, String> {
    let token = Token::draw(|bytes| {
        SplitMix64::new(holder).fill(bytes);
        Ok(())
    });
    let token = token.map_err(|error| error.to_string())?;
    Ok(Claim::new(keys, token, Ttl::try_from(ttl).map_err(|error| error.to_string())?))
}

fn voted(what: &str, seen: Result<Vote, BackendError>, expected: Vote) -> Result<(), String> {
    match seen {
        Ok(vote) if vote == expected => Ok(()),
        seen => Err(format!("{what}: {seen:?} instead of {expected:?}")),
    }
}

async fn grants(bench: &Bench<'_>) -> Result<(), String> {
    let claim = bench.claim(b"a", 1)?;
    voted("acquire", bench.backend.acquire(&claim).await, Vote::Granted)?;
    let value = bench.value(b'a').await?;
    ensure!(value.as_deref() == Some(claim.token().as_bytes()), "the value is not the token");
    let left = bench.time_left(b'a').await?;
    ensure!(bench.is_left(left, TTL), "of {TTL:?}, {left:?} are left");
    Ok(())
}

async fn refuses(bench: &Bench<'_>) -> Result<(), String> {
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    voted("acquire", bench.backend.acquire(&theirs).await, Vote::Granted)?;
    let longer = ours.with_ttl(Ttl::try_from(TTL * 10).map_err(|error| error.to_string())?);
    voted("acquire of a taken key", bench.backend.acquire(&longer).await, Vote::Refused)?;
    let left = bench.time_left(b'a').await?;
    ensure!(left <= TTL, "a refused acquire left the holder's key {left:?}");
    let value = bench.value(b'a').await?;
    ensure!(value.as_deref() == Some(theirs.token().as_bytes()), "the holder was overwritten");
    Ok(())
}

async fn recognises(bench: &Bench<'_>) -> Result<(), String> {
    for names in [&b"a"[..], b"abc"] {
        let claim = bench.claim(names, 1)?;
        for _ in 0..2 {
            voted("acquire, sent twice", bench.backend.acquire(&claim).await, Vote::Granted)?;
        }
        bench.clear().await;
    }
    Ok(())
}

async fn expires(bench: &Bench<'_>) -> Result<(), String> {
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    voted("acquire", bench.backend.acquire(&theirs).await, Vote::Granted)?;
    bench.testbed.expire(bench.key(b'a')?.as_bytes()).await;
    voted("acquire after expiry", bench.backend.acquire(&ours).await, Vote::Granted)?;
    voted("release after expiry", bench.backend.release(&theirs).await, Vote::Refused)?;
    let value = bench.value(b'a').await?;
    ensure!(value.as_deref() == Some(ours.token().as_bytes()), "the new holder was removed");
    Ok(())
}

/// Not what the testbed does to a key, but what the backend asked for.
async fn ends(bench: &Bench<'_>) -> Result<(), String> {
    let ttl = Duration::from_millis(20);
    let short = Ttl::try_from(ttl).map_err(|error| error.to_string())?;
    for names in [&b"a"[..], b"ab"] {
        let (ours, theirs) = (bench.claim(names, 1)?, bench.claim(names, 2)?);
        let theirs = theirs.with_ttl(short);
        for extended in [false, true] {
            voted("acquire", bench.backend.acquire(&theirs).await, Vote::Granted)?;
            if extended {
                // It may have ended already, where the node is far away.
                bench.backend.extend(&theirs).await.map_err(|error| format!("extend: {error}"))?;
            }
            bench.testbed.pass(ttl + ttl).await;
            voted("extend of what has ended", bench.backend.extend(&theirs).await, Vote::Refused)?;
            voted(
                "release of what has ended",
                bench.backend.release(&theirs).await,
                Vote::Refused,
            )?;
            voted("acquire of what has ended", bench.backend.acquire(&ours).await, Vote::Granted)?;
            voted("release", bench.backend.release(&ours).await, Vote::Granted)?;
        }
    }
    Ok(())
}

async fn releases(bench: &Bench<'_>) -> Result<(), String> {
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    voted("release of a free key", bench.backend.release(&ours).await, Vote::Refused)?;
    voted("acquire", bench.backend.acquire(&theirs).await, Vote::Granted)?;
    voted("release by another", bench.backend.release(&ours).await, Vote::Refused)?;
    ensure!(bench.value(b'a').await?.is_some(), "another removed the holder's key");
    voted("release", bench.backend.release(&theirs).await, Vote::Granted)?;
    ensure!(bench.value(b'a').await?.is_none(), "the key is still there");
    voted("release again", bench.backend.release(&theirs).await, Vote::Refused)?;
    Ok(())
}

async fn extends(bench: &Bench<'_>) -> Result<(), String> {
    for names in [&b"a"[..], b"ab"] {
        let claim = bench.claim(names, 1)?;
        let ttl = |factor: u32| Ttl::try_from(TTL * factor).map_err(|error| error.to_string());
        voted("acquire", bench.backend.acquire(&claim).await, Vote::Granted)?;
        let longer = bench.backend.extend(&claim.with_ttl(ttl(3)?)).await;
        voted("extend", longer, Vote::Granted)?;
        for name in names {
            let left = bench.time_left(*name).await?;
            ensure!(left > TTL * 2 && left <= TTL * 3, "extended to {left:?}");
        }
        voted("extend by less", bench.backend.extend(&claim).await, Vote::Granted)?;
        let left = bench.time_left(b'a').await?;
        ensure!(left > TTL * 2, "a shorter extension left {left:?}");
        voted("acquire, sent twice", bench.backend.acquire(&claim).await, Vote::Granted)?;
        let left = bench.time_left(b'a').await?;
        ensure!(left > TTL * 2, "an acquire that came again left {left:?}");
        bench.clear().await;
    }
    Ok(())
}

async fn extends_only_ours(bench: &Bench<'_>) -> Result<(), String> {
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    voted("extend of a free key", bench.backend.extend(&ours).await, Vote::Refused)?;
    ensure!(bench.value(b'a').await?.is_none(), "an extension brought the key back");
    voted("acquire", bench.backend.acquire(&theirs).await, Vote::Granted)?;
    voted("extend by another", bench.backend.extend(&ours).await, Vote::Refused)?;
    let both = bench.claim(b"ab", 2)?;
    voted("extend, one key missing", bench.backend.extend(&both).await, Vote::Refused)?;
    ensure!(bench.value(b'b').await?.is_none(), "an extension brought the key back");
    let other = bench.claim(b"b", 1)?;
    voted("acquire", bench.backend.acquire(&other).await, Vote::Granted)?;
    let longer = Ttl::try_from(TTL * 3).map_err(|error| error.to_string())?;
    let longer = bench.backend.extend(&both.with_ttl(longer)).await;
    voted("extend, one key another's", longer, Vote::Refused)?;
    for name in *b"ab" {
        let left = bench.time_left(name).await?;
        ensure!(left <= TTL, "an extension that was refused left {left:?}");
    }
    Ok(())
}

async fn all_or_none(bench: &Bench<'_>) -> Result<(), String> {
    let (ours, theirs) = (bench.claim(b"abc", 1)?, bench.claim(b"b", 2)?);
    voted("acquire", bench.backend.acquire(&theirs).await, Vote::Granted)?;
    voted("acquire, one key taken", bench.backend.acquire(&ours).await, Vote::Refused)?;
    for name in *b"ac" {
        ensure!(bench.value(name).await?.is_none(), "a part of the keys was taken");
    }
    voted("release", bench.backend.release(&theirs).await, Vote::Granted)?;
    voted("acquire", bench.backend.acquire(&ours).await, Vote::Granted)?;
    for name in *b"abc" {
        let left = bench.time_left(name).await?;
        ensure!(left <= TTL && left > TTL / 2, "of {TTL:?}, {left:?} are left");
    }
    bench.testbed.expire(bench.key(b'b')?.as_bytes()).await;
    voted("acquire", bench.backend.acquire(&theirs).await, Vote::Granted)?;
    voted("release, one key gone", bench.backend.release(&ours).await, Vote::Refused)?;
    for name in *b"ac" {
        ensure!(bench.value(name).await?.is_none(), "a key of ours was left");
    }
    ensure!(bench.value(b'b').await?.is_some(), "a key of somebody else was removed");
    Ok(())
}

async fn binary(bench: &Bench<'_>) -> Result<(), String> {
    for name in [vec![0, b'\r', b'\n', 0xff, b' ', b'"'], vec![b'x'; Resource::MAX_LEN]] {
        let claim = claim(vec![key(&name)?], 1, TTL)?;
        bench.testbed.expire(&name).await;
        voted("acquire", bench.backend.acquire(&claim).await, Vote::Granted)?;
        let value = bench.testbed.value(&name).await;
        ensure!(value.as_deref() == Some(claim.token().as_bytes()), "the key is another");
        voted("extend", bench.backend.extend(&claim).await, Vote::Granted)?;
        voted("release", bench.backend.release(&claim).await, Vote::Granted)?;
    }
    Ok(())
}

async fn wrong_type(bench: &Bench<'_>) -> Result<(), String> {
    for names in [&b"a"[..], b"ab"] {
        bench.put_list(&bench.key(b'a')?).await;
        let claim = bench.claim(names, 1)?;
        for seen in [bench.backend.acquire(&claim).await, bench.backend.extend(&claim).await] {
            let kind = seen.as_ref().err().map(BackendError::kind);
            ensure!(kind == Some(BackendErrorKind::WrongType), "{seen:?}");
        }
        ensure!(bench.value(b'b').await?.is_none(), "a part of the keys was taken");
        // Not ours, or unknown: both are true.
        let seen = bench.backend.release(&claim).await;
        ensure!(!matches!(seen, Ok(Vote::Granted)), "released: {seen:?}");
        bench.clear().await;
    }
    Ok(())
}

async fn one_of_many(bench: &Bench<'_>) -> Result<(), String> {
    let claims: Result<Vec<Claim>, String> = (1..=16).map(|n| bench.claim(b"ab", n)).collect();
    let votes = join_all(claims?.iter().map(|claim| bench.backend.acquire(claim))).await;
    let granted = votes.iter().filter(|vote| matches!(vote, Ok(Vote::Granted))).count();
    let refused = votes.iter().filter(|vote| matches!(vote, Ok(Vote::Refused))).count();
    ensure!((granted, refused) == (1, 15), "{granted} granted and {refused} refused of 16");
    Ok(())
}

async fn forgotten(bench: &Bench<'_>) -> Result<(), String> {
    for names in [&b"a"[..], b"ab"] {
        let claim = bench.claim(names, 1)?;
        bench.testbed.forget_scripts().await;
        voted("acquire", bench.backend.acquire(&claim).await, Vote::Granted)?;
        bench.testbed.forget_scripts().await;
        voted("acquire again", bench.backend.acquire(&claim).await, Vote::Granted)?;
        bench.testbed.forget_scripts().await;
        voted("extend", bench.backend.extend(&claim).await, Vote::Granted)?;
        bench.testbed.forget_scripts().await;
        voted("release", bench.backend.release(&claim).await, Vote::Granted)?;
    }
    Ok(())
}

async fn dropped(bench: &Bench<'_>) -> Result<(), String> {
    let (given_up, other) = (bench.claim(b"a", 1)?, bench.claim(b"b", 2)?);
    for _ in 0..16 {
        // Polled once, then dropped; an answer may be there already.
        let _ = poll_immediate(pin!(bench.backend.acquire(&given_up))).await;
        voted("acquire", bench.backend.acquire(&other).await, Vote::Granted)?;
        voted("release", bench.backend.release(&other).await, Vote::Granted)?;
    }
    Ok(())
}

#[async_trait]
impl Testbed for MemoryNode {
    fn backend(&self) -> Arc<dyn LockBackend> {
        Arc::new(self.clone())
    }

    async fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.get(key) {
            Some(Value::String(value)) => Some(value),
            _ => None,
        }
    }

    async fn time_left(&self, key: &[u8]) -> Option<Duration> {
        Self::time_left(self, key)
    }

    async fn expire(&self, key: &[u8]) {
        Self::expire(self, key);
    }

    async fn pass(&self, time: Duration) {
        Self::pass(self, time).await;
    }

    async fn restart(&self) -> bool {
        self.save();
        self.restart_from_save();
        true
    }

    async fn put_list(&self, key: &[u8]) {
        self.put(key, Value::List);
    }
}

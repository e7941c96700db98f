//! Plain locks: acquire, extend and release.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{join_all, poll_immediate};
use quorate_core::{BackendErrorKind, Claim, Resource, Vote};

use super::bench::{Bench, Checked, TTL, claim, failed, key, text, ttl, voted};
use super::ensure;

pub(super) async fn grants(bench: &Bench<'_>) -> Checked {
    let claim = bench.claim(b"a", 1)?;
    bench.must_acquire(&claim).await?;
    bench.must_hold(b'a', &claim).await?;
    bench.must_live(b"a").await
}

pub(super) async fn refuses(bench: &Bench<'_>) -> Checked {
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    bench.must_acquire(&theirs).await?;
    let longer = ours.with_ttl(ttl(TTL * 10)?);
    voted("acquire of a held key", bench.acquire(&longer).await, Vote::Refused)?;
    bench.must_live(b"a").await?;
    bench.must_hold(b'a', &theirs).await
}

/// A `SET NX` cannot tell its own token from another one, so that one key may be refused. Several
/// keys are repaired.
pub(super) async fn repairs(bench: &Bench<'_>) -> Checked {
    let one = bench.claim(b"a", 1)?;
    bench.must_acquire(&one).await?;
    bench.acquire(&one).await.map_err(text)?;
    bench.must_hold(b'a', &one).await?;
    bench.clear().await;
    let all = bench.claim(b"abc", 1)?;
    bench.must_acquire(&all).await?;
    voted("acquire, sent twice", bench.acquire(&all).await, Vote::Granted)?;
    bench.expire(b'b').await?;
    voted("acquire, one key gone", bench.acquire(&all).await, Vote::Granted)?;
    bench.must_hold(b'b', &all).await
}

/// By the ttl that the backend asked for, not by the testbed.
pub(super) async fn expires(bench: &Bench<'_>) -> Checked {
    let time = Duration::from_millis(20);
    for names in [&b"a"[..], b"ab"] {
        let (ours, theirs) = (bench.claim(names, 1)?, bench.claim(names, 2)?);
        let theirs = theirs.with_ttl(ttl(time)?);
        for is_extended in [false, true] {
            bench.must_acquire(&theirs).await?;
            if is_extended {
                // It may have expired already, if the node is far away.
                bench.extend(&theirs).await.map_err(text)?;
            }
            bench.testbed.pass(time + time).await;
            voted("extend after the ttl", bench.extend(&theirs).await, Vote::Refused)?;
            voted("release after the ttl", bench.release(&theirs).await, Vote::Refused)?;
            voted("acquire after the ttl", bench.acquire(&ours).await, Vote::Granted)?;
            bench.must_release(&ours).await?;
        }
    }
    Ok(())
}

pub(super) async fn releases(bench: &Bench<'_>) -> Checked {
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    voted("release of a free key", bench.release(&ours).await, Vote::Refused)?;
    bench.must_acquire(&theirs).await?;
    voted("release by another", bench.release(&ours).await, Vote::Refused)?;
    ensure!(bench.is_there(b'a').await?, "another token deleted the holder's key");
    bench.must_release(&theirs).await?;
    ensure!(!bench.is_there(b'a').await?, "the key is still there");
    voted("release again", bench.release(&theirs).await, Vote::Refused)
}

pub(super) async fn extends(bench: &Bench<'_>) -> Checked {
    for names in [&b"a"[..], b"ab"] {
        let claim = bench.claim(names, 1)?;
        bench.must_acquire(&claim).await?;
        let longer = claim.with_ttl(ttl(TTL * 3)?);
        voted("extend", bench.extend(&longer).await, Vote::Granted)?;
        for name in names {
            let left = bench.time_left(*name).await?;
            ensure!(left > TTL * 2 && left <= TTL * 3, "extended to {left:?}");
        }
        voted("extend by less", bench.extend(&claim).await, Vote::Granted)?;
        let left = bench.time_left(b'a').await?;
        ensure!(left > TTL * 2, "a shorter extension left {left:?}");
        bench.acquire(&claim).await.map_err(text)?;
        let left = bench.time_left(b'a').await?;
        ensure!(left > TTL * 2, "an acquire that came again left {left:?}");
        bench.clear().await;
    }
    Ok(())
}

pub(super) async fn extends_ours(bench: &Bench<'_>) -> Checked {
    let (ours, theirs) = (bench.claim(b"a", 1)?, bench.claim(b"a", 2)?);
    voted("extend of a free key", bench.extend(&ours).await, Vote::Refused)?;
    ensure!(!bench.is_there(b'a').await?, "an extension set the key");
    bench.must_acquire(&theirs).await?;
    voted("extend by another", bench.extend(&ours).await, Vote::Refused)?;
    let both = bench.claim(b"ab", 2)?;
    voted("extend, one key missing", bench.extend(&both).await, Vote::Refused)?;
    ensure!(!bench.is_there(b'b').await?, "an extension set the key");
    bench.must_acquire(&bench.claim(b"b", 1)?).await?;
    let longer = both.with_ttl(ttl(TTL * 3)?);
    voted("extend, one key of another", bench.extend(&longer).await, Vote::Refused)?;
    bench.must_live(b"ab").await
}

pub(super) async fn all_or_none(bench: &Bench<'_>) -> Checked {
    let (ours, theirs) = (bench.claim(b"abc", 1)?, bench.claim(b"b", 2)?);
    bench.must_acquire(&theirs).await?;
    voted("acquire, one key held", bench.acquire(&ours).await, Vote::Refused)?;
    for name in *b"ac" {
        ensure!(!bench.is_there(name).await?, "a part of the keys was set");
    }
    bench.must_release(&theirs).await?;
    bench.must_acquire(&ours).await?;
    bench.must_live(b"abc").await?;
    bench.expire(b'b').await?;
    bench.must_acquire(&theirs).await?;
    voted("release, one key gone", bench.release(&ours).await, Vote::Refused)?;
    for name in *b"ac" {
        ensure!(!bench.is_there(name).await?, "a key of ours was left");
    }
    ensure!(bench.is_there(b'b').await?, "a key of another holder was deleted");
    Ok(())
}

pub(super) async fn binary(bench: &Bench<'_>) -> Checked {
    for name in [vec![0, b'\r', b'\n', 0xff, b' ', b'"'], vec![b'x'; Resource::MAX_LEN]] {
        let claim = claim(vec![key(&name)?], 1)?;
        bench.testbed.expire(&name).await;
        bench.must_acquire(&claim).await?;
        let value = bench.testbed.value(&name).await;
        ensure!(value.as_deref() == Some(claim.token().as_bytes()), "the key has another name");
        voted("extend", bench.extend(&claim).await, Vote::Granted)?;
        bench.must_release(&claim).await?;
    }
    Ok(())
}

pub(super) async fn one_of_many(bench: &Bench<'_>) -> Checked {
    let claims: Result<Vec<Claim>, String> = (1..=16).map(|n| bench.claim(b"ab", n)).collect();
    let votes = join_all(claims?.iter().map(|claim| bench.acquire(claim))).await;
    let granted = votes.iter().filter(|vote| matches!(vote, Ok(Vote::Granted))).count();
    let refused = votes.iter().filter(|vote| matches!(vote, Ok(Vote::Refused))).count();
    ensure!((granted, refused) == (1, 15), "{granted} granted and {refused} refused of 16");
    Ok(())
}

pub(super) async fn forgotten(bench: &Bench<'_>) -> Checked {
    for names in [&b"a"[..], b"ab"] {
        let claim = bench.claim(names, 1)?;
        bench.testbed.forget_scripts().await;
        bench.must_acquire(&claim).await?;
        bench.testbed.forget_scripts().await;
        voted("extend", bench.extend(&claim).await, Vote::Granted)?;
        bench.testbed.forget_scripts().await;
        bench.must_release(&claim).await?;
    }
    Ok(())
}

pub(super) async fn dropped(bench: &Bench<'_>) -> Checked {
    let (dropped, other) = (bench.claim(b"a", 1)?, bench.claim(b"b", 2)?);
    drop(bench.acquire(&dropped));
    bench.must_acquire(&other).await?;
    ensure!(!bench.is_there(b'a').await?, "an acquire that was never polled was sent");
    bench.must_release(&other).await?;
    for _ in 0..16 {
        // Polled once, then dropped. It may be done by then.
        let _ = poll_immediate(pin!(bench.acquire(&dropped))).await;
        bench.must_acquire(&other).await?;
        bench.must_release(&other).await?;
    }
    Ok(())
}

pub(super) async fn another_type(bench: &Bench<'_>) -> Checked {
    for names in [&b"a"[..], b"ab"] {
        if !bench.put_list(bench.key(b'a')?.as_bytes()).await {
            return Ok(());
        }
        let claim = bench.claim(names, 1)?;
        let seen = bench.acquire(&claim).await;
        // A `SET NX` of one key cannot tell a list from a lock.
        if !(names.len() == 1 && matches!(seen, Ok(Vote::Refused))) {
            failed("acquire", seen, BackendErrorKind::WrongType)?;
        }
        failed("extend", bench.extend(&claim).await, BackendErrorKind::WrongType)?;
        ensure!(!bench.is_there(b'b').await?, "a part of the keys was set");
        // Not ours, or unknown: both are true.
        let seen = bench.release(&claim).await;
        ensure!(!matches!(seen, Ok(Vote::Granted)), "released: {seen:?}");
        bench.clear().await;
    }
    Ok(())
}

//! Looks at keys.

use quorate_core::{BackendError, BackendErrorKind, Holder, Inspect, Key, Vote};

use super::{Bench, TTL, ensure, voted};

pub(super) async fn at(bench: &Bench<'_>) -> Result<(), String> {
    let inspector = bench.backend.inspector().ok_or("the backend can look no more")?;
    let (a, b) = (bench.key(b'a')?, bench.key(b'b')?);
    let ours = bench.claim(b"ab", 1)?;
    let holder = Holder::new(ours.token().as_bytes());
    bench.testbed.forget_scripts().await;
    free("a free key", inspector, &a).await?;
    ensure!(bench.value(b'a').await?.is_none(), "a look has set the key");
    voted("acquire", bench.backend.acquire(&ours).await, Vote::Granted)?;
    for key in [&a, &b, &a] {
        let seen = inspector.inspect(key).await.map_err(|error| error.to_string())?;
        let seen = seen.ok_or("a taken key was seen as free")?;
        ensure!(seen.holder == holder, "the holder is another");
        let left = seen.time_left.ok_or("a key that ends was seen as one without an end")?;
        ensure!(bench.is_left(left, TTL), "of {TTL:?}, {left:?} were seen");
    }
    let left = bench.time_left(b'a').await?;
    ensure!(bench.is_left(left, TTL), "of {TTL:?}, a look left {left:?}");
    bench.testbed.expire(a.as_bytes()).await;
    free("an expired key", inspector, &a).await?;
    voted("release", bench.backend.release(&bench.claim(b"b", 1)?).await, Vote::Granted)?;
    free("a released key", inspector, &b).await?;
    if !bench.put_list(&a).await {
        return Ok(());
    }
    let seen = inspector.inspect(&a).await;
    let kind = seen.as_ref().err().map(BackendError::kind);
    ensure!(kind == Some(BackendErrorKind::WrongType), "a list: {seen:?}");
    Ok(())
}

async fn free(what: &str, inspector: &dyn Inspect, key: &Key) -> Result<(), String> {
    match inspector.inspect(key).await {
        Ok(None) => Ok(()),
        seen => Err(format!("{what}: {seen:?}")),
    }
}

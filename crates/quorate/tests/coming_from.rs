//! The right sides of the tables of the page *coming from* compile: each stands in `all`.

#![cfg(all(feature = "redis", feature = "tokio"))]
#![allow(clippy::print_stdout, clippy::tests_outside_test_module, reason = "code of users")]

use std::error::Error;
use std::time::Duration;

use quorate::{Lease, LockManager};

const PAGE: &str = include_str!("../docs/coming-from.md");

async fn work() {}

async fn report() -> Result<(), std::io::Error> {
    Ok(())
}

#[expect(dead_code, reason = "it is compiled")]
async fn all(
    uris: [&str; 3],
    (ttl, wait, hour): (Duration, Duration, Duration),
) -> Result<(), Box<dyn Error>> {
    let locks = LockManager::builder(quorate::redis::connect(uris)?).build()?;
    locks.with("orders:42", async |_lease| work().await).await?;
    locks.once_per("report", hour, async |_lease| report().await).await?;
    let led = locks.lead("scheduler", async |_lease| report().await).await?;
    led.transpose()?;

    let _none_if_held = locks.try_lock("orders:42").await?;
    let _held_is_an_error = locks.lock("orders:42").no_wait().auto_renew().await?;
    let _until_the_ttl = locks.lock("orders:42").ttl(ttl).await?;
    let _with_a_timeout = locks.lock("orders:42").timeout(wait).await?;
    let _both = locks.lock("orders:42").ttl(ttl).timeout(wait).await?;
    let _without_end = locks.lock("orders:42").ttl(ttl).wait_forever().await?;
    let _session = locks.lock("orders:42").ttl(ttl).wait_forever().auto_renew().await?;
    let _watchdog = locks.lock("orders:42").wait_forever().auto_renew().await?;
    let _several = locks.lock(["a", "b"]).ttl(ttl).await?;
    let _reads = locks.read("prices").wait_forever().auto_renew().await?;
    let _writes = locks.lock("prices").wait_forever().auto_renew().await?;
    let _permit = locks.permit("api", 5).wait_forever().auto_renew().await?;
    let _session = locks.permit("api", 5).ttl(ttl).wait_forever().auto_renew().await?;
    let _until_then = locks.permit("api", 5).ttl(ttl).await?;
    let _two = locks.permit("api", 5).several(2).await?;

    let _fenced = locks.lock("orders:42").wait_forever().auto_renew().with_token().await?;
    let _etcd = locks.lock("orders:42").ttl(ttl).wait_forever().auto_renew().with_token().await?;
    let (guard, token) = locks.lock("orders:42").with_token().await?;
    println!("{:?} {token:?}", guard.keys());
    println!("{:?} {:?}", guard.remaining(), guard.valid_until());
    guard.auto_renew();
    guard.extend().await?;
    guard.extend_to(ttl).await?;
    let lease: Lease = guard.lease();
    println!("{} {} {}", lease.is_valid(), lease.lost().await, guard.lost().await);
    if let Err(error) = locks.lock("orders:42").await {
        println!("{}", error.is_held());
    }
    guard.release().await?;
    println!("{}", locks.inspect("orders:42").await?);
    println!("{} {}", locks.revoke("orders:42").await?, locks.delete("orders:42").await?);

    let text = "web-3";
    let _labelled = LockManager::builder(quorate::redis::connect(uris)?).label(text).build()?;
    Ok(())
}

#[test]
fn the_right_sides_of_the_tables_are_compiled() {
    let compiled = include_str!("coming_from.rs");
    let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
    let rows = rows.map(|row| row.replace("\\|", "¦"));
    let rights = rows.filter_map(|row| Some(row.split('|').nth(2)?.replace('¦', "|")));
    let mut seen = 0;
    for cell in rights {
        for code in cell.split('`').skip(1).step_by(2).filter(|code| code.contains('(')) {
            assert!(compiled.contains(code), "{code}");
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen}");
}

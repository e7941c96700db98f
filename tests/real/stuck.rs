//! A connection whose peer acknowledges and never answers.

use std::time::Duration;

use futures_util::future::join_all;
use quorate_tests::wait::until;
use quorate_tests::{Nodes, Proxy};

use crate::client::{Client, Settings, accepted, all_have, nothing_is_left, on_tokio, unhurried};

/// For the oldest command without a reply.
const REPLY_LIMIT: Duration = Duration::from_secs(1);

/// Two of three flows get stuck under a lock that is renewed: before a reply, and within one. The renewals go on over
/// new connections before the lease ends.
#[test]
fn a_renewed_lock_outlives_the_connections_that_never_answer() {
    const BETWEEN_REPLIES: usize = 0;
    const WITHIN_A_REPLY: usize = 2;
    let cases = Client::ALL.into_iter();
    let cases = cases.flat_map(|client| [BETWEEN_REPLIES, WITHIN_A_REPLY].map(|at| (client, at)));
    on_tokio(join_all(cases.map(async |(client, bytes)| {
        let place = format!("{client:?}, after {bytes} bytes");
        let nodes = Nodes::start(3);
        let proxies: Vec<_> = nodes.iter().map(|node| Proxy::start(node.port())).collect();
        let addresses: Vec<_> = proxies.iter().map(Proxy::address).collect();
        let settings = Settings { reply_limit: REPLY_LIMIT, ..Settings::default() };
        let builder = unhurried(client.connect_with(&addresses, &settings));
        let manager = builder.renew_interval(Duration::from_millis(100)).build().unwrap();
        let guard = manager.lock("held").auto_renew().await.unwrap();
        all_have(&nodes, "held").await;
        proxies[..2].iter().for_each(|proxy| proxy.stick_after(bytes));
        // Each look is a connection as well.
        let (before, mut looks) = ([0, 1].map(|at| accepted(&nodes[at])), 0);
        until(&place, || {
            looks += 1;
            [0, 1].map(|at| accepted(&nodes[at]) > before[at] + looks) == [true; 2]
        })
        .await;
        let valid_until = guard.valid_until();
        until(&place, || guard.valid_until() > valid_until).await;
        assert!(guard.is_valid(), "{place}");
        guard.release().await.unwrap_or_else(|error| panic!("{place}: {error}"));
        let next = manager.lock("held").no_wait().await;
        next.unwrap_or_else(|error| panic!("{place}: {error}")).release().await.unwrap();
        nothing_is_left(&nodes).await;
    })));
}

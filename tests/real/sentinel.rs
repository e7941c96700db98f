//! The primary of a Sentinel group as a node: it is found again after a failover.

use std::fs;
use std::future::{IntoFuture as _, ready};
use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures_util::future::{Either, join_all, select};
use quorate::backend::Vote;
use quorate::redis::redis::{ClientTlsConfig, TlsCertificates};
use quorate::redis::{Credentials, builder};
use quorate::{BackendErrorKind as Kind, LockManager, LockManagerBuilder, RestartGuard};
use quorate_tests::peer::{Answer, Peer};
use quorate_tests::wait::{LIMIT, LONG_TTL, until, until_it_says, within_limit};
use quorate_tests::{Authority, Certificate, Nodes, RedisServer, Reply};

use crate::calls::{acquire, acquire_in_the_end, claim, release};
use crate::client::{on_tokio, only_error, unhurried, unreachable, warm_up};
use crate::guard::is_quarantined;

/// A primary, a replica, and the one sentinel that looks at both.
struct Group {
    primary: RedisServer,
    replica: RedisServer,
    sentinel: RedisServer,
}

impl Group {
    async fn start() -> Self {
        let primary = RedisServer::start();
        let replica = RedisServer::builder().replica_of(primary.port()).start();
        replica.wait_until_in_sync();
        let sentinel = RedisServer::builder().sentinel_of("orders", primary.port()).start();
        let group = Self { primary, replica, sentinel };
        until("a replica that the sentinel knows", || group.has_replica()).await;
        group
    }

    /// Whether the sentinel sees a replica that is linked to the primary.
    fn has_replica(&self) -> bool {
        let replicas = self.sentinel.cli(&["SENTINEL", "REPLICAS", "orders"]);
        replicas.array().into_iter().any(|replica| {
            let fields: Vec<String> = replica.array().iter().map(Reply::text).collect();
            let is = |name: &str, value: &str| fields.chunks(2).any(|it| it == [name, value]);
            is("flags", "slave") && is("master-link-status", "ok")
        })
    }

    /// Returns when the sentinel names the replica, which has taken over because an operator says so.
    async fn replace(&self) {
        until("a failover that begins", || {
            self.sentinel.cli(&["SENTINEL", "FAILOVER", "orders"]).error().is_none()
        })
        .await;
        self.until_replaced().await;
    }

    async fn until_replaced(&self) {
        let port = self.replica.port().to_string();
        let named = || self.sentinel.cli(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "orders"]);
        until("the new primary", || named().array()[1].text() == port).await;
    }

    /// The group behind a sentinel that is dead, and the one that is not.
    fn builder(&self) -> LockManagerBuilder {
        let sentinels = [format!("redis://{}", Peer::nowhere()), self.sentinel.address()];
        let node = builder().connect_timeout(LIMIT).sentinel("redis://orders/2", sentinels);
        unhurried([node.unwrap()])
    }

    /// The primary dies, or the sentinel is asked to replace it. Returns when the replica has taken over, and the sentinel
    /// says so. Until then, the old primary grants locks that the new one does not have.
    async fn fail_over(&self, is_killed: bool) {
        if is_killed {
            self.primary.kill();
            self.until_replaced().await;
        } else {
            self.replace().await;
        }
        // The sentinel ends the connections of each server whose role it changes: that of the new primary has changed.
        let has_replica = || self.replica.info("connected_slaves") == "1";
        until("the old primary as a replica", || is_killed || has_replica()).await;
    }
}

/// Whether the command has found its key on the server, in the database of the node.
fn finds(server: &RedisServer, command: &[&str]) -> bool {
    let mut connection = server.connect();
    connection.command(&["SELECT", "2"]).unwrap();
    connection.command(command).unwrap().integer() == 1
}

/// Locks after some tries: a sentinel may not have reported the failover yet.
async fn lock(manager: &LockManager, name: &str) {
    until_it_says("a lock", async || match manager.lock(name).no_wait().await {
        Ok(guard) => {
            std::mem::forget(guard);
            true
        }
        Err(error) => {
            assert!(!error.is_held(), "{error}");
            false
        }
    })
    .await;
}

#[test]
fn the_primary_of_a_group_is_found_again_after_a_failover() {
    on_tokio(join_all([false, true].map(async |is_killed| {
        let group = Group::start().await;
        let manager = group.builder().build().unwrap();
        lock(&manager, "before").await;
        assert!(finds(&group.primary, &["EXISTS", "before"]));
        let name = manager.readiness().nodes()[0].name.to_string();
        assert!(name.starts_with("orders@127.0.0.1:") && name.ends_with("/2"), "{name}");
        group.fail_over(is_killed).await;
        lock(&manager, "after").await;
        assert!(finds(&group.replica, &["EXISTS", "after"]));
        manager.try_lock("once more").await.unwrap().unwrap().release().await.unwrap();
    })));
}

#[test]
fn a_failover_is_seen_by_the_restart_guard() {
    on_tokio(async {
        let group = Group::start().await;
        let guard = RestartGuard::strict(LONG_TTL);
        let builder = group.builder().node_timeout(LONG_TTL / 3).restart_guard(guard);
        let manager = builder.build().unwrap();
        // The quarantine has its key in the database of the node.
        is_quarantined(&manager).await;
        let key = quorate_tests::keys::QUARANTINE;
        assert!(finds(&group.primary, &["PEXPIRE", key, "0"]));
        warm_up(&manager).await;
        group.fail_over(true).await;
        is_quarantined(&manager).await;
    });
}

/// A peer that is a sentinel, and says that the primary is there.
fn sentinel_that_says(port: u16) -> Peer {
    sentinel_that_names("127.0.0.1", port)
}

fn sentinel_that_names(host: &str, port: u16) -> Peer {
    let (length, port) = (host.len(), port.to_string());
    sentinel_that_replies(format!("*2\r\n${length}\r\n{host}\r\n${}\r\n{port}\r\n", port.len()))
}

/// A peer that replies so to each question of a sentinel's.
fn sentinel_that_replies(reply: impl Into<String>) -> Peer {
    let reply: &'static [u8] = reply.into().into_bytes().leak();
    Peer::start(move |heard| match heard.name().eq_ignore_ascii_case("SENTINEL") {
        true => Answer::Say(reply),
        false => Answer::Usual,
    })
}

/// The manager of the group behind these sentinels.
fn manager(sentinels: impl IntoIterator<Item = String>) -> LockManager {
    let node = builder().connect_timeout(LIMIT).sentinel("orders", sentinels).unwrap();
    unhurried([node]).build().unwrap()
}

#[test]
fn a_server_that_is_no_primary_is_not_locked_on_and_another_sentinel_is_asked() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(primary.port()).start();
    replica.wait_until_in_sync();
    let [stale, current] = [&replica, &primary].map(|server| sentinel_that_says(server.port()));
    on_tokio(async {
        let misled = manager([stale.url()]);
        let failure = unreachable(misled.lock("r").no_wait().await);
        let error = only_error(&failure);
        assert_eq!(error.kind(), Kind::Connection);
        assert!(error.to_string().contains("no primary"), "{error}");
        let both = manager([stale.url(), current.url()]);
        both.lock("r").await.unwrap().release().await.unwrap();
    });
}

/// Alone it ends no request, and beside another sentinel, in either order, it is passed over.
#[test]
fn what_is_wrong_with_a_sentinel_is_not_wrong_with_its_primary() {
    let primary = RedisServer::start();
    let current = sentinel_that_says(primary.port());
    let nowhere = Peer::nowhere().port().to_string();
    let gone = format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{nowhere}", nowhere.len());
    for (reply, reason) in [
        ("-NOAUTH Authentication required.", "NOAUTH"),
        ("-NOPERM no permissions to run the 'sentinel' command", "NOPERM"),
        ("-ERR unknown command 'SENTINEL'", "unknown command"),
        ("-LOADING Redis is loading the dataset in memory", "LOADING"),
        ("-WRONGTYPE", "WRONGTYPE"),
        ("_", "it knows no group"),
        ("*0", "the reply is no address"),
        (":1", "the reply is no address"),
        ("*2\r\n$9\r\n127.0.0.1\r\n$5\r\n99999", "the reply is no address"),
        (&gone, "refused"),
    ] {
        let wrong = sentinel_that_replies(format!("{reply}\r\n"));
        on_tokio(async {
            let failure = unreachable(manager([wrong.url()]).lock("r").no_wait().await);
            let error = only_error(&failure);
            assert!(error.is_not_sent() && error.to_string().contains(reason), "{error}");
            // The last one has named a server, which is told of.
            let name = wrong.url().replace("redis://", "sentinel ") + ": ";
            assert!(reason == "refused" || error.to_string().contains(&name), "{error}");
            assert_eq!(error.kind(), Kind::Connection, "{error}");
            assert!(!failure.is_permanent(), "{failure}");
            for sentinels in [[&wrong, &current], [&current, &wrong]] {
                let guard = manager(sentinels.map(Peer::url)).lock("r").no_wait().await.unwrap();
                guard.release().await.unwrap();
            }
        });
    }
}

/// The address of a group finds its primary, with a login for the servers and another one for the sentinels, over TCP and
/// over TLS with certificates for both sides. A sentinel that is dead comes first.
#[test]
fn a_group_has_an_address() {
    let authority = Authority::create();
    let open = || RedisServer::builder().tls_of(&authority);
    let primary = open().user("locker", "on >s3rver ~* +@all").start();
    let sentinel = |port| {
        let is_tls = if port == primary.port() { "no" } else { "yes" };
        let sentinel = open().config("tls-replication", &[is_tls]);
        sentinel.user("default", "on >s3ntinel ~* +@all").sentinel_of("orders", port).start()
    };
    let (plain, tls) = (sentinel(primary.port()), sentinel(primary.tls_port()));
    let login = "sentinel_username=default&sentinel_password=s3ntinel";
    let dead = Peer::nowhere();
    let addresses = [
        format!("redis+sentinel://locker:s3rver@{dead},127.0.0.1:{}/orders?{login}", plain.port()),
        format!(
            "rediss+sentinel://locker:s3rver@{dead},localhost:{}/orders?{login}",
            tls.tls_port()
        ),
    ];
    let Certificate { cert, key } = authority.certify("client");
    let [root_cert, client_cert, client_key] =
        [&authority.ca(), &cert, &key].map(|file| fs::read(file).unwrap());
    let client_tls = Some(ClientTlsConfig { client_cert, client_key });
    let certificates = TlsCertificates { client_tls, root_cert: Some(root_cert) };
    on_tokio(async {
        for address in addresses {
            let manager = |address: &str| {
                let nodes = builder().connect_timeout(LIMIT).tls(certificates.clone());
                unhurried(nodes.connect([address]).unwrap()).build().unwrap()
            };
            let locks = manager(&address);
            lock(&locks, &address).await;
            assert_eq!(primary.get(&address).map(|_| ()), Some(()), "{address}");
            let name = locks.readiness().nodes()[0].name.to_string();
            assert_eq!(name, format!("orders@{dead}"));
            for secret in ["s3ntinel", "s3rver"] {
                let wrong = address.replace(secret, "hunter2");
                let failure = unreachable(manager(&wrong).lock("r").no_wait().await);
                let text = format!("{failure} {failure:?}");
                assert!(text.contains("WRONGPASS") && !text.contains("hunter2"), "{text}");
                assert_eq!(failure.is_permanent(), secret == "s3rver", "{text}");
            }
        }
    });
}

/// Sentinels name servers by IP address, unless they are set to names.
#[test]
fn a_certificate_without_the_name_that_sentinels_use_is_explained() {
    let authority = Authority::by_name();
    let primary = RedisServer::builder().tls_of(&authority).config("tls-auth-clients", &["no"]);
    let primary = primary.start();
    let [by_address, by_name] =
        ["127.0.0.1", "localhost"].map(|host| sentinel_that_names(host, primary.tls_port()));
    let root_cert = Some(fs::read(authority.ca()).unwrap());
    let certificates = TlsCertificates { client_tls: None, root_cert };
    on_tokio(async {
        let manager = |sentinel: &Peer| {
            let node = builder().connect_timeout(LIMIT).tls(certificates.clone());
            let node = node.sentinel("rediss://orders", [sentinel.url()]).unwrap();
            unhurried([node]).build().unwrap()
        };
        let failure = unreachable(manager(&by_address).lock("r").no_wait().await);
        let text = only_error(&failure).to_string();
        let what =
            "the certificate of the primary does not have \"127.0.0.1\", which the sentinels name";
        assert!(text.starts_with(what) && text.contains("announce-hostnames"), "{text}");
        manager(&by_name).lock("r").await.unwrap().release().await.unwrap();
    });
}

/// Two of three sentinels take connections and say nothing: one from the start, one when it is asked. The limit is so
/// long that none of them is waited for.
#[test]
fn silent_sentinels_delay_no_connection() {
    let group = Nodes::start(1);
    let silent = Peer::with_handshake(|_| Answer::Say(b""));
    let hangs = sentinel_that_replies("");
    let speaks = sentinel_that_says(group[0].port());
    on_tokio(async {
        let sentinels = [silent.url(), hangs.url(), speaks.url()];
        let node = builder().connect_timeout(100 * LIMIT).sentinel("orders", sentinels).unwrap();
        let manager = unhurried([node]).build().unwrap();
        let locked = within_limit("a lock", manager.lock("r").into_future()).await.unwrap();
        locked.release().await.unwrap();
    });
}

/// It was cut off, and names the primary of before. An acquire in flight would be lost with its connection, and could be
/// executed behind the release that undoes it.
#[test]
fn c3_one_stale_sentinel_ends_no_connection_to_a_primary_that_hangs() {
    let primary = RedisServer::start();
    let (stale, current) = (sentinel_that_says(1), sentinel_that_says(primary.port()));
    on_tokio(async {
        let [one, other] = [&current, &stale].map(|peer| peer.url().replace("redis://", ""));
        let address = [format!("redis+sentinel://{one},{other}/orders")];
        let nodes = builder().connect_timeout(LIMIT).reply_limit(100 * LIMIT);
        let (node, claim) = (nodes.connect(address).unwrap().remove(0), claim("r"));
        acquire_in_the_end(&node, &claim).await;
        assert_eq!(release(&node, &claim).await.unwrap(), Vote::Granted);
        primary.pause();
        let asked = || current.heard("SENTINEL") + stale.heard("SENTINEL");
        let before = asked();
        let resumed = async {
            // Both are asked at once, and again when their answers have been read.
            until("a second round", || asked() >= before + 3).await;
            primary.resume();
        };
        match select(pin!(acquire(&node, &claim)), pin!(resumed)).await {
            Either::Left((early, _)) => panic!("it settled before its reply: {early:?}"),
            Either::Right(((), acquired)) => assert_eq!(acquired.await.unwrap(), Vote::Granted),
        }
        assert_eq!(release(&node, &claim).await.unwrap(), Vote::Granted);
        assert_eq!(primary.keys(), [""; 0]);
    });
}

/// Nothing else ends the call: neither a node timeout nor a limit for its reply comes here. The answer to the first
/// questions is that nothing has moved.
#[test]
fn a_lock_in_flight_is_granted_by_the_next_primary() {
    on_tokio(async {
        let group = Group::start().await;
        // It knows no group, and counts the questions.
        let witness = sentinel_that_replies("_\r\n");
        let sentinels = [group.sentinel.address(), witness.url()].join(",").replace("redis://", "");
        let address = [format!("redis+sentinel://{sentinels}/orders/2")];
        let node = builder().connect_timeout(LIMIT).reply_limit(100 * LIMIT);
        let manager = unhurried(node.connect(address).unwrap());
        let manager = manager.node_timeout(LONG_TTL / 3).build().unwrap();
        lock(&manager, "before").await;
        // The primary stops without a word, and the sentinel does not find that out.
        let never = ["SENTINEL", "SET", "orders", "down-after-milliseconds", "3600000"];
        assert_eq!(group.sentinel.cli(&never).error(), None);
        group.primary.pause();
        let asked = witness.heard("SENTINEL");
        let waits = tokio::spawn(manager.lock("after").into_future());
        until("several questions", || witness.heard("SENTINEL") > asked + 3).await;
        group.replace().await;
        let guard = within_limit("the lock", waits).await.unwrap().unwrap();
        assert!(finds(&group.replica, &["EXISTS", "after"]));
        guard.release().await.unwrap();
        group.primary.resume();
    });
}

/// That of the primary is asked for. A sentinel has the one in its own address.
#[test]
fn a6_a_login_that_is_asked_for_is_not_told_to_a_sentinel() {
    let primary = RedisServer::builder().user("locker", "on >hunter2 ~* &* +@all").start();
    let (says, told) = (sentinel_that_says(primary.port()), Arc::<Mutex<Vec<String>>>::default());
    let line = Arc::clone(&told);
    let sentinel = Peer::with_handshake(move |heard| {
        line.lock().unwrap().extend(heard.words.iter().cloned());
        match heard.name() {
            "HELLO" | "AUTH" => Answer::Usual,
            _ => Answer::HangUp,
        }
    });
    on_tokio(async {
        let login = |_| ready(Ok::<_, String>(Credentials::new("locker", "hunter2")));
        let node = builder().connect_timeout(LIMIT).credentials(login);
        let node = node.sentinel("redis://orders", [sentinel.url(), says.url()]).unwrap();
        let manager = unhurried([node]).build().unwrap();
        lock(&manager, "r").await;
        until("a sentinel that has heard", || !told.lock().unwrap().is_empty()).await;
    });
    let told = told.lock().unwrap();
    assert!(!told.iter().any(|word| word.contains("hunter2")), "{told:?}");
}

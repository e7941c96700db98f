//! Nodes that are reached over TLS.

use std::fs;
use std::future::ready;
use std::process::{Command, Output};

use quorate::fred::fred::rustls::pki_types::pem::PemObject as _;
use quorate::fred::fred::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use quorate::fred::fred::rustls::{ClientConfig, RootCertStore};
use quorate::fred::fred::types::config::{Config, TlsConnector};
use quorate::redis::redis::{Client, ClientTlsConfig, TlsCertificates};
use quorate::redis::{ConnectError, IntoDial as _};
use quorate_tests::wait::{LIMIT, LONG_TTL, within_limit};
use quorate_tests::{Authority, RedisServer, TEST_CA};

use crate::client::{Client as QuorateClient, calls, on_tokio, unhurried, unreachable};

fn nodes(versions: &str) -> Vec<RedisServer> {
    let builder = RedisServer::builder().tls().config("tls-protocols", &[versions]);
    (0..3).map(|_| builder.clone().start()).collect()
}

/// fred locks twice in a process of its own, which trusts the authority of the tests.
fn locks_by_fred(nodes: &[RedisServer]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_program"));
    program.env("SSL_CERT_FILE", TEST_CA).env_remove("SSL_CERT_DIR");
    program.args(["last-guard", "multi-thread", "fred", &LONG_TTL.as_secs().to_string()]);
    program.args(nodes.iter().map(RedisServer::tls_address)).output().unwrap()
}

/// redis-rs is given the authority: where both kinds of TLS are compiled in, it trusts none by itself. fred trusts
/// those of the system.
#[test]
fn a_lock_is_taken_over_each_version_of_tls() {
    let versions = ["TLSv1.2", "TLSv1.3"];
    for (client, version) in
        QuorateClient::ALL.into_iter().flat_map(|client| versions.map(|version| (client, version)))
    {
        let nodes = nodes(version);
        if client == QuorateClient::Fred {
            let output = locks_by_fred(&nodes);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        } else {
            let clients = nodes.iter().map(|node| {
                let root_cert = Some(fs::read(TEST_CA).unwrap());
                let certificates = TlsCertificates { client_tls: None, root_cert };
                Client::build_with_tls(node.tls_address(), certificates).unwrap()
            });
            on_tokio(async {
                let manager = unhurried(quorate::redis::connect(clients).unwrap()).build().unwrap();
                manager.lock("r").await.unwrap().release().await.unwrap();
            });
        }
        let asked = nodes.iter().filter(|node| calls(node, "set") > 0).count();
        assert!(asked >= 2, "{client:?}, {version}: a quorum was asked");
    }
}

/// With a certificate that a client has of an authority, and another authority that it trusts.
fn certificates(client: Option<&Authority>, trusted: &Authority) -> TlsCertificates {
    let client_tls = client.map(|authority| authority.certify("client")).map(|own| {
        let [client_cert, client_key] = [own.cert, own.key].map(|file| fs::read(file).unwrap());
        ClientTlsConfig { client_cert, client_key }
    });
    TlsCertificates { client_tls, root_cert: Some(fs::read(trusted.ca()).unwrap()) }
}

/// The configuration of fred with these certificates.
fn config(address: &str, client: Option<&Authority>, trusted: &Authority) -> Config {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted.ca()).unwrap()).unwrap();
    let tls = ClientConfig::builder().with_root_certificates(roots);
    let tls = match client.map(|authority| authority.certify("client")) {
        Some(certificate) => {
            let chain = vec![CertificateDer::from_pem_file(certificate.cert).unwrap()];
            let key = PrivateKeyDer::from_pem_file(certificate.key).unwrap();
            tls.with_client_auth_cert(chain, key).unwrap()
        }
        None => tls.with_no_client_auth(),
    };
    Config { tls: Some(TlsConnector::from(tls).into()), ..Config::from_url(address).unwrap() }
}

/// Each ends a request that could wait for an hour, and says why.
#[test]
fn tls_that_no_waiting_heals_is_permanent_and_says_why() {
    let (authority, stranger) = (&Authority::create(), &Authority::create());
    let by_name = &Authority::by_name();
    for version in ["TLSv1.2", "TLSv1.3"] {
        let start = |authority| {
            RedisServer::builder().tls_of(authority).config("tls-protocols", &[version]).start()
        };
        let (server, named) = (start(authority), start(by_name));
        let by_address = named.tls_address().replace("localhost", "127.0.0.1");
        let without_tls = format!("rediss://127.0.0.1:{}", server.port());
        let own = Some(authority);
        let no_certificate =
            if version == "TLSv1.2" { "HandshakeFailure" } else { "CertificateRequired" };
        for (address, client_certificate, trusted, why) in [
            (server.tls_address(), own, stranger, "BadSignature"),
            (by_address, Some(by_name), by_name, "127.0.0.1"),
            (server.tls_address(), None, authority, no_certificate),
            (server.tls_address(), Some(stranger), authority, "UnknownCA"),
            (without_tls, own, authority, "speaks no TLS"),
        ] {
            for client in QuorateClient::ALL {
                let place = format!("{client:?}, {version}: {why}");
                let redis = || {
                    let certificates = certificates(client_certificate, trusted);
                    quorate::redis::builder().connect_timeout(LIMIT).tls(certificates)
                };
                let builder = match client {
                    QuorateClient::Redis => unhurried(redis().connect([&*address]).unwrap()),
                    QuorateClient::Pool => unreachable!("a pool makes its own connections"),
                    QuorateClient::Fred => {
                        let fred = quorate::fred::builder().connect_timeout(LIMIT);
                        let config = config(&address, client_certificate, trusted);
                        unhurried([fred.build(config).unwrap()])
                    }
                };
                on_tokio(async {
                    let request = builder.build().unwrap().lock("r").timeout(100 * LIMIT);
                    let failure = unreachable(within_limit(&place, request).await);
                    assert!(failure.is_permanent(), "{place}: {failure}");
                    assert!(failure.to_string().contains(why), "{place}: {failure}");
                });
            }
        }
    }
}

/// The address that is read after a refused login has no certificates of its own.
#[test]
fn the_certificates_of_a_builder_count_after_a_refusal() {
    let authority = Authority::create();
    let server = RedisServer::builder().tls_of(&authority);
    let server = server.user("default", "on >new ~* &* +@all").start();
    let with = |password| server.tls_address().replace("://", &format!("://:{password}@"));
    let (stale, right) = (with("old"), with("new"));
    let builder = quorate::redis::builder().connect_timeout(LIMIT);
    let builder = builder.tls(certificates(Some(&authority), &authority));
    let builder = builder.when_refused(move |_| ready(right.as_str().into_dial().ok()));
    let manager = unhurried(builder.connect([stale]).unwrap()).build().unwrap();
    on_tokio(async {
        manager.lock("r").await.unwrap().release().await.unwrap();
    });
}

#[test]
fn certificates_that_are_none_are_refused() {
    let authority = Authority::create();
    for break_it in [
        |it: &mut TlsCertificates| it.root_cert = Some(b"-----BEGIN CERTIFICATE-----\n".to_vec()),
        |it: &mut TlsCertificates| it.client_tls.as_mut().unwrap().client_key = b"no key".to_vec(),
    ] {
        let mut broken = certificates(Some(&authority), &authority);
        break_it(&mut broken);
        for address in ["rediss://a", "rediss+sentinel://a/b"] {
            let error =
                quorate::redis::builder().tls(broken.clone()).connect([address]).unwrap_err();
            assert!(matches!(error, ConnectError::InvalidCertificates { .. }), "{error}");
        }
        assert!(quorate::redis::builder().tls(broken).connect(["redis://a"]).is_ok(), "no TLS");
    }
}

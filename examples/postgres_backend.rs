//! A node on PostgreSQL, and the proof that it keeps the contract of a backend.
//!
//! A program that has one PostgreSQL needs no quorum: a row or an advisory lock there is simpler. This is for a program
//! with three independent databases, or as a pattern for a store of your own:
//! `cargo run -p quorate-postgres --example postgres_backend -- "host=10.0.0.1 user=locker" "host=10.0.0.2 user=locker" …`

#![expect(clippy::print_stdout, reason = "an example tells what happens")]

use std::borrow::Cow;
use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use quorate::backend::{
    AcquireOptions, Call, CallResult, Capabilities, Claim, ExtendOptions, Holder, Mode, Operation,
    ReleaseOptions, Reply, Vote, async_trait,
};
use quorate::memory::conformance::{self, Testbed};
use quorate::runtime::TokioRuntime;
use quorate::{BackendError, BackendErrorKind, FencingToken, LockBackend, LockManager, Runtime};
use tokio::sync::Mutex;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls};

/// A row per lock. It outlives the lock, for its fencing number. A call is one statement, so it changes all rows or none.
pub(crate) const TABLE: &str = "
CREATE TABLE IF NOT EXISTS quorate_lock (
    name bytea PRIMARY KEY, token bytea, expires timestamptz NOT NULL DEFAULT '-infinity',
    fence bigint NOT NULL DEFAULT 0 CHECK (fence < 1::bigint << 53));
CREATE OR REPLACE FUNCTION quorate_call(
    call text, names bytea[], own bytea, ttl bigint, number bigint,
    OUT granted bool, OUT fenced bigint, OUT holder bytea) LANGUAGE plpgsql AS $$
DECLARE
    at timestamptz; until timestamptz; ours bigint;
BEGIN
    names := ARRAY (SELECT sha256(n) FROM unnest(names) n); -- an index has no room for long ones
    IF call = 'acquire' THEN
        INSERT INTO quorate_lock (name) SELECT n FROM unnest(names) n ORDER BY n ON CONFLICT DO NOTHING;
    END IF;
    -- In one order, or two calls could wait for each other.
    PERFORM FROM quorate_lock WHERE name = ANY (names) ORDER BY name FOR UPDATE;
    at := clock_timestamp();
    until := at + ttl * interval '1 ms';
    SELECT count(*) FILTER (WHERE token = own), (array_agg(token) FILTER (WHERE token <> own))[1] INTO ours, holder
        FROM quorate_lock WHERE name = ANY (names) AND expires > at;
    SELECT max(fence) INTO fenced FROM quorate_lock WHERE name = ANY (names);
    granted := ours = cardinality(names);
    IF call = 'acquire' THEN
        granted := holder IS NULL;
        IF granted AND number IS NOT NULL AND ours < cardinality(names) THEN
            fenced := greatest(fenced + 1, number);
            UPDATE quorate_lock SET fence = fenced WHERE name = ANY (names);
        END IF;
        -- What is ours already may have been extended since.
        UPDATE quorate_lock SET token = own, expires = until
            WHERE granted AND name = ANY (names) AND (token = own AND expires > at) IS NOT TRUE;
    ELSIF call = 'extend' THEN
        UPDATE quorate_lock SET expires = greatest(expires, until) WHERE granted AND name = ANY (names);
    ELSIF call = 'raise' THEN
        granted := granted AND fenced <= number;
        UPDATE quorate_lock SET fence = number WHERE granted AND name = ANY (names);
    ELSE -- release
        UPDATE quorate_lock SET token = NULL, fence = greatest(fence, number)
            WHERE name = ANY (names) AND token = own AND expires > at;
    END IF;
    fenced := CASE WHEN call = 'acquire' AND number IS NOT NULL THEN fenced END;
END $$";

/// One database, on one connection, which is made again after it has ended.
#[derive(Clone, Debug)]
pub(crate) struct PostgresNode {
    config: Config,
    client: Arc<Mutex<Option<Arc<Client>>>>,
}

impl PostgresNode {
    pub(crate) fn new(config: &str) -> Result<Self, tokio_postgres::Error> {
        Ok(Self { config: config.parse()?, client: Arc::default() })
    }

    /// Creates the table. Run it once, as a migration.
    pub(crate) async fn create_table(&self) -> Result<(), Box<dyn Error>> {
        Ok(self.client().await?.batch_execute(TABLE).await?)
    }

    pub(crate) async fn client(&self) -> Result<Arc<Client>, BackendError> {
        let mut client = self.client.lock().await;
        if let Some(client) = client.as_ref().filter(|client| !client.is_closed()) {
            return Ok(Arc::clone(client));
        }
        let made = self.config.connect(NoTls).await;
        let (made, connection) = made.map_err(|error| failed(error).not_sent())?;
        tokio::spawn(connection);
        Ok(Arc::clone(client.insert(Arc::new(made))))
    }

    async fn call(
        &self,
        call: &str,
        claim: &Claim,
        number: Option<u64>,
    ) -> Result<Reply, BackendError> {
        let names: Vec<&[u8]> = claim.keys().iter().map(|key| key.as_bytes()).collect();
        let ttl = i64::try_from(claim.ttl().as_duration().as_millis()).unwrap_or(i64::MAX);
        let number = number.and_then(|number| i64::try_from(number).ok());
        let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
            (&call, Type::TEXT),
            (&names, Type::BYTEA_ARRAY),
            (&claim.token().as_bytes(), Type::BYTEA),
            (&ttl, Type::INT8),
            (&number, Type::INT8),
        ];
        let select = "SELECT granted, fenced, holder FROM quorate_call($1, $2, $3, $4, $5)";
        // One round trip. If it fails, the statement may have been executed.
        let rows = self.client().await?.query_typed(select, &parameters).await.map_err(failed)?;
        let row =
            rows.first().ok_or_else(|| BackendError::new(BackendErrorKind::Protocol, "no row"))?;
        if row.get(0) {
            let mut reply = Reply::new(Vote::Granted);
            reply.number =
                row.get::<_, Option<i64>>(1).map(i64::cast_unsigned).and_then(FencingToken::new);
            return Ok(reply);
        }
        let holder = row.get::<_, Option<Vec<u8>>>(2).map(Holder::new);
        Ok(holder.map_or(Reply::new(Vote::Refused), Reply::held_by))
    }
}

fn failed(error: tokio_postgres::Error) -> BackendError {
    let kind = match error.code() {
        Some(&SqlState::CHECK_VIOLATION) => BackendErrorKind::Fence,
        Some(&SqlState::INVALID_PASSWORD) => BackendErrorKind::Auth,
        Some(_) => BackendErrorKind::Other,
        None => BackendErrorKind::Connection,
    };
    let message = error.as_db_error().map_or_else(|| error.to_string(), DbError::to_string);
    BackendError::new(kind, message).with_source(error)
}

#[async_trait]
impl LockBackend for PostgresNode {
    fn name(&self) -> Cow<'_, str> {
        Cow::Owned(format!("postgres {:?}", self.config.get_hosts()))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::FENCING
    }

    async fn acquire(&self, claim: &Claim, options: AcquireOptions) -> Result<Reply, BackendError> {
        if claim.mode() == Mode::Shared {
            return Err(BackendError::unsupported("a row has one holder"));
        }
        if options.guard.is_some() {
            return Err(BackendError::unsupported("a database does not forget"));
        }
        self.call("acquire", claim, options.fencing.map(|hint| hint.get())).await
    }

    async fn extend(&self, claim: &Claim, _: ExtendOptions) -> Result<Reply, BackendError> {
        self.call("extend", claim, None).await
    }

    async fn release(&self, claim: &Claim, options: ReleaseOptions) -> Result<Reply, BackendError> {
        self.call("release", claim, options.raise_to.map(FencingToken::get)).await
    }

    async fn perform(&self, call: &Call) -> CallResult {
        match call.operation() {
            Operation::Raise(claim, number) => {
                Ok(self.call("raise", claim, Some(number.get())).await?.into())
            }
            _ => Err(BackendError::unsupported("a table keeps locks and fencing numbers")),
        }
    }
}

/// What the conformance suite does behind the backend's back.
#[async_trait]
impl Testbed for PostgresNode {
    fn backend(&self) -> Arc<dyn LockBackend> {
        Arc::new(self.clone())
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(TokioRuntime::new())
    }

    async fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        let select = "SELECT token FROM quorate_lock WHERE name = sha256($1) AND expires > clock_timestamp()";
        self.client().await.ok()?.query_opt(select, &[&key]).await.ok()??.get(0)
    }

    async fn time_left(&self, key: &[u8]) -> Option<Duration> {
        let select = "SELECT (extract(epoch FROM expires - clock_timestamp()) * 1000)::bigint FROM quorate_lock \
                      WHERE name = sha256($1) AND expires > clock_timestamp()";
        let left: i64 = self.client().await.ok()?.query_opt(select, &[&key]).await.ok()??.get(0);
        u64::try_from(left).ok().map(Duration::from_millis)
    }

    async fn expire(&self, key: &[u8]) {
        let update = "UPDATE quorate_lock SET expires = '-infinity' WHERE name = sha256($1)";
        if let Ok(client) = self.client().await {
            let _ = client.execute(update, &[&key]).await;
        }
    }

    fn has_other_values(&self) -> bool {
        false
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let nodes: Result<Vec<_>, _> =
        env::args().skip(1).map(|config| PostgresNode::new(&config)).collect();
    let nodes = nodes?;
    for node in &nodes {
        node.create_table().await?;
    }
    for case in conformance::backend(nodes.first().ok_or("name the databases")?).await? {
        println!("ok: {case}");
    }
    quorate_examples::tell(&LockManager::builder(nodes).build()?).await
}

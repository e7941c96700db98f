//! The SQL of the page about fencing: a stale token changes no row, and a transaction waits for that of an earlier holder.

use quorate_postgres::Postgres;
use quorate_tests::wait::until_it_says;
use tokio_postgres::{Client, NoTls};

const PAGE: &str = include_str!("../../crates/quorate/docs/fencing.md");

const TABLES: &str = "CREATE TABLE accounts (balance BIGINT, fence BIGINT NOT NULL DEFAULT 0, id BIGINT PRIMARY KEY);
                      CREATE TABLE orders (item INT, pieces INT);";

/// The statements of the page that begin so, without comments.
fn statements(begin: &str) -> Vec<String> {
    let blocks = PAGE.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
    let sql: String = blocks
        .flat_map(str::lines)
        .filter(|line| !line.starts_with("--"))
        .fold(String::new(), |text, line| text + line + "\n");
    let statements = sql.split(';').map(|statement| statement.trim().to_owned());
    statements.filter(|statement| statement.starts_with(begin)).collect()
}

fn statement(begin: &str) -> String {
    let found = statements(begin);
    let [statement] = &found[..] else { panic!("{begin}: {found:?}") };
    statement.clone()
}

async fn client(server: &Postgres) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.config(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn the_sql_of_the_guide_refuses_a_stale_token() {
    let server = Postgres::start();
    let (one, other) = (client(&server).await, client(&server).await);
    one.batch_execute(TABLES).await.unwrap();
    one.batch_execute(&statement("CREATE TABLE fences")).await.unwrap();

    let (update, upsert) = (statement("UPDATE accounts"), statement("INSERT INTO accounts"));
    let write = async |text: &str, balance: i64, token: i64| {
        one.execute(text, &[&token, &balance, &1_i64]).await.unwrap()
    };
    assert_eq!((write(&update, 1, 9).await, write(&upsert, 2, 10).await), (0, 1), "no account");
    assert_eq!((write(&upsert, 3, 11).await, write(&upsert, 4, 10).await), (1, 0));
    assert_eq!((write(&update, 5, 11).await, write(&update, 6, 10).await), (1, 0));
    let row = one.query_one("SELECT balance, fence FROM accounts", &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (5, 11));

    let (raise, insert) = (statement("INSERT INTO fences"), statement("INSERT INTO orders"));
    let raised =
        async |client: &Client, token: i64| client.execute(&raise, &[&token]).await.unwrap();
    assert_eq!((raised(&one, 10).await, raised(&one, 12).await), (1, 1));
    assert_eq!((raised(&one, 11).await, raised(&one, 12).await), (0, 1));

    // The transaction of a later holder waits, and then the earlier token is stale.
    one.batch_execute(&statement("BEGIN")).await.unwrap();
    assert_eq!(raised(&one, 13).await, 1);
    let watcher = client(&server).await;
    let waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let commit = async {
        until_it_says("the other waits", async || {
            !watcher.query(waits, &[]).await.unwrap().is_empty()
        })
        .await;
        one.batch_execute(&insert).await.unwrap();
        one.batch_execute(&statement("COMMIT")).await.unwrap();
    };
    let (later, ()) = tokio::join!(raised(&other, 14), commit);
    assert_eq!((later, raised(&one, 13).await), (1, 0));
    assert_eq!(one.query("SELECT FROM orders", &[]).await.unwrap().len(), 1);
}

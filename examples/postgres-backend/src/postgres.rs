use std::{sync::Arc, time::Duration};

use tokio_postgres::{Client, Error, NoTls, Statement};
use tower_dist_ratelimit::backend::{BackendError, CompareAndSwap};

/// One transaction. The lock serialises processes that start at the same time: `CREATE .. IF NOT EXISTS` can fail if
/// another process creates the same table.
///
/// An unlogged table makes a decision about ten times as fast, because its writes do not wait for the disk. A crash of
/// the server empties the table, and limits start with unused keys. The sequence is logged, in about one of 32 writes,
/// so no version is used twice even then.
const SCHEMA: &str = "
    SELECT pg_advisory_xact_lock(5281337);
    CREATE SEQUENCE IF NOT EXISTS rate_limit_versions;
    CREATE UNLOGGED TABLE IF NOT EXISTS rate_limits (
        key bytea PRIMARY KEY, value bytea NOT NULL, version bigint NOT NULL, expires timestamptz NOT NULL);
    CREATE INDEX IF NOT EXISTS rate_limits_expires ON rate_limits (expires);";

const LOAD: &str = "SELECT value, version FROM rate_limits WHERE key = $1 AND expires > now()";

const INSERT: &str = "
    INSERT INTO rate_limits AS old VALUES ($1, $2, nextval('rate_limit_versions'), now() + make_interval(secs => $3))
    ON CONFLICT (key) DO UPDATE
    SET value = excluded.value, version = excluded.version, expires = excluded.expires WHERE old.expires <= now()";

const UPDATE: &str = "
    UPDATE rate_limits
    SET value = $2, version = nextval('rate_limit_versions'), expires = now() + make_interval(secs => $3)
    WHERE key = $1 AND version = $4";

/// Rate limits in a table. Clones share one connection. It sends each request without waiting for the answers to
/// earlier ones.
#[derive(Clone)]
pub(crate) struct Postgres {
    client: Arc<Client>,
    load: Statement,
    insert: Statement,
    update: Statement,
}

impl Postgres {
    /// Connects, and creates the table if it is missing.
    pub(crate) async fn connect(url: &str) -> Result<Self, Error> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        // The task of the connection ends with the last clone.
        tokio::spawn(connection);
        client.batch_execute(SCHEMA).await?;
        Ok(Self {
            load: client.prepare(LOAD).await?,
            insert: client.prepare(INSERT).await?,
            update: client.prepare(UPDATE).await?,
            client: Arc::new(client),
        })
    }

    /// Deletes expired rows and returns their number. Call it now and then, from one process.
    pub(crate) async fn delete_expired(&self) -> Result<u64, Error> {
        let delete = "DELETE FROM rate_limits WHERE expires <= now()";
        self.client.execute(delete, &[]).await
    }
}

impl CompareAndSwap for Postgres {
    type Version = i64;

    async fn load(&self, key: &[u8]) -> Result<Option<(Vec<u8>, i64)>, BackendError> {
        let row = self.client.query_opt(&self.load, &[&key]).await;
        let row = row.map_err(BackendError::new)?;
        Ok(row.map(|row| (row.get(0), row.get(1))))
    }

    async fn swap(
        &self,
        key: &[u8],
        expected: Option<i64>,
        value: &[u8],
        ttl: Duration,
    ) -> Result<bool, BackendError> {
        let seconds = ttl.as_secs_f64();
        let written = match expected {
            Some(version) => {
                self.client
                    .execute(&self.update, &[&key, &value, &seconds, &version])
                    .await
            }
            None => {
                self.client
                    .execute(&self.insert, &[&key, &value, &seconds])
                    .await
            }
        };
        Ok(written.map_err(BackendError::new)? == 1)
    }
}

//! A hand-written limiter: one GCRA per `EVALSHA`, through the redis crate's multiplexed connection.

use redis::aio::MultiplexedConnection;
use redis::{Client, RedisError, Script};

const LUA: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local full_at = math.max(tonumber(redis.call('GET', KEYS[1])) or now, now) + ARGV[1]
if full_at - now > tonumber(ARGV[2]) then return {0, full_at - now} end
redis.call('SET', KEYS[1], full_at, 'PX', math.ceil((full_at - now) / 1000) + 1)
return {1, full_at - now}
";

/// A connection that has loaded the script.
#[derive(Clone)]
pub(crate) struct Raw {
    connection: MultiplexedConnection,
    hash: String,
}

impl Raw {
    pub(crate) async fn connect(url: &str) -> Result<Self, RedisError> {
        let mut connection = Client::open(url)?
            .get_multiplexed_async_connection()
            .await?;
        let hash = Script::new(LUA)
            .prepare_invoke()
            .load_async(&mut connection)
            .await?;
        Ok(Self { connection, hash })
    }

    /// Decides on a key with a token per second and a burst that is never exhausted.
    pub(crate) async fn decide(&mut self, key: &str) -> bool {
        let mut command = redis::cmd("EVALSHA");
        command
            .arg(&*self.hash)
            .arg(1)
            .arg(key)
            .arg(1_000_000)
            .arg(1_000_000_000_000_000_u64);
        let decision: Result<(i64, i64), RedisError> =
            command.query_async(&mut self.connection).await;
        decision.is_ok_and(|(allowed, _)| allowed == 1)
    }
}

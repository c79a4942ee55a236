use std::{fmt, sync::Arc, time::Duration};

use tower_dist_ratelimit::{
    BuildError, Decision, Policy,
    backend::{
        Answer, Backend, BackendError, BoxFuture, Charge, PolicyId,
        toolkit::{Registry, Transactions},
    },
};

use crate::{call::Verb, key::Tags, route::Route, rule::Rule, scripts::Scripts};

/// Keeps the limits of a whole fleet in Redis or Valkey.
///
/// One server script decides on all policies of a request, in one round trip and by the server's clock. So decisions are
/// exact for any number of processes, and a set of policies is all or nothing. A process uses only its monotonic clock,
/// for timeouts and pauses, and never wall time.
///
/// ```no_run
/// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, key};
/// use tower_dist_ratelimit_redis::Redis;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redis = Redis::connect_lazy("redis://127.0.0.1:6379")?;
/// let layer = RateLimitLayer::builder(redis)
///     .limit(Policy::new("per-client", Quota::per_minute(600).burst(100)).by(key::header("x-api-key")))
///     .build()?;
/// # Ok(())
/// # }
/// ```
///
/// A clone is another handle on the same connection.
///
/// # Servers
///
/// | URL | |
/// |---|---|
/// | `redis://[user][:password@]host[:port][/db]` | one server, Redis 6 or later or Valkey |
/// | `redis-sentinel://[user][:password@]host[:port],../name[/db]` | the primary of this name, as the sentinels report it; user and password belong to the server, and the sentinels have [their own](crate::RedisBuilder::sentinel_password) |
/// | `redis-cluster://[user][:password@]host[:port],..` | a Cluster, known by some of its nodes |
///
/// A URL with `rediss` instead of `redis` encrypts the connection. It needs the feature `tls`.
///
/// A user needs the commands `EVAL`, `EVALSHA`, `TIME`, `GET`, `MGET`, `SET` and `DEL` on the keys `rl:*`. Sliding window
/// logs also need `PEXPIRE`, `LLEN`, `LINDEX`, `LRANGE`, `LTRIM` and `RPUSH`. A URL with a database needs `SELECT`, and a
/// Cluster needs `CLUSTER SLOTS` and `ASKING`. `INFO` is optional: it shows whether the server is suitable.
///
/// # Keys and values
///
/// Keys are `prefix:version:{hash}:policy`, with 128 bits of the BLAKE3 of the caller's key. So keys have one length, are the
/// same on every machine, and do not reveal the client to a reader who cannot guess it. Each key expires when its
/// policy is unused again. A rejected request writes only a change of its key's quota. A request of zero cost writes
/// nothing. Garbage and values of another type count as nothing and are replaced.
///
/// A bucket, queue or window is a string of 18 to 50 characters, or up to 60 with dynamic quotas. A sub-window adds 2 or more
/// characters. A sliding window log is a list of about ten bytes per token. Debts are remembered up to 20,000 tokens in
/// all in a log, and up to 1,024 bursts in a bucket or queue with dynamic quotas.
///
/// A policy that is deployed with another quota keeps its count, also while instances with the old quota run: together
/// they admit no more than both quotas do. A full bucket or queue recovers as slowly as by the old rate. The count starts
/// from zero if the window gets another length, if the policy gets another name or algorithm, and if a bucket or queue gets or
/// loses [dynamic quotas](Policy::dynamic_quotas).
///
/// Numbers are exact up to 2⁵³ and times to the microsecond: the limits of Lua and of the server's clock. So windows are
/// whole microseconds, counters have windows of at least 1 ms, and a bucket's burst is at most 2⁵² parts of a token (see
/// Errors). A [dynamic quota](Policy::dynamic_quotas) beyond these limits is replaced by the nearest one within them.
///
/// # Failures
///
/// While there is no connection, every decision fails immediately. The backend reconnects after 50 ms, then at intervals
/// that double up to 1 s, with full jitter. An attempt that hangs delays the next one by at most 1 s, while fewer than
/// five hang. The backend replaces a connection in these cases:
///
/// - the connection is closed;
/// - two consecutive calls get no answer [in time](crate::RedisBuilder::answer_timeout);
/// - the server has become a replica;
/// - the server rejects writes because it lost its replicas (`min-replicas-to-write`): a replica may have been promoted.
///
/// A call in flight then fails and is not retried, because it may have been charged. When the server loses data, limits
/// start from zero: a failover loses writes that were not replicated, and an eviction policy loses the keys it evicts. A full
/// server that evicts nothing fails instead.
///
/// Requests never wait for a reconnect. They wait at most until their deadline, and then
/// [`FailureMode`](tower_dist_ratelimit::FailureMode) decides. The table shows faults of a second under a request every
/// millisecond with a timeout of 50 ms. The timeout is longer in the rows in which the backend keeps deciding.
///
/// | fault of the server | decisions during the fault | p99 | longest | backend decides again after |
/// |---|---|---|---|---|
/// | nothing | the backend | 0.5 ms | 3 ms | |
/// | killed, and started again later | this process | 0.6 ms | 2 ms | 1.5 s |
/// | restarted empty | this process | 0.8 ms | 2 ms | 0.1 s |
/// | frozen, and thawed | this process | 52 ms | 52 ms | 0.1 s |
/// | its scripts are flushed, again and again | the backend | 1.1 ms | 4 ms | |
/// | out of memory | this process | 0.6 ms | 2 ms | 0.9 s |
/// | garbage or another type at all keys | the backend | 0.7 ms | 4 ms | |
/// | becomes a read-only replica | this process | 0.5 ms | 2 ms | 1.1 s |
/// | closes all connections, and takes none | this process | 0.4 ms | 3 ms | 1.5 s |
/// | slow: answers after 20 ms | the backend | 25 ms | 26 ms | |
/// | too slow: answers after 200 ms | this process | 51 ms | 52 ms | 0.3 s |
/// | a Cluster's primary of three frozen | the backend, and this process for those keys | 52 ms | 52 ms | 2.5 s, with the failover |
/// | a primary that sentinels watch killed | this process | 0.5 ms | 1.3 ms | 1.9 s after the election |
///
/// Each row is the longest of three runs of a debug build on two idle cores, where timers were up to 6 ms late.
/// `tests/tests/redis/ladder.rs` prints the table. The last column varies by up to 3 s, because the pauses of the circuit breaker
/// and between attempts to connect are random.
///
/// The primary's clock counts. When it jumps back, a key that was written at a later time continues from that write: the
/// backend admits nothing more, and a full bucket or window recovers as fast as without a jump. The first decision on
/// such a key rewrites it, also if it rejects the request. When the clock jumps forward, buckets drain and windows end
/// early, because the jump looks like passed time.
///
/// # Cluster
///
/// Policies with the same key are in one slot, and one call decides them. With different keys the backend sends a call
/// to each slot concurrently. If one slot rejects or fails, the backend refunds the charges to the others, even if the
/// caller has left by then. Until a refund arrives, a request that would have passed can be rejected. The source of its
/// decision is then [`Source::Parts`](tower_dist_ratelimit::Source::Parts). [`Policy::colocate`] puts policies in one slot.
///
/// A refund that finds a full queue or a moving slot is retried for 5 s while the connection lasts, and then
/// [counted](Self::lost_corrections) as lost. A lost refund admits less and not more. A refund belongs to the window in
/// which it arrives: if the window of its charge has ended, it adds its tokens to the next window.
///
/// A slot can move and a replica can be promoted while decisions are made. While a slot moves, policies whose keys are
/// not all in one place are decided as if they were in different slots. A process can start while a primary is down, and
/// decides on the keys of the other primaries.
///
/// While a primary is down, the backend queries the other nodes for its successor: after 200 ms, then after pauses that
/// double up to 1 s, with equal jitter. Each query goes to one random node, over the existing connection. A node that
/// does not tell its host (`cluster-preferred-endpoint-type unknown-endpoint`) is reached at the host that named it.
///
/// # Cost
///
/// A backend has one task, which ends with the last handle, and one connection per server. Keys in different slots of a
/// Cluster, and corrections, take a task for each request, at most 8,192 at a time. A decision allocates its future.
///
/// With little load each request goes out immediately. While two calls are in flight, further requests wait a few
/// milliseconds at most and then share a call: up to 32 keys, with any number of requests of the same cost to one token
/// bucket. A token bucket takes 6 µs of the server's time alone, 3 to 4 µs in a shared call, and 0.2 µs if many requests
/// have the same key and cost.
///
/// A registered set stays until the last handle is dropped, and takes some kilobytes for each policy. A set that is equal
/// to a registered one is that set, so rebuilding unchanged limits takes no memory. The server caches at most one script
/// per policy and one per set, whichever of the policies apply to a request.
///
/// # Errors
///
/// Building a limiter fails with a number that the backend cannot count exactly:
///
/// - a burst of more than 2⁵² parts of a token, where a token has as many parts as its window has microseconds, divided by
///   their greatest common divisor with the limit;
/// - a `max_wait` of more than 2⁵² such parts;
/// - a limit of a counter above 10¹⁴ - 1;
/// - a window that is not whole microseconds, or a counter's window below 1 ms;
/// - a set of more than 16 policies.
#[derive(Clone)]
pub struct Redis {
    pub(crate) route: Route,
    prefix: Arc<str>,
    pub(crate) registry: Arc<Registry<Scripts>>,
    pub(crate) tags: Arc<Tags>,
    pub(crate) transactions: Transactions,
}

impl Redis {
    /// Returns the number of lost corrections since the backend was made. Corrections are the caller's own, and refunds of
    /// tokens that one policy took for a request that another policy rejected.
    ///
    /// A correction is given up if its connection is lost, if the server answers with an error, or if its queue has had no
    /// room for 5 s. A refund that is given up leaves its tokens charged, which admits less and not more. A correction that
    /// fails before it is sent is not counted, because its caller gets the error immediately.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use tower_dist_ratelimit_redis::Redis;
    /// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
    /// assert_eq!(redis.lost_corrections(), 0);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lost_corrections(&self) -> u64 {
        self.transactions.lost()
    }

    /// Waits until the corrections in progress are made or given up, at most `limit`.
    ///
    /// Refunds outlive the requests that owe them, but not the runtime. So call this at shutdown, after the last request.
    ///
    /// # Errors
    ///
    /// [Late](BackendError::is_late), if corrections are still in progress after `limit`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait only. During the wait, new corrections fail, and so do requests whose keys are in
    /// different slots of a Cluster.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use tower_dist_ratelimit_redis::Redis;
    /// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
    /// // .. serve, with a clone of it ..
    /// let finished = redis.finish_corrections(Duration::from_secs(1)).await;
    /// assert!(finished.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn finish_corrections(&self, limit: Duration) -> Result<(), BackendError> {
        self.transactions.finish(limit).await
    }

    pub(crate) fn new(route: Route, prefix: Arc<str>) -> Self {
        Self {
            route,
            prefix,
            registry: Arc::default(),
            tags: Arc::new(Tags::default()),
            transactions: Transactions::current(),
        }
    }
}

impl Backend for Redis {
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        let rules = policies
            .iter()
            .map(|policy| Rule::new(&self.prefix, policy));
        self.registry.register(policies, || {
            Ok(Scripts::new(rules.collect::<Result<_, _>>()?))
        })
    }

    fn acquire(&self, charges: &[Charge<'_>], _: &mut [Decision]) -> Answer {
        if charges.is_empty() {
            return Answer::Done(true);
        }
        self.decide(charges)
            .map_or_else(Answer::Failed, Answer::Later)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        if charges.is_empty() {
            return Answer::Done(true);
        }
        self.correct(charges, delta)
            .map_or_else(Answer::Failed, Answer::Later)
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        // The refund exceeds the used tokens of any state.
        let all = [Charge::new(policy, key, u64::MAX)];
        let call = self.call(&all, Verb::Settle(i64::MIN));
        let sent = call.and_then(|call| Ok(self.route.send(call)?));
        Box::pin(async move {
            sent?.await?;
            Ok(())
        })
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

use std::{fmt, sync::Arc, time::Duration};

use tower_dist_ratelimit::{
    BuildError, Decision, Policy,
    backend::{
        Answer, Backend, BackendError, BoxFuture, Charge, PolicyId, Registry, toolkit::Transactions,
    },
};

use crate::{
    call::ChargeKind, compiled_policy::CompiledPolicy, route::Route, scripts::Scripts, tags::Tags,
};

/// A backend that keeps the limits of a whole fleet in Redis or Valkey.
///
/// A script on the server decides on all policies of a request, usually in one round trip, and by the server's clock.
/// So the decisions are exact for any number of processes, and a request is charged to all its policies or to none. A
/// Cluster [may need several calls](#cluster). The wall clocks of the processes do not affect the limits.
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
/// A clone is another handle on the same connection, or in a Cluster on the same connections.
///
/// # Servers
///
/// | URL | |
/// |---|---|
/// | `redis://[[user][:password]@]host[:port][/db]` | one server, Redis 6 or later or Valkey |
/// | `redis-sentinel://[[user][:password]@]host[:port][,host..]/name[/db]` | the primary of this name, as the sentinels report it; the hosts are sentinels, the user and password belong to the primary, and the sentinels have [their own](crate::RedisBuilder::sentinel_password) |
/// | `redis-cluster://[[user][:password]@]host[:port][,host..]` | a Cluster; the hosts are one or more of its nodes |
///
/// A URL with `rediss` instead of `redis` encrypts the connection. Such a URL needs the feature `tls`.
///
/// The user needs the commands `EVAL`, `EVALSHA`, `TIME`, `GET`, `MGET`, `SET` and `DEL` on the keys `prefix:*`.
/// Sliding window logs also need `PEXPIRE`, `LLEN`, `LINDEX`, `LRANGE`, `LTRIM` and `RPUSH`. A URL with a database
/// needs `SELECT`, and a Cluster needs `CLUSTER SLOTS` and `ASKING`. `INFO` is optional: with it a new connection
/// checks the server's version, mode and role.
///
/// # Keys and values
///
/// A key on the server is `prefix:version:{hash}:policy`. The version names the layout of the key's value. The hash is
/// 128 bits of the BLAKE3 hash of the caller's key. So all keys of a policy have the same length, every machine
/// computes the same key, and only a guess of the caller's key reveals the client. A key normally expires a few
/// milliseconds after its last used token is available again. The key of a [colocated](Policy::colocate) policy is
/// `prefix:version:{place}:policy:hash`, where `place` is the hash of the colocation's name.
///
/// Except after a [backward jump of the clock](#failures), a request of zero cost writes nothing, and a rejected
/// request writes only a changed [dynamic quota](Policy::dynamic_quotas). If one of several slots of a Cluster rejects
/// a request, the other slots can also write a charge and its refund. An invalid string, or a value of another type,
/// counts as unused. The next charge that takes tokens replaces it.
///
/// A bucket, queue or window is a string of at most 50 characters, or 67 with dynamic quotas. Each sub-window after the
/// first adds 2 to 15 characters. A sliding window log is a list of about ten bytes per token. A
/// [correction](Self::lost_corrections) can charge more than the limit, which leaves a debt. A log counts at most
/// 20,000 tokens, debts included. If the burst of a bucket or queue has at most 2⁴² [parts](#errors) of a token, this
/// bucket or queue can count used tokens, debts included, up to at least 1,024 times its burst.
///
/// A policy that is deployed with another quota keeps its count. A bucket or queue without dynamic quotas instead keeps
/// the time until it has drained, so its used tokens change in proportion to its rate. While instances with the old and
/// the new quota run, all of them together admit at most the sum of both quotas. This bound does not hold for a sliding
/// window log whose window changes: instances with the shorter window delete entries that the longer window still
/// counts. The count starts from zero in these cases:
///
/// - a fixed or sliding window gets another length or number of sub-windows;
/// - the policy gets another name, algorithm or [colocation](Policy::colocate);
/// - a bucket or queue gets or loses [dynamic quotas](Policy::dynamic_quotas).
///
/// Lua's numbers are exact up to 2⁵³, and the server's clock counts microseconds. Several of the bounds under Errors
/// follow from this. A [dynamic quota](Policy::dynamic_quotas) outside of these bounds is replaced by the nearest one
/// within them.
///
/// # Failures
///
/// While there is no connection, every decision fails immediately. The backend reconnects with exponential backoff from
/// 50 ms to 1 s, with full jitter. While fewer than five attempts hang, a hanging attempt delays the next one by 1 s at
/// most. The backend never replaces a connection from [`from_connection`](Self::from_connection). It replaces any other
/// connection in these cases:
///
/// - the connection is closed, or an answer violates Redis's protocol;
/// - two consecutive calls get no answer [in time](crate::RedisBuilder::answer_timeout);
/// - the server rejects a write because it has become a replica;
/// - the server rejects writes because it lost its replicas (`min-replicas-to-write`): a replica may have been
///   promoted.
///
/// The calls in flight then fail. They are not retried, because the server may have charged them. When the server loses
/// data, it forgets used tokens: a failover loses the writes that were not replicated, and an eviction policy loses the
/// evicted keys. A server that is full and evicts nothing answers with errors instead.
///
/// Requests never wait for a reconnect. They wait at most for their
/// [timeout](tower_dist_ratelimit::RateLimitLayerBuilder::backend_timeout), and then
/// [`FailureMode`](tower_dist_ratelimit::FailureMode) decides. The table shows faults under a load of one request per
/// millisecond, with a timeout of 50 ms. Most of the faults last one second. In the rows in which only the backend
/// decides, the timeout is longer.
///
/// | fault of the server | decisions during the fault | p99 latency | longest latency | backend decides again after |
/// |---|---|---|---|---|
/// | nothing | the backend | 0.5 ms | 3 ms | |
/// | killed, and started again later | this process | 0.6 ms | 2 ms | 1.5 s |
/// | restarted empty | this process | 0.8 ms | 2 ms | 0.1 s |
/// | frozen, and thawed | this process | 52 ms | 52 ms | 0.1 s |
/// | its scripts are flushed, again and again | the backend | 1.1 ms | 4 ms | |
/// | out of memory | this process | 0.6 ms | 2 ms | 0.9 s |
/// | garbage or another type at all keys | the backend | 0.7 ms | 4 ms | |
/// | becomes a read-only replica | this process | 0.5 ms | 2 ms | 1.1 s |
/// | closes all connections, and accepts none | this process | 0.4 ms | 3 ms | 1.5 s |
/// | slow: answers after 20 ms | the backend | 25 ms | 26 ms | |
/// | too slow: answers after 200 ms | this process | 51 ms | 52 ms | 0.3 s |
/// | one of a Cluster's three primaries frozen | the backend, and this process for the keys of that primary | 52 ms | 52 ms | 2.5 s, with the failover |
/// | a primary under sentinels killed | this process | 0.5 ms | 1.3 ms | 1.9 s after the election |
///
/// Each number is the maximum of three runs of a debug build on two idle cores, where timers were up to 6 ms late.
/// `tests/tests/redis/under_load.rs` names the command that measures these times. The last column varies by up to 3 s,
/// because two pauses are random: the pause between attempts to connect, and the pause of the layer's or limiter's
/// [circuit breaker](tower_dist_ratelimit::FailureMode).
///
/// The primary's clock measures time. When this clock jumps back, a key that was written before the jump continues from
/// its state at that write. So the jump admits no additional requests. Suppose such a key has no free tokens and no
/// debt. A request to it waits at most as long as a request to an unused key whose tokens are all taken right after the
/// jump. Under a fixed or sliding window, the request waits at most one window longer than that. The first decision
/// after the jump may rewrite a key that was written before it, even if the decision is a rejection. When the clock
/// jumps forward, buckets drain and windows end early, because the jump looks like passed time.
///
/// # Cluster
///
/// For one key of the caller, all policies without [colocation](Policy::colocate) have their server keys in one slot.
/// If all keys of a request are in one slot, one call decides on them. If the keys are in several slots, the backend
/// sends one call to each slot concurrently. If one slot rejects the request or fails, the backend refunds the charges
/// to the other slots, even if the caller has left by then. A rejection by one of several slots has the source
/// [`Source::Parts`](tower_dist_ratelimit::Source::Parts). Until the refund arrives, the refunded charge can cause the
/// rejection of another request. [`Policy::colocate`] puts policies in one slot.
///
/// If the send queue is full or the slot moves, a refund is retried for about 5 s while the connection lasts. If it
/// still fails, it is [counted](Self::lost_corrections) as lost. A lost refund admits fewer requests, never more. A
/// refund counts in the window in which it arrives. If the window of its charge has ended by then, the refund can free
/// tokens of the later window.
///
/// The backend follows moving slots and promoted replicas. While a slot moves, its keys can be on two nodes; the
/// backend then decides on each policy of the request separately, as if the keys were in different slots. A process can
/// start while a primary is down. Until the primary returns or a replica is promoted, the backend decides only on the
/// keys of the other primaries.
///
/// If a request finds a primary down, the backend queries the nodes for a successor until it is connected to all
/// primaries. The pauses between queries double from 200 ms to 1 s, with equal jitter. Each query goes to the nodes one
/// after the other until one answers: first to the connected nodes, in random order. If a Cluster hides its nodes'
/// hosts (`cluster-preferred-endpoint-type unknown-endpoint`), the backend uses the host of the node that answered.
///
/// # Cost
///
/// A connected backend has one connection and one task. In a Cluster it has one connection and one task per primary,
/// and one more task. The tasks end after the last handle is dropped. A correction, and a request with keys in
/// different slots of a Cluster, also takes a task while it runs. At most 8,192 such tasks run at a time. Each decision
/// allocates its future.
///
/// Under light load each request is sent immediately. While two calls for the same policies are in flight, further
/// requests usually wait a few milliseconds at most, and then share a call. A call carries at most 256 requests and 32
/// rows. A row is one request, or several consecutive requests of the same cost to the same key. Such requests usually
/// share a row if their only policy is a token or leaky bucket without dynamic quotas. If the server does not know a
/// script, the call takes a second round trip.
///
/// A request to a token bucket takes 2 to 8 µs of the server's time in a shared call, and 0.1 to 0.5 µs if many
/// requests share a row. A request in a call of its own takes 5 to 9 µs if the server reads several calls at a time,
/// and 11 to 22 µs otherwise.
///
/// All policies of one layer or limiter form a *set*. A registered set stays in memory until the last handle is
/// dropped, and takes some kilobytes per policy. An equal set is registered only once, so rebuilding unchanged limits
/// takes no memory. The server caches at most one script per policy, one per set, and a short script that checks new
/// connections.
///
/// # Errors
///
/// Building a limiter fails if it has more than 16 policies. Let `g` be the greatest common divisor of the limit and
/// the window in microseconds. A token of a bucket or queue then has `window / g` parts. Building a limiter also fails
/// for these numbers:
///
/// - a burst of more than 2⁵² parts;
/// - a limit of a bucket or queue above 2⁵² · `g`;
/// - a burst of a leaky queue that, together with the tokens that drain within [`max_wait`](Policy::leaky_queue), has
///   more than 2⁵² parts;
/// - a limit of a fixed or sliding window above 10¹⁴ - 1;
/// - a limit of a sliding window log above 10,000;
/// - a quota's window that is not whole microseconds;
/// - a quota's window below 1 ms, if the algorithm is a fixed window, a sliding window or a sliding window log.
#[derive(Clone)]
pub struct Redis {
    pub(crate) route: Route,
    prefix: Arc<str>,
    pub(crate) registry: Arc<Registry<Scripts>>,
    pub(crate) tags: Arc<Tags>,
    pub(crate) transactions: Transactions,
}

impl Redis {
    /// Returns the number of corrections that were lost since the backend was created.
    ///
    /// A correction is a charge or refund that the caller makes after a decision. Refunds that the backend makes [in a
    /// Cluster](Redis#cluster) are corrections, too. A correction is lost if its connection ends before the answer, if
    /// the answer times out, or if the answer is an error other than a redirect of a Cluster. It is also lost if a full
    /// queue or a moving slot blocks it for about 5 s. A lost refund may leave its tokens charged, so fewer requests
    /// are admitted. A lost extra charge may not have taken its tokens, so more requests are admitted. If a caller's
    /// correction fails immediately, for example without a connection, it is not counted.
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

    /// Waits at most `limit` until all corrections in progress have succeeded or are [lost](Self::lost_corrections).
    /// Also waits for requests whose keys are in different slots of a Cluster. During the wait, new corrections fail,
    /// and so do new requests whose keys are in different slots of a Cluster.
    ///
    /// A refund outlives the request that caused it, but not the runtime. So call this at shutdown, after the last
    /// request.
    ///
    /// # Errors
    ///
    /// A [timeout](BackendError::is_timeout), if a correction, or a request with keys in different slots, is still in
    /// progress after `limit`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends only the wait; corrections and requests continue.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use tower_dist_ratelimit_redis::Redis;
    /// let redis = Redis::connect("redis://127.0.0.1:6379").await?;
    /// // .. serve requests with a clone of `redis` ..
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
        let compiled = policies
            .iter()
            .map(|policy| CompiledPolicy::new(&self.prefix, policy));
        self.registry.register(policies, || {
            Ok(Scripts::new(compiled.collect::<Result<_, _>>()?))
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
        // A reset is a refund of more tokens than any state counts.
        let all = [Charge::new(policy, key, u64::MAX)];
        let call = self.call(&all, ChargeKind::Settle(i64::MIN));
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

use std::{fmt, sync::Arc, time::Duration};

use tower_dist_ratelimit::{
    BuildError, Decision, Policy,
    backend::{
        Answer, Backend, BackendError, BoxFuture, Capabilities, Charge, PolicyId,
        toolkit::{MAX_POLICIES, Registry, Transactions},
    },
};

use crate::{call::Verb, key::Tags, route::Route, rule::Rule, scripts::Scripts};

/// Keeps limits in Redis or Valkey, for a whole fleet.
///
/// One server script decides on all policies of a request, in one round trip and by the server's clock: so decisions are
/// exact whatever number of processes asks, all or nothing over the set, and no clock of the fleet counts. A process reads
/// none but its monotonic one, for deadlines and pauses; what time it is it never asks.
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
/// | `redis-sentinel://[user][:password@]host[:port],../name[/db]` | whichever server the sentinels say is the primary of this name; user and password are the server's, those of the sentinels are [set apart](RedisBuilder::sentinel_password) |
/// | `redis-cluster://[user][:password@]host[:port],..` | a Cluster, known by some of its nodes |
///
/// With `rediss` instead of `redis` the connection is encrypted, by rustls. A user needs the commands `EVAL`, `EVALSHA`,
/// `TIME`, `GET`, `MGET`, `SET`, `DEL`, and for sliding logs `PEXPIRE`, `LLEN`, `LINDEX`, `LRANGE`, `LTRIM`, `RPUSH`, on the
/// keys `rl:*`;
/// `INFO` says whether the server will do, and can be withheld; a URL with a database needs `SELECT`, and Clusters need
/// `CLUSTER SLOTS` and `ASKING`.
///
/// # What is kept
///
/// Keys are `prefix:version:{hash}:policy`, with 128 bits of the BLAKE3 of what a client is known by. So keys are short
/// whatever clients send, the same on every machine, and do not show who the clients are to those who cannot guess. Each
/// ends by itself once it has nothing to say. A refused request writes nothing but a change of its key's quota; one of zero
/// cost writes nothing. Garbage, and values of another type, count as nothing and are replaced.
///
/// A bucket, queue or window is a string of 18 to 50 characters, with dynamic quotas up to 60, a sub-window more 2 or more,
/// and a sliding log a list of about ten bytes per token. Debts of a log are remembered up to 20,000 tokens in all, and
/// those of a bucket or queue with dynamic quotas up to 1,024 bursts.
///
/// When a policy is deployed with another quota, what was used counts on, also while instances with the old one still
/// run: together they admit no more than both quotas do. A bucket or queue that was full stays so for as long as it was to
/// take by the old rate, however fast the new one is. A window of another length starts anew, and so does a policy of
/// another name or algorithm, or that gets or loses [dynamic quotas](Policy::dynamic_quotas) and is a bucket or queue.
///
/// Numbers are exact up to 2⁵³ and times to the microsecond, which is what Lua and the server's clock have. So windows are
/// whole microseconds, those of counters at least 1 ms, and a bucket's burst is at most 2⁵² parts of a token (see
/// Errors). With [dynamic quotas](Policy::dynamic_quotas) those that could not be built are taken as the nearest that
/// could.
///
/// # When it fails
///
/// While there is no connection every decision fails at once, and the connection is made again in the background: after 50
/// ms, then at intervals that double up to 1 s, with full jitter. An attempt that hangs, at a server that accepts
/// connections and stays silent, delays the next one by 1 s at most, while fewer than five hang. The connection is
/// given up when it is closed, when two calls in a row are not answered [in time](RedisBuilder::answer_timeout), when the server has become a replica, and when it takes
/// nothing since it misses its replicas (`min-replicas-to-write`), of which one may be primary by now. A call that was on
/// its way then has failed and is not repeated: nobody knows whether it was charged. When the server forgets, limits start
/// anew: a failover forgets what was not replicated yet, and an eviction policy whomever it chooses, while a server that
/// evicts nothing fails when it is full.
///
/// Those who ask wait for none of that, but for their deadline, and then [`FailureMode`](tower_dist_ratelimit::FailureMode) says who decides. So
/// it went with a request every millisecond, a deadline of 50 ms (a longer one where the store goes on deciding, to see
/// that it does), and faults of a second:
///
/// | what happens to the server | meanwhile decisions are made by | p99 | longest | the store's again after |
/// |---|---|---|---|---|
/// | nothing | the store | 0.5 ms | 3 ms | |
/// | killed, and started again later | this process | 0.6 ms | 2 ms | 1.5 s |
/// | restarted empty | this process | 0.8 ms | 2 ms | 0.1 s |
/// | frozen, and thawed | this process | 52 ms | 52 ms | 0.1 s |
/// | its scripts are flushed, again and again | the store | 1.1 ms | 4 ms | |
/// | out of memory | this process | 0.6 ms | 2 ms | 0.9 s |
/// | garbage or another type at all keys | the store | 0.7 ms | 4 ms | |
/// | becomes a read-only replica | this process | 0.5 ms | 2 ms | 1.1 s |
/// | closes all connections, and takes none | this process | 0.4 ms | 3 ms | 1.5 s |
/// | slow: answers after 20 ms | the store | 25 ms | 26 ms | |
/// | too slow: answers after 200 ms | this process | 51 ms | 52 ms | 0.3 s |
/// | a Cluster's primary of three frozen | the store, and this process for those keys | 52 ms | 52 ms | 2.5 s, with the failover |
/// | a primary that sentinels watch killed | this process | 0.5 ms | 1.3 ms | 1.9 s after the election |
///
/// The longest of three runs of a debug build, on two cores with nothing else to do, where timers were up to 6 ms late: see
/// `tests/tests/redis/ladder.rs`, which prints the table. How long decisions take to be the store's again is up to 3 s,
/// by chance: the pauses of the breaker and those between attempts to connect are random.
///
/// The clock that counts is the primary's. When it jumps back, a key that was written later than now continues from that
/// write: nothing more is admitted, and a full bucket or window recovers within the time that it takes without a jump.
/// The first decision on such a key rewrites it, also if it rejects the request. When the clock jumps forward, buckets
/// drain and windows end early; nothing can tell that from time that has passed.
///
/// # Cluster
///
/// Policies that have the same key are in one slot, and decided in one call. With different keys the slots are asked at
/// the same time. If one rejects or fails, the charges to the others are refunded, even if the caller has left by then. A
/// refund that finds a full queue or a moving slot is retried for 5 s while the connection lasts, and then
/// [counted](Self::lost_corrections). A refund that is given up admits less and not more. A refund is made in the window in
/// which it arrives: if the window of its charge has ended, it adds its tokens to the next one. Until a refund arrives, a
/// request that would have passed can be rejected, and its decision says so ([`Source::Parts`](tower_dist_ratelimit::Source::Parts)). [`Policy::colocate`] puts policies in one slot. A slot can move, and a replica take over, while decisions are
/// made; a process can start meanwhile, and decides on what the other primaries have. While it moves, policies of which not all keys are in one place are decided on as if they were in different slots.
///
/// While a primary cannot be reached, the other nodes are asked for its successor: after 200 ms, then after pauses that
/// double up to 1 s, of which half is random. Each question goes to one node at random, over the connection that there is.
/// A node that does not tell its host (`cluster-preferred-endpoint-type unknown-endpoint`) is reached at the host that
/// named it.
///
/// # Cost
///
/// One task, which ends with the last handle, and one connection per server. Keys in different slots of a Cluster, and
/// corrections, take a task for each request, at most 8,192 at a time. A decision allocates its future, and shares
/// what carries it with others. While two calls are on their way requests wait for each other, for a few milliseconds at most, and
/// up to 32 keys go out in one call of a script, with any number of requests of the same cost to one token bucket; with
/// little load each goes out at once. Of the server's time a token bucket takes 6 µs alone, and 3 to 4 µs among others that
/// go out together, or 0.2 µs if many have the same key and cost.
///
/// A registered set stays until the last handle is dropped: some kilobytes for each policy. A set that is built again with
/// nothing changed, as when settings are read anew, is the registered one. The server caches at most one script per policy
/// and one per set, whichever of the policies apply to the requests.
///
/// # Errors
///
/// Building a limiter fails with a number that cannot be counted exactly: a bucket's burst of more than 2⁵² parts of a token, of
/// which a token has as many as its window has microseconds, reduced by what it has in common with the limit; a `max_wait`
/// beyond 2⁵² such parts; a limit of a counter above 10¹⁴ - 1; a window that is not whole microseconds, or of a counter below
/// 1 ms. A set has at most 16 policies.
#[derive(Clone)]
pub struct Redis {
    pub(crate) route: Route,
    prefix: Arc<str>,
    pub(crate) registry: Arc<Registry<Scripts>>,
    pub(crate) tags: Arc<Tags>,
    pub(crate) transactions: Transactions,
}

impl Redis {
    /// Number of corrections that this backend gave up since it was made: refunds of charges that another policy of the
    /// same request rejected, and corrections that a caller asked for.
    ///
    /// A correction is given up if its connection is lost, if the server answers with an error, or if its queue has had no
    /// room for 5 s. A refund that is given up leaves its tokens charged, which admits less and not more. A correction that
    /// fails before it is sent is not counted: its caller gets the error at once.
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
    /// Dropping the future stops the waiting only. Until then, requests of several keys and new corrections fail.
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
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_policies: MAX_POLICIES,
        }
    }

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
        // A refund of more than can be used.
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

use std::{fmt, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tower_dist_ratelimit::{
    BuildError, Decision, Policy,
    backend::{
        Answer, Backend, BackendError, BoxFuture, Capabilities, Charge, PolicyId,
        toolkit::{ConnectError, MAX_POLICIES, PendingVerdict, Registry, Transactions, tag},
    },
};

use crate::{
    builder::MemcachedBuilder,
    job::{Asked, Verb},
    link::Link,
    parts::Part,
    set::Kept,
};

/// Keeps limits in Memcached, for a whole fleet.
///
/// Memcached runs no scripts: it adds to counters, and it writes what nobody has changed meanwhile. Windows are counted
/// the first way, everything else is decided the second. Neither ever admits more than the limit, whatever number of
/// processes asks.
///
/// ```no_run
/// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, key};
/// use tower_dist_ratelimit_memcached::Memcached;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memcached = Memcached::connect_lazy("memcached://127.0.0.1:11211")?;
/// let layer = RateLimitLayer::builder(memcached)
///     .limit(Policy::new("per-client", Quota::per_minute(600)).fixed_window_from_first_request().by(key::header("x-api-key")))
///     .build()?;
/// # Ok(())
/// # }
/// ```
///
/// A clone is another handle on the same connections.
///
/// # Which algorithm
///
/// | | kept as | round trips | by the clock of |
/// |---|---|---|---|
/// | [`fixed_window_from_first_request`](Policy::fixed_window_from_first_request), whole seconds from 2 s to below 30 days | a counter that ends with its window | 1 | the server |
/// | [`fixed_window`](Policy::fixed_window), [`fixed_window_staggered`](Policy::fixed_window_staggered) | a counter per window | 1 | this machine |
/// | [`sliding_window`](Policy::sliding_window), [`sliding_window_buckets`](Policy::sliding_window_buckets), [`sliding_window_strict`](Policy::sliding_window_strict) | a counter per window, all asked at once: those that count, and the next | 1 | this machine |
/// | token bucket, [`leaky_bucket`](Policy::leaky_bucket), [`leaky_queue`](Policy::leaky_queue), `fixed_window_from_first_request` of other windows | a value that is swapped | 2, more when others change the key at the same time | this machine |
/// | several policies in a set | one value for each key | the same | this machine |
/// | [`sliding_window_log`](Policy::sliding_window_log) | not at all: it is refused when it is built | | |
///
/// Waits are exact, but for a `fixed_window_from_first_request` window that the server ends: its clock ticks once a second, so that window is
/// up to a second longer than it should be, and waits are whole seconds, rounded up.
///
/// # Counters
///
/// A request's cost is added to its window, and taken back if that was too much, which takes another round trip. So a
/// refusal leaves nothing behind. But while it is being taken back, or while more is reserved than there is for a
/// [`want`](tower_dist_ratelimit::backend::Charge::up_to), another request can be rejected that would have fitted; not when all cost the
/// same and want no more. From a `fixed_window_from_first_request` window it is taken back only if that is surely still the same one; when so
/// many others change it that this fails 16 times, or the connection is lost, it stays charged until the window ends.
/// What is refused for a moment the [deny cache](tower_dist_ratelimit::RateLimitLayerBuilder::deny_cache) refuses for up to a second more.
/// Quotas that differ from key to key may lower or raise the limit at any time.
///
/// # Values
///
/// Who asks about one key in one process at the same time goes together, in one swap. Among processes one at a time
/// succeeds in a round trip; the others try again, after the second failure with a jittered pause of up to 1 ms that
/// doubles up to 8 ms, for as long as the [answer's deadline](MemcachedBuilder::answer_timeout). Somebody always gets
/// on, so that nothing can lock up; but a key that hundreds of processes want at once is better a window.
///
/// Policies of a set that have the same key are one value, and are charged all or nothing. With different keys they are
/// asked at the same time. If one rejects or fails, the charges to the others are refunded, even if the caller has left by
/// then. A refund that finds a full queue or loses its races is retried for 5 s while the connection lasts, and then
/// [counted](Self::lost_corrections). A refund that is given up admits less and not more. A refund is made in the window in
/// which it arrives: if the window of its charge has ended, it adds its tokens to the next one. Until a refund arrives, a
/// request that would have passed can be rejected, and its decision says so ([`Source::Parts`](tower_dist_ratelimit::Source::Parts)). A policy that is
/// in two sets, or in one and also alone, has a count in each.
///
/// # Clocks
///
/// What goes by this machine's clock supposes that those of the fleet agree (NTP keeps them within milliseconds). If the
/// fastest is ahead of the slowest by `s`, then in any time `D` as much can be admitted as the algorithm would in `D + s`;
/// and the slowest waits up to `s` longer than it has to. Sliding windows keep to that while `s`, and the time that a charge
/// is on its way, are shorter than one of their sub-windows: the next one is looked at, and none after that. Windows are kept a minute longer than they count (no longer than
/// they are), so a process that is behind by more than that can find its window forgotten. A clock that jumps back admits
/// no more than one that is as far behind; of what is swapped nothing more at all. A clock that was far ahead, or that jumps
/// back, blocks a key only until the item ends by the server's clock. A bucket ends when it would have drained, a window
/// that is swapped at most a minute after it would have ended. Windows begin at whole multiples since 2020 (UTC).
///
/// # What is kept
///
/// Keys are `prefix:version:hash:policy`, and the number of the window; with 128 bits of the BLAKE3 of what a client is
/// known by. So keys are short whatever clients send, the same on every machine, and do not show who the clients are to
/// those who cannot guess. A set's last part is a hash of its policies' names. A counter takes 120 to 150 bytes of the
/// server, a bucket 150; each has a time to live, but for what would end after 2038. A refused request leaves nothing
/// changed, nor does one of zero cost. Values that are not ours count as nothing and are replaced.
///
/// When a policy is deployed with another limit, what was used in a window counts on, also while instances with the old one
/// still run. A window of another length starts anew, and so does a policy of another name or algorithm.
///
/// Memcached forgets: when it is full it drops what was not used for longest, and a limit then starts anew, so that more
/// is admitted; a flood of new keys can bring that about. Give it room for the keys that are limited at the same time, and
/// watch its `evictions`. Or start it with `-M`: then it says that it is full, and [`FailureMode`](tower_dist_ratelimit::FailureMode) decides about
/// new keys. If a counter is dropped or flushed, and begun anew by others, between a charge and its being taken back, as
/// much more is admitted once.
///
/// # Servers
///
/// `memcached://host[:port][,host[:port]..]`: Memcached 1.6.10 or later, with compare-and-swap (no `-C`). Of several
/// servers each has its share of the keys, by rendezvous hashing of host and port as they are written, so that every
/// process finds the same; write them the same everywhere. There is no password and no encryption: keep it in a network
/// of your own.
///
/// # When it fails
///
/// While there is no connection every decision fails at once, and the connection is made again in the background: after 50
/// ms, then at intervals that double up to 1 s, with full jitter. An attempt that hangs, at a server that accepts
/// connections and stays silent, delays the next one by 1 s at most, while fewer than five hang. The connection is
/// given up when it is closed, when an answer does not come [in time](MemcachedBuilder::answer_timeout), and when one is not to what was asked. What was on its
/// way then has failed and is not repeated: nobody knows whether it was charged. A server that is gone fails its own keys
/// only, and no other takes them over. When it was restarted, or flushed, limits start anew.
///
/// # Cost
///
/// One task and one connection per server, which end with the last handle. Sets with different keys, and corrections, take
/// a task for each request, at most 8,192 at a time. Requests do not wait for each other's answers. A
/// decision allocates: its future, a place for its answer, and with a counter what is asked.
///
/// # Errors
///
/// Building a limiter fails with a sliding log; with a window's limit above 2⁴⁸; and with what
/// [`Quota`](tower_dist_ratelimit::Quota) cannot be. A set has at most 16 policies.
#[derive(Clone)]
pub struct Memcached {
    /// By their seeds.
    pub(crate) servers: Arc<[(u64, Link)]>,
    pub(crate) seeds: Arc<[u64]>,
    pub(crate) prefix: Arc<str>,
    pub(crate) registry: Arc<Registry<Box<[Kept]>>>,
    pub(crate) transactions: Transactions,
}

impl Memcached {
    /// Connects to one server or several, in the background. Returns at once.
    ///
    /// This is the way to start a service: it starts during an outage of the servers, too. Until the first connection
    /// every decision fails at once, and [`FailureMode`](tower_dist_ratelimit::FailureMode) decides. See
    /// [`MemcachedBuilder::connect_lazy`].
    ///
    /// # Default
    ///
    /// Those of [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// A URL that cannot be read.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, on which the connections live.
    pub fn connect_lazy(url: &str) -> Result<Self, ConnectError> {
        Self::builder(url).connect_lazy()
    }

    /// Connects like [`connect_lazy`](Self::connect_lazy), and fails if a server cannot be reached now. For tools and
    /// tests that cannot do without the servers.
    ///
    /// # Default
    ///
    /// Those of [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// See [`ConnectError`]. A server that is not there yet is not waited for.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, on which the connections live.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder(url).connect().await
    }

    /// The same, with settings.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tower_dist_ratelimit_memcached::Memcached;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let memcached = Memcached::builder("memcached://cache-1.internal,cache-2.internal")
    ///     .prefix("orders")
    ///     .connect_timeout(Duration::from_secs(2))
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder(url: &str) -> MemcachedBuilder {
        MemcachedBuilder::new(url)
    }

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
    /// # use tower_dist_ratelimit_memcached::Memcached;
    /// let memcached = Memcached::connect("memcached://127.0.0.1:11211").await?;
    /// assert_eq!(memcached.lost_corrections(), 0);
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
    /// # use tower_dist_ratelimit_memcached::Memcached;
    /// let memcached = Memcached::connect("memcached://127.0.0.1:11211").await?;
    /// // .. serve, with a clone of it ..
    /// let finished = memcached.finish_corrections(Duration::from_secs(1)).await;
    /// assert!(finished.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn finish_corrections(&self, limit: Duration) -> Result<(), BackendError> {
        self.transactions.finish(limit).await
    }

    pub(crate) fn new(servers: Vec<(u64, Link)>, prefix: Arc<str>) -> Self {
        Self {
            seeds: servers.iter().map(|(seed, _)| *seed).collect(),
            servers: servers.into(),
            prefix,
            registry: Arc::default(),
            transactions: Transactions::current(),
        }
    }

    /// What is asked by these charges: as many parts as there are items, which nearly always is one.
    fn parts(
        &self,
        charges: &[Charge<'_>],
        verb: Verb,
    ) -> Result<SmallVec<[Part; 1]>, BackendError> {
        let mut parts: SmallVec<[Part; 1]> = SmallVec::new();
        for (place, charge) in charges.iter().enumerate() {
            let (set, slot) = self.registry.find(charge)?;
            let kept = &set[slot];
            let (tag, asked) = (tag(charge.key), Asked::of(charge));
            let joined = parts
                .iter_mut()
                .any(|part| part.join(kept, &tag, place, asked));
            if !joined {
                parts.push(Part::new(self, kept.clone(), tag, verb, place, asked));
            }
        }
        Ok(parts)
    }

    fn ask(&self, charges: &[Charge<'_>], verb: Verb) -> Result<PendingVerdict, BackendError> {
        let parts = self.parts(charges, verb)?;
        if let Verb::Settle(_) = verb {
            return self.transactions.settle(parts.into_vec());
        }
        let [part] = &parts[..] else {
            return self.transactions.acquire(parts.into_vec());
        };
        let answer = part.ask()?;
        Ok(Box::pin(async move { Ok(answer.await?) }))
    }
}

impl Backend for Memcached {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_policies: MAX_POLICIES,
        }
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.registry
            .register(policies, || Kept::new(&self.prefix, policies))
    }

    fn acquire(&self, charges: &[Charge<'_>], _: &mut [Decision]) -> Answer {
        if charges.is_empty() {
            return Answer::Done(true);
        }
        self.ask(charges, Verb::Acquire)
            .map_or_else(Answer::Failed, Answer::Later)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        if charges.is_empty() || delta == 0 {
            return Answer::Done(true);
        }
        self.ask(charges, Verb::Settle(delta))
            .map_or_else(Answer::Failed, Answer::Later)
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        let asked = self.ask(&[Charge::new(policy, key, 0)], Verb::Reset);
        Box::pin(async move {
            asked?.await?;
            Ok(())
        })
    }
}

impl fmt::Debug for Memcached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memcached")
            .field("prefix", &self.prefix)
            .field("servers", &self.servers.len())
            .finish_non_exhaustive()
    }
}

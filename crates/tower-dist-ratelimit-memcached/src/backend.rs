use std::{fmt, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tower_dist_ratelimit::{
    BuildError, Decision, Policy,
    backend::{
        Answer, Backend, BackendError, BoxFuture, CasBackend, Charge, PolicyId, Registry,
        toolkit::{Transactions, tag, wall_clock},
    },
};

use crate::{
    counter_policy::CounterPolicy,
    items::{Items, Servers},
    key::server,
    operation::{Operation, OperationKind},
};

/// A backend that keeps the limits of a whole fleet in Memcached.
///
/// Memcached runs no scripts, but it can add to counters, and its compare-and-swap replaces a value only if nobody has
/// changed the value. Fixed windows are usually stored as [counters](Self#counters). All other limits are stored as
/// [values](Self#values). Concurrent requests of any number of processes do not exceed the limit of a counter or a
/// value. Some exceptions are described below: differing clocks, evicted items, and a restart or flush of a server.
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
/// Clones share the connections.
///
/// # Algorithms
///
/// | algorithm | stored as | round trips | clock |
/// |---|---|---|---|
/// | [`fixed_window_from_first_request`](Policy::fixed_window_from_first_request), whole seconds from 2 s to below 30 days | a counter that expires with its window | usually 1; usually 2 or more for a rejection | the server's |
/// | [`fixed_window`](Policy::fixed_window), [`fixed_window_staggered`](Policy::fixed_window_staggered) | a counter per window | usually 1; usually 2 or more for a rejection | this machine's |
/// | all others, and `fixed_window_from_first_request` with other windows | a value of a [`CasBackend`], written by compare-and-swap | usually 2, more while other processes change the key; usually 1 for a rejection | this machine's |
/// | several policies of one layer or limiter (a *set*) | one value per key | as in the row above | this machine's |
///
/// The server's clock ticks once a second. So a window that the server's clock ends is up to a second longer than
/// configured. Decisions of such a window report waits in whole seconds, rounded up.
///
/// # Counters
///
/// A charge adds tokens to the window's count: the higher of its cost and its [maximum
/// grant](tower_dist_ratelimit::backend::Charge::up_to), but never more than the limit. If the window had too few free
/// tokens for the cost, the request is usually rejected, and another round trip takes the added tokens back. So a
/// rejected request normally leaves the count unchanged in the end. A request whose cost is zero or above the limit
/// only reads the count, in one round trip.
///
/// Until the tokens are taken back, another request that would fit can be rejected. An allowed charge that added more
/// tokens than it is granted can cause such a rejection, too. The [deny
/// cache](tower_dist_ratelimit::RateLimitLayerBuilder::deny_cache) extends such a rejection by up to a second. Such
/// rejections occur only with requests of different costs or limits, maximum grants above the cost, or refunds.
///
/// A window that the server ends may end before the added tokens are taken back, and the key may then hold a later
/// window. The backend must not take tokens from that later window. So an attempt to take the tokens back succeeds only
/// if the count has not changed since it was last read. The tokens may stay charged until the window ends, for example
/// in these cases:
///
/// - The count changes during each of 16 attempts.
/// - An attempt fails because the count has changed, and at least the window's length minus 2 s has passed since the
///   charge. Then no further attempt is made, so a window of 2 s gets only one attempt.
/// - The connection is lost, or the server answers with an error.
///
/// With [dynamic quotas](Policy::dynamic_quotas), each charge is decided by its own limit.
///
/// # Values
///
/// See [`CasBackend`] for concurrent requests, lost races, sets with different keys, refunds, and the longest sliding
/// window log. A swap loses a race if another client changes the value first. A charge whose swaps lose races is
/// retried for at most the [answer timeout](crate::MemcachedBuilder::answer_timeout). If hundreds of processes charge
/// one key concurrently, use a fixed window.
///
/// A refund or an extra charge is retried if its swaps lose races, or if a queue of this process is full. The retries
/// usually last about 5 s. They can end earlier if the connection is lost. A refund or an extra charge that still fails
/// [counts](Self::lost_corrections) as lost.
///
/// If different [sets](Self#algorithms) contain a policy, the policy has a separate count in each of them. If the
/// policy is also used alone, it has another count for that use.
///
/// # Clocks
///
/// Decisions by this machine's clock need a fleet whose clocks agree. NTP keeps them within milliseconds. If the
/// fastest clock is ahead of the slowest one by `s`, then an interval `D` admits at most the tokens that the algorithm
/// admits in `D + s`. The machine with the slowest clock may reject requests for up to `s` too long. Fixed windows
/// begin at multiples of their length since the start of 2020 (UTC), unless they are staggered or begin with a request.
///
/// After its end, a window that a machine's clock ends is kept for at least its own length or a minute, whichever is
/// shorter. A process whose clock is further behind can find its window deleted. If a clock jumps back, a value admits
/// no more than it would without the jump. A counter, however, can be charged in an earlier window after such a jump.
/// For a counter, the bound above applies, with the length of the jump as `s`. A clock that was far ahead blocks a key
/// only until the item expires by the server's clock.
///
/// # Keys and values
///
/// Keys are `prefix:layout:hash:policy`. For counters of windows that this machine's clock ends, the number of the
/// window follows. The hash is 128 bits of the BLAKE3 of the caller's key. So keys have a bounded length, are the same
/// on every machine, and reveal a client only to a reader who can guess the caller's key. If the name of a policy
/// contains spaces, a hash replaces the name. The key of a set ends in a hash that identifies the set's policies. Each
/// new connection writes the key `prefix:probe`, which expires after 10 s.
///
/// A counter usually takes 120 to 150 bytes on the server, a bucket 150 bytes, and a log up to 72 KiB. Every item
/// expires, unless it has to be kept for more than 30 days and until after mid-January 2038. A request of zero cost
/// writes nothing. A value that cannot be a count or state of this backend counts as zero, and the next charge that
/// takes tokens replaces it.
///
/// A policy that is deployed with another limit keeps its counts, even while instances with the old limit run. The
/// counts start from zero if
///
/// - the policy gets another name or algorithm,
/// - its fixed or sliding window or its log gets another length, or
/// - its sliding window gets another number of buckets.
///
/// Then all other counts of the policy's [set](Self#algorithms) start from zero, too. The same happens if a policy
/// joins or leaves the set, or if the order of the policies changes.
///
/// A full Memcached evicts the least recently used items. Their counts then start from zero, so more requests are
/// admitted. A flood of new keys can cause this. Provide memory for all keys that are limited at the same time, and
/// watch the server's `evictions`. With `-M` the server reports an error instead of evicting, and the
/// [`FailureMode`](tower_dist_ratelimit::FailureMode) decides on the request. But if such a server has no memory for the
/// new state of a [value](#values), it also deletes the old one, whose count then starts from zero. If a counter is
/// evicted and recreated between a charge and its refund, the refunded tokens can be admitted once more.
///
/// # Servers
///
/// `memcached://host[:port][,host[:port]..]`: up to 64 servers with Memcached 1.6.10 or later and compare-and-swap
/// (without `-C`). The default port is 11211. Each of several servers holds a share of the keys, by rendezvous hashing
/// of its host and port as written in the URL. So write them identically everywhere. There is no password and no
/// encryption: keep the servers in a private network.
///
/// # Failures
///
/// While a server has no connection, every decision on its keys fails immediately. The backend usually reconnects after
/// at most 50 ms. While attempts to connect fail, the delays between them double up to 1 s, with full jitter. At most
/// five attempts per server run concurrently. While fewer than five attempts hang, a hanging attempt delays the next
/// one by 1 s at most. The backend replaces a connection in these cases:
///
/// - the connection is closed or fails;
/// - an answer does not come [in time](crate::MemcachedBuilder::answer_timeout);
/// - an answer does not fit its command, or reports a wrong command.
///
/// A command in flight then fails and is not retried, because the server may have executed it. If a server is
/// unreachable, the backend fails only requests with a key on that server. No other server takes its keys over. After a
/// restart or a flush, the counts start from zero.
///
/// # Cost
///
/// A backend has one task and one connection per server, which end after the last clone is dropped. A
/// [correction](Self::lost_corrections) takes a task, and so does a request with several keys. At most 8,192 such tasks
/// run for counters, and 8,192 for values.
///
/// Requests to counters usually do not wait for each other's answers. A value has a task while charges wait for it, and
/// concurrent charges of a process to one value usually share a swap.
///
/// A decision usually allocates its future, its command and a channel for the answer. A decision by a counter allocates
/// its operation, too, and takes a task if tokens have to be taken back.
///
/// # Errors
///
/// Building a limiter fails with:
///
/// - a counter whose limit is above 2⁴⁸;
/// - a sliding window log whose limit is above 4,000 divided by the number of logs in its set;
/// - a [`Quota`](tower_dist_ratelimit::Quota) that is invalid for its algorithm;
/// - a set of more than 16 policies.
#[derive(Clone)]
pub struct Memcached {
    servers: Servers,
    prefix: Arc<str>,
    registry: Arc<Registry<Storage>>,
    /// Runs the corrections of counters.
    corrections: Transactions,
    values: Arc<CasBackend<Items>>,
}

/// How Memcached stores the states of a set of policies.
enum Storage {
    /// The set has one policy, and each of its windows is a counter.
    CounterPolicy(Arc<CounterPolicy>),
    /// The states are values of the [`CasBackend`], which knows the policies by these ids.
    Values(Vec<PolicyId>),
}

impl Memcached {
    /// Returns the number of corrections that were lost since the backend was created.
    ///
    /// A correction is a refund or an extra charge that the caller makes after a decision. The backend makes
    /// corrections, too. If a request has several keys, and one charge took tokens while another was rejected or
    /// failed, the backend refunds the tokens that were taken.
    ///
    /// If the connection ends before the answer to a correction arrives, the correction is lost. The same holds if the
    /// answer times out or is an error. A correction is usually retried for about 5 s if, for example, a queue is full
    /// or another client changes the key's [value](Self#values) first. If it still fails, it is lost, too.
    ///
    /// A lost refund may leave its tokens charged, so fewer requests are admitted. A lost extra charge may not have
    /// taken its tokens, so more requests are admitted. If a caller's correction fails immediately, for example without
    /// a connection, it is not counted. Corrections that end because their runtime ends are not counted either.
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
        self.corrections.lost() + self.values.lost_corrections()
    }

    /// Waits at most `limit` until everything in progress has ended: all [corrections](Self::lost_corrections), and all
    /// requests with several keys.
    ///
    /// A refund continues after its request has ended, but not after the runtime has shut down. So call this at
    /// shutdown, after the last request.
    ///
    /// This method awaits [counters](Self#counters) and [values](Self#values) separately. While it awaits corrections
    /// of counters, new corrections of counters fail. While it awaits requests with several keys or corrections of
    /// values, new requests with several keys and new corrections of values fail.
    ///
    /// # Errors
    ///
    /// A [timeout](BackendError::is_timeout), if a correction, or a request with several keys, is still in progress
    /// after `limit`.
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
    /// # use tower_dist_ratelimit_memcached::Memcached;
    /// let memcached = Memcached::connect("memcached://127.0.0.1:11211").await?;
    /// // .. serve, with a clone of it ..
    /// let finished = memcached.finish_corrections(Duration::from_secs(1)).await;
    /// assert!(finished.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn finish_corrections(&self, limit: Duration) -> Result<(), BackendError> {
        let counters = self.corrections.finish(limit);
        let values = self.values.finish_corrections(limit);
        let (counters, values) = tokio::join!(counters, values);
        counters.and(values)
    }

    pub(crate) fn new(servers: Servers, prefix: Arc<str>, timeout: Duration) -> Self {
        let items = Items {
            servers: Arc::clone(&servers),
            prefix: Arc::clone(&prefix),
        };
        let values = CasBackend::new(items);
        let values = values.prefix(&*prefix).timeout(timeout);
        Self {
            servers,
            prefix,
            registry: Arc::default(),
            corrections: Transactions::current(),
            values: Arc::new(values),
        }
    }

    /// Returns an operation on the counter of the charge's key.
    fn operation(
        &self,
        rule: &Arc<CounterPolicy>,
        charge: &Charge<'_>,
        action: OperationKind,
    ) -> Operation {
        let tag = tag(charge.key);
        let mut keyless = Charge::new(charge.policy, &[], charge.cost).up_to(charge.up_to);
        keyless.quota = charge.quota;
        Operation {
            link: server(&self.servers, &tag).clone(),
            rule: Arc::clone(rule),
            clock: wall_clock,
            tag,
            action,
            charge: keyless,
        }
    }

    /// Returns the charges with the ids that their policies have in the [`CasBackend`]. Fails if the server of a key is
    /// not connected.
    fn renamed<'a>(
        &self,
        charges: &[Charge<'a>],
        ids: &[PolicyId],
    ) -> Result<SmallVec<[Charge<'a>; 4]>, BackendError> {
        let renamed = charges.iter().map(|charge| {
            let (_, place) = self.registry.find(charge)?;
            server(&self.servers, &tag(charge.key)).check()?;
            let mut charge = *charge;
            charge.policy = ids[place];
            Ok(charge)
        });
        renamed.collect()
    }

    fn try_acquire(
        &self,
        charges: &[Charge<'_>],
        out: &mut [Decision],
    ) -> Result<Answer, BackendError> {
        let Some(first) = charges.first() else {
            return Ok(Answer::Done(true));
        };
        match self.registry.find(first)? {
            (Storage::CounterPolicy(rule), _) => {
                let answer = self.operation(rule, first, OperationKind::Acquire).ask()?;
                Ok(Answer::Later(Box::pin(answer)))
            }
            (Storage::Values(ids), _) => {
                let charges = self.renamed(charges, ids)?;
                Ok(self.values.acquire(&charges, out))
            }
        }
    }

    fn try_settle(&self, charges: &[Charge<'_>], delta: i64) -> Result<Answer, BackendError> {
        let Some(first) = charges.first().filter(|_| delta != 0) else {
            return Ok(Answer::Done(true));
        };
        match self.registry.find(first)? {
            (Storage::CounterPolicy(rule), _) => {
                let operation = self.operation(rule, first, OperationKind::Settle(delta));
                Ok(Answer::Later(self.corrections.settle(vec![operation])?))
            }
            (Storage::Values(ids), _) => {
                let charges = self.renamed(charges, ids)?;
                Ok(self.values.settle(&charges, delta))
            }
        }
    }

    fn try_reset(
        &self,
        charge: &Charge<'_>,
    ) -> Result<BoxFuture<'static, Result<(), BackendError>>, BackendError> {
        match self.registry.find(charge)? {
            (Storage::CounterPolicy(rule), _) => {
                let answer = self.operation(rule, charge, OperationKind::Reset).ask()?;
                Ok(Box::pin(async move {
                    answer.await?;
                    Ok(())
                }))
            }
            (Storage::Values(ids), place) => Ok(self.values.reset(ids[place], charge.key)),
        }
    }
}

impl Backend for Memcached {
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.registry.register(policies, || {
            if let [policy] = policies {
                let counted = CounterPolicy::new(&self.prefix, policy);
                let counted = counted.map_err(|error| error.in_policy(policy.name()))?;
                if let Some(counted) = counted {
                    return Ok(Storage::CounterPolicy(Arc::new(counted)));
                }
            }
            Ok(Storage::Values(self.values.register(policies)?))
        })
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        self.try_acquire(charges, out)
            .unwrap_or_else(Answer::Failed)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        self.try_settle(charges, delta)
            .unwrap_or_else(Answer::Failed)
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        let reset = self.try_reset(&Charge::new(policy, key, 0));
        reset.unwrap_or_else(|error| Box::pin(async { Err(error) }))
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

use std::{fmt, sync::Arc, time::Duration};

use smallvec::SmallVec;
use tower_dist_ratelimit::{
    BuildError, Decision, Policy,
    backend::{
        Answer, Backend, BackendError, BoxFuture, Capabilities, CasBackend, Charge, PolicyId,
        toolkit::{MAX_POLICIES, Registry, Transactions, tag},
    },
};

use crate::{
    clock,
    counted::Counted,
    items::{Items, Servers},
    key::server,
    operation::{Operation, Verb},
};

/// Keeps limits in Memcached, for a whole fleet.
///
/// Memcached runs no scripts: it adds to counters, and it writes a value if it is unchanged. Fixed windows are counted
/// the first way, all other algorithms are decided the second way. Neither ever admits more than the limit, whatever number of
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
/// | all others, and `fixed_window_from_first_request` of other windows | a value of a [`CasBackend`], written by compare-and-swap | 2, more while others change the key; 1 for a rejection | this machine |
/// | several policies in a set | one value for each key | the same | this machine |
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
/// Values are those of a [`CasBackend`]: see there for concurrent requests, lost races, sets with different keys, refunds,
/// and the longest sliding window log. A charge is retried after lost races for as long as the
/// [answer's timeout](crate::MemcachedBuilder::answer_timeout). A key that hundreds of processes charge concurrently is better a fixed
/// window.
///
/// A refund that finds a full queue or loses its races is retried for 5 s while the connection lasts, and then
/// [counted](Self::lost_corrections). A policy that is in two sets, or in one and also alone, has a count in each.
///
/// # Clocks
///
/// What goes by this machine's clock supposes that those of the fleet agree (NTP keeps them within milliseconds). If the
/// fastest is ahead of the slowest by `s`, then in any time `D` as much can be admitted as the algorithm would in `D + s`;
/// and the slowest waits up to `s` longer than it has to. Windows are kept a minute longer than they count (no longer than
/// they are), so a process that is behind by more than that can find its window forgotten. After a clock jumps back, a counter admits
/// no more than a machine that is as far behind, and a value admits nothing more. A clock that was far ahead
/// blocks a key only until the item ends by the server's clock. Windows begin at multiples of their length since 2020 (UTC).
///
/// # What is kept
///
/// Keys are `prefix:version:hash:policy`, and the number of the window; with 128 bits of the BLAKE3 of what a client is
/// known by. So keys are short whatever clients send, the same on every machine, and do not show who the clients are to
/// those who cannot guess. A set's last part is a hash of its policies' names. A counter takes 120 to 150 bytes of the
/// server, a bucket 150, a log up to 72 KiB; each has a time to live, but for what would end after 2038. A refused request leaves nothing
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
/// given up when it is closed, when an answer does not come [in time](crate::MemcachedBuilder::answer_timeout), and when one is not to what was asked. What was on its
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
/// Building a limiter fails with a fixed window's limit above 2⁴⁸; with sliding window logs of a set that are longer than
/// 4,000 tokens together; and with what
/// [`Quota`](tower_dist_ratelimit::Quota) cannot be. A set has at most 16 policies.
#[derive(Clone)]
pub struct Memcached {
    servers: Servers,
    prefix: Arc<str>,
    registry: Arc<Registry<Kept>>,
    /// Corrections of counters.
    corrections: Transactions,
    values: Arc<CasBackend<Items>>,
}

/// How a set of policies is kept.
enum Kept {
    Counted(Arc<Counted>),
    /// As values, by these names of the policies.
    Values(Vec<PolicyId>),
}

impl Memcached {
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
        self.corrections.lost() + self.values.lost_corrections()
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

    /// An operation on a policy's counter.
    fn operation(&self, rule: &Arc<Counted>, charge: &Charge<'_>, verb: Verb) -> Operation {
        let tag = tag(charge.key);
        let mut keyless = Charge::new(charge.policy, &[], charge.cost).up_to(charge.up_to);
        keyless.quota = charge.quota;
        Operation {
            link: server(&self.servers, &tag).clone(),
            rule: Arc::clone(rule),
            clock: clock::wall,
            tag,
            verb,
            charge: keyless,
        }
    }

    /// The same charges, by the names of their policies among the values. Fails while a server of theirs is down.
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

    fn try_acquire(&self, charges: &[Charge<'_>]) -> Result<Answer, BackendError> {
        let Some(first) = charges.first() else {
            return Ok(Answer::Done(true));
        };
        match self.registry.find(first)? {
            (Kept::Counted(rule), _) => {
                let answer = self.operation(rule, first, Verb::Acquire).ask()?;
                Ok(Answer::Later(Box::pin(async move { Ok(answer.await?) })))
            }
            (Kept::Values(ids), _) => {
                let charges = self.renamed(charges, ids)?;
                Ok(self.values.acquire(&charges, &mut []))
            }
        }
    }

    fn try_settle(&self, charges: &[Charge<'_>], delta: i64) -> Result<Answer, BackendError> {
        let Some(first) = charges.first().filter(|_| delta != 0) else {
            return Ok(Answer::Done(true));
        };
        match self.registry.find(first)? {
            (Kept::Counted(rule), _) => {
                let operation = self.operation(rule, first, Verb::Settle(delta));
                Ok(Answer::Later(self.corrections.settle(vec![operation])?))
            }
            (Kept::Values(ids), _) => {
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
            (Kept::Counted(rule), _) => {
                let answer = self.operation(rule, charge, Verb::Reset).ask()?;
                Ok(Box::pin(async move {
                    answer.await?;
                    Ok(())
                }))
            }
            (Kept::Values(ids), place) => Ok(self.values.reset(ids[place], charge.key)),
        }
    }
}

impl Backend for Memcached {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_policies: MAX_POLICIES,
        }
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.registry.register(policies, || {
            if let [policy] = policies {
                let counted = Counted::new(&self.prefix, policy);
                let counted = counted.map_err(|error| error.in_policy(policy.name()))?;
                if let Some(counted) = counted {
                    return Ok(Kept::Counted(Arc::new(counted)));
                }
            }
            Ok(Kept::Values(self.values.register(policies)?))
        })
    }

    fn acquire(&self, charges: &[Charge<'_>], _: &mut [Decision]) -> Answer {
        self.try_acquire(charges).unwrap_or_else(Answer::Failed)
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

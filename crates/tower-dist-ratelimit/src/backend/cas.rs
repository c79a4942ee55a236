mod part;
mod policy_set;
mod store;
#[cfg(test)]
#[cfg(feature = "conformance")]
mod tests;
mod value_tasks;

use std::{fmt, sync::Arc, time::Duration};

use smallvec::{SmallVec, smallvec};

pub use self::store::CompareAndSwap;
use self::{
    part::ValuePart,
    policy_set::PolicySet,
    value_tasks::{Action, ValueTasks},
};
use super::{
    Answer, Backend, BackendError, BoxFuture, Charge, PolicyId, Registry,
    toolkit::{PendingVerdict, TransactionPart, Transactions, tag},
};
use crate::{BuildError, Decision, Policy, build_error::ensure};

/// A backend over any store with compare-and-swap.
///
/// The backend decides in this process, with the [`arithmetic`](crate::arithmetic). It loads a key's value, decides,
/// and swaps the value if the decision changed it. All algorithms work.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use std::time::Duration;
/// use tower_dist_ratelimit::backend::{BackendError, CasBackend, CompareAndSwap};
/// use tower_dist_ratelimit::{Limiter, Policy, Quota};
///
/// /// A store in this process. It keeps values for ever.
/// #[derive(Default)]
/// struct Map(Mutex<(HashMap<Vec<u8>, (Vec<u8>, u64)>, u64)>);
///
/// impl CompareAndSwap for Map {
///     type Version = u64;
///
///     async fn load(&self, key: &[u8]) -> Result<Option<(Vec<u8>, u64)>, BackendError> {
///         let map = self.0.lock().map_err(|error| BackendError::new(error.to_string()))?;
///         Ok(map.0.get(key).cloned())
///     }
///
///     async fn swap(&self, key: &[u8], expected: Option<u64>, value: &[u8], _: Duration) -> Result<bool, BackendError> {
///         let mut map = self.0.lock().map_err(|error| BackendError::new(error.to_string()))?;
///         let (values, last) = &mut *map;
///         if values.get(key).map(|(_, version)| *version) != expected {
///             return Ok(false);
///         }
///         *last += 1;
///         values.insert(key.to_vec(), (value.to_vec(), *last));
///         Ok(true)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let backend = CasBackend::new(Map::default());
/// let limiter = Limiter::new(backend, Policy::new("login", Quota::per_minute(2)).sliding_window_log())?;
/// assert!(limiter.check("alice").await?.allowed);
/// assert!(limiter.check("alice").await?.allowed);
/// assert!(!limiter.check("alice").await?.allowed);
/// # Ok(())
/// # }
/// ```
///
/// # Keys and values
///
/// If a policy is the only one of its limiter or layer, its store key is `prefix:layout:hash:policy`. The hash is 128
/// bits of the BLAKE3 of the caller's key. So a store key does not show the caller's key, and is the same on every
/// machine. Store keys have at most 220 characters, all of them printable ASCII without spaces. A policy's name with
/// spaces is replaced by its hash.
///
/// The layout names the algorithm. For windows and logs, it also has their length. For a window with several
/// sub-windows, it also has their number. If a part of the layout changes, the policy's counts restart. If only the
/// limit or the burst changes, the counts stay.
///
/// If a limiter or layer has several policies, they share one value per key, so one swap charges all of them or none.
/// The store key of this value has the layout `s1`, and one hash of all names and layouts in place of `policy`. So a
/// change of one policy's name, algorithm or windows, or of the policies' order, restarts the counts of all of them.
///
/// If the policies of a request have different keys, their charges change different values concurrently. If one charge
/// is rejected or fails, the backend refunds the charges that succeeded. The decisions of a rejected request then have
/// the source [`Source::Parts`](crate::Source::Parts). Until a refund arrives, another request that would have passed
/// can be rejected.
///
/// A value has at most 96 KiB. If `n` of its policies are sliding window logs, the limit of each log is at most 4,000 /
/// `n`: [`register`](Backend::register) rejects higher limits. The state of each policy with another algorithm takes
/// less than 1 KiB of the value. A value holds the states of its policies in their order. If a state cannot be read,
/// its policy and all later ones count as unused. The next swap then replaces the value.
///
/// # Contention
///
/// Concurrent charges to one value through one `CasBackend` usually form batches of up to 1,024. A batch usually takes
/// one load and one swap. If several processes swap one value concurrently, at most one succeeds. The others lose the
/// race, and load and decide again. After the first lost race, they do not pause. After the second, third and fourth,
/// they first pause for a random time of at most 1, 2 and 4 ms. From the fifth lost race on, the random pause is at
/// most 8 ms.
///
/// A charge is retried until its caller drops the future or [`timeout`](Self::timeout) has passed. The charge then
/// takes no tokens, unless an attempt (a load and a swap) is in progress: that attempt may still charge. The other
/// charges of the batch are unaffected. A refund, an extra charge, or a request that changes several values continues
/// even if its caller drops the future.
///
/// # Errors of the store
///
/// If a load fails, nothing is charged to the value. If a swap fails, the charges may have been made, so they are
/// usually not retried. In both cases the callers of the batch usually get the error.
///
/// # Clocks
///
/// Each process decides by the wall clock of its machine, so the clocks of a fleet have to agree. NTP usually keeps
/// them within milliseconds. Let `s` be the difference between the fastest and the slowest clock. An interval `D`
/// admits at most the tokens that the algorithm admits in `D + s`. The machine with the slowest clock may reject
/// requests for up to `s` too long.
///
/// A clock that jumps back admits no additional requests. A clock that was far ahead blocks a key at most until its
/// value expires. A fixed window begins a multiple of its length after the start of 2020 (UTC). Exceptions are windows
/// that are [staggered](Policy::fixed_window_staggered) or that begin [with a
/// request](Policy::fixed_window_from_first_request).
///
/// A value expires about a second after all of its tokens are free again. Windows are kept for up to a minute longer,
/// for machines whose clocks are behind.
///
/// # Cost
///
/// Usually two round trips per decision: a load and a swap. A charge of zero cost usually takes only the load, and so
/// does a rejection. A rejection that puts another [quota](crate::backend::Charge::quota) in force for the key takes
/// the swap, too. Each value has a task while charges wait for it. At most 8,192 requests wait at a time, where a
/// request counts once for each value; further requests fail. A decision allocates.
pub struct CasBackend<C> {
    tasks: ValueTasks<C>,
    prefix: String,
    registry: Registry<Arc<PolicySet>>,
    transactions: Transactions,
}

impl<C: CompareAndSwap> CasBackend<C> {
    /// A backend over this store. Its tasks run on the current runtime.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn new(store: C) -> Self {
        Self {
            tasks: ValueTasks::new(store),
            prefix: "rl".to_owned(),
            registry: Registry::default(),
            transactions: Transactions::current(),
        }
    }

    /// The first part of every store key, 1 to 64 printable ASCII characters without spaces.
    /// [`register`](Backend::register) fails with any other prefix.
    ///
    /// # Default
    ///
    /// `rl`.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        Self { prefix, ..self }
    }

    /// Maximum time of each load and each swap, above 0. If another process changes the [value](Self#keys-and-values)
    /// between a charge's load and its swap, the charge is retried. Its last retry begins within this time after the
    /// caller made the charge. Refunds and extra charges are retried for longer, about 5 s.
    ///
    /// A load or swap that takes longer is dropped, and the charges that it serves get an error. A charge that is no
    /// longer retried fails with a [`busy`](BackendError::is_busy) error. Usually the layer's [backend
    /// timeout](crate::RateLimitLayerBuilder::backend_timeout) is shorter, and ends the caller's wait earlier.
    ///
    /// # Default
    ///
    /// 500 ms.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.tasks.timeout = timeout;
        self
    }

    /// Returns the number of lost corrections. A correction is a refund or an extra charge that a caller requests. The
    /// backend's own refunds, after another charge of the same request was rejected or failed, are corrections too.
    /// Corrections of different [stored values](Self#keys-and-values) count separately. A correction counts as lost if
    /// it failed or its outcome is unknown. A lost refund may leave its tokens charged, so fewer requests are admitted.
    /// A lost extra charge may not have taken its tokens, so more requests are admitted. Corrections that end because
    /// their runtime ends are not counted. Neither is a caller's correction that fails immediately.
    #[must_use]
    pub fn lost_corrections(&self) -> u64 {
        self.transactions.lost()
    }

    /// Waits at most `limit` until all corrections (refunds and extra charges) and all requests that change several
    /// [values](Self#keys-and-values) have ended. During the wait, new corrections and new requests that change several
    /// values fail. Afterwards both are accepted again.
    ///
    /// A refund continues after its request has ended, but not after the runtime has shut down. So call this after the
    /// last request, before the runtime shuts down.
    ///
    /// # Errors
    ///
    /// A [timeout](BackendError::is_timeout), if corrections or requests that change several values are still in
    /// progress after `limit`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends only the wait; the corrections continue.
    pub async fn finish_corrections(&self, limit: Duration) -> Result<(), BackendError> {
        self.transactions.finish(limit).await
    }

    /// Groups the charges by the value that they change. Charges of one set to one key are a single part.
    fn parts(
        &self,
        charges: &[Charge<'_>],
        action: Action,
    ) -> Result<SmallVec<[ValuePart<C>; 1]>, BackendError> {
        let mut parts: SmallVec<[ValuePart<C>; 1]> = SmallVec::new();
        for (index, charge) in charges.iter().enumerate() {
            let (set, place) = self.registry.find(charge)?;
            let tag = tag(charge.key);
            let charge = Charge {
                key: &[],
                ..*charge
            };
            let is_same = |part: &&mut ValuePart<C>| Arc::ptr_eq(&part.set, set) && part.tag == tag;
            match parts.iter_mut().find(is_same) {
                Some(part) => part.charges.push((index, place, charge)),
                None => parts.push(ValuePart {
                    tasks: self.tasks.clone(),
                    set: Arc::clone(set),
                    tag,
                    action,
                    charges: smallvec![(index, place, charge)],
                }),
            }
        }
        Ok(parts)
    }

    fn ask(&self, charges: &[Charge<'_>], action: Action) -> Result<PendingVerdict, BackendError> {
        let parts = self.parts(charges, action)?;
        if let Action::Settle(_) = action {
            return self.transactions.settle(parts.into_vec());
        }
        let [part] = &parts[..] else {
            return self.transactions.acquire(parts.into_vec());
        };
        part.send()
    }
}

impl<C: CompareAndSwap> Backend for CasBackend<C> {
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        let timeout = self.tasks.timeout;
        ensure!(!timeout.is_zero(), "timeout" is timeout, "above 0");
        self.registry.register(policies, || {
            Ok(Arc::new(PolicySet::new(&self.prefix, policies)?))
        })
    }

    fn acquire(&self, charges: &[Charge<'_>], _: &mut [Decision]) -> Answer {
        if charges.is_empty() {
            return Answer::Done(true);
        }
        self.ask(charges, Action::Acquire)
            .map_or_else(Answer::Failed, Answer::Later)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        if charges.is_empty() || delta == 0 {
            return Answer::Done(true);
        }
        self.ask(charges, Action::Settle(delta))
            .map_or_else(Answer::Failed, Answer::Later)
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        let asked = self.ask(&[Charge::new(policy, key, 0)], Action::Reset);
        Box::pin(async { asked?.await.map(drop) })
    }
}

impl<C> fmt::Debug for CasBackend<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CasBackend")
            .field("prefix", &self.prefix)
            .field("timeout", &self.tasks.timeout)
            .finish_non_exhaustive()
    }
}

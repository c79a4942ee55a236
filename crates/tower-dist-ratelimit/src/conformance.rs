//! The checks that every [`Backend`] has to pass, for those who write one.
//!
//! Each algorithm that a backend says it has is compared with a model of it that is slow and easy to see to be right;
//! and then everything is tried that is known to go wrong in stores: tasks that race, rejections that write, sets that
//! are charged in part, keys that are confused, state that never goes away.
//!
//! ```
//! use std::time::Duration;
//! use tower_dist_ratelimit::backend::{BoxFuture, Memory};
//! use tower_dist_ratelimit::conformance::{Clock, Conformance};
//!
//! /// Tokio's paused clock, which moves only when it is told to.
//! struct Paused;
//!
//! impl Clock for Paused {
//!     fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
//!         Box::pin(tokio::time::advance(time))
//!     }
//!
//!     fn grain(&self) -> Duration {
//!         Duration::ZERO
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! Conformance::new(Memory::default, Paused).run().await?;
//! # Ok(())
//! # }
//! ```

mod between;
mod checks;
mod clock;
mod numbers;
mod subject;
mod violation;

use std::{fmt, panic::resume_unwind, sync::Arc, time::Duration};

use tokio::task::JoinSet;

pub use self::{
    clock::{Clock, Sleeping},
    violation::Violation,
};
use self::{numbers::Numbers, subject::Subject};
use crate::{Algorithm, backend::Backend};

/// A run of all checks, over backends that a closure makes: a new one each time, or handles to one store.
///
/// Policies have names of their own, and keys too, so that a store which is in use by others is neither disturbed nor
/// disturbs; give it another [`seed`](Self::seed) for each run over a store that remembers the last one.
///
/// # Default
///
/// All algorithms, with leases and dynamic quotas; 40 random sequences of 40 requests for each; seed 1.
///
/// # Cost
///
/// A few thousand decisions per algorithm. On a clock that cannot be paused, about half a minute of waiting for all of
/// them together.
#[must_use = "nothing is checked until it runs"]
pub struct Conformance {
    backend: Arc<dyn Fn() -> Arc<dyn Backend> + Send + Sync>,
    clock: Arc<dyn Clock>,
    algorithms: Vec<Algorithm>,
    leases: bool,
    dynamic_quotas: bool,
    sequences: u32,
    seed: u64,
    only: Option<&'static str>,
}

/// One of each. The kit has longest waits of its own for queues.
const ALL: [Algorithm; 9] = [
    Algorithm::TokenBucket,
    Algorithm::LeakyBucket,
    Algorithm::LeakyQueue {
        max_wait: Duration::from_secs(1),
    },
    Algorithm::FixedWindow { staggered: false },
    Algorithm::FixedWindowFromFirstRequest,
    Algorithm::SlidingWindow,
    Algorithm::SlidingWindowBuckets { count: 4 },
    Algorithm::SlidingWindowStrict { count: 4 },
    Algorithm::SlidingWindowLog,
];

const CHECKS: [&str; 11] = [
    "building",
    "decisions",
    "retry",
    "expiry",
    "nothing written",
    "refunds",
    "reset",
    "keys",
    "racing",
    "all or nothing",
    "dynamic quotas",
];

impl Conformance {
    /// All checks, of what `backend` makes, by this clock.
    pub fn new<B: Backend>(
        backend: impl Fn() -> B + Send + Sync + 'static,
        clock: impl Clock,
    ) -> Self {
        Self {
            backend: Arc::new(move || Arc::new(backend())),
            clock: Arc::new(clock),
            algorithms: ALL.to_vec(),
            leases: true,
            dynamic_quotas: true,
            sequences: 40,
            seed: 1,
            only: None,
        }
    }

    /// The algorithms that the backend has. It has to build these and to reject the others.
    pub fn algorithms(self, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        Self {
            algorithms: algorithms.into_iter().collect(),
            ..self
        }
    }

    /// Not that more than the cost is granted where more is [wanted](crate::backend::Charge::up_to).
    pub fn without_leases(self) -> Self {
        Self {
            leases: false,
            ..self
        }
    }

    /// Not that charges can bring a [quota](crate::backend::Charge::quota) of their own.
    pub fn without_dynamic_quotas(self) -> Self {
        Self {
            dynamic_quotas: false,
            ..self
        }
    }

    /// How many random sequences of requests are compared with the model, for each algorithm.
    pub fn sequences(self, sequences: u32) -> Self {
        Self { sequences, ..self }
    }

    /// Another seed makes other requests, policies and keys.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Runs one check alone, by the name that a [`Violation`] has: to look into what it found.
    ///
    /// # Panics
    ///
    /// If no check has that name, since then nothing would be checked.
    pub fn only(self, check: &str) -> Self {
        let only = CHECKS.into_iter().find(|&one| one == check);
        assert!(only.is_some(), "no check is called {check:?}: {CHECKS:?}");
        Self { only, ..self }
    }

    /// Runs the checks: one after the other; where the clock goes on by itself, all algorithms at once.
    ///
    /// # Errors
    ///
    /// A promise that the backend breaks.
    pub async fn run(self) -> Result<(), Violation> {
        if self.wants("building") {
            checks::building(&self)?;
        }
        let kit = Arc::new(self);
        if kit.clock.grain().is_zero() {
            for &algorithm in &kit.algorithms {
                kit.run_one(algorithm).await?;
            }
            return Ok(());
        }
        let mut all = JoinSet::new();
        for &algorithm in &kit.algorithms {
            let kit = Arc::clone(&kit);
            all.spawn(async move { kit.run_one(algorithm).await });
        }
        while let Some(one) = all.join_next().await {
            one.unwrap_or_else(|error| resume_unwind(error.into_panic()))?;
        }
        Ok(())
    }

    async fn run_one(&self, algorithm: Algorithm) -> Result<(), Violation> {
        if self.wants("decisions") {
            checks::decisions(self, algorithm).await?;
        }
        if self.wants("retry") {
            checks::retry(self, algorithm).await?;
        }
        if self.wants("expiry") {
            checks::expiry(self, algorithm).await?;
        }
        if self.wants("nothing written") {
            checks::nothing_written(self, algorithm).await?;
        }
        if self.wants("refunds") {
            checks::refunds(self, algorithm).await?;
        }
        if self.wants("reset") {
            checks::reset(self, algorithm).await?;
        }
        if self.wants("keys") {
            checks::keys(self, algorithm).await?;
        }
        if self.wants("racing") {
            checks::racing(self, algorithm).await?;
        }
        if self.wants("all or nothing") {
            checks::all_or_nothing(self, algorithm).await?;
        }
        if self.wants("dynamic quotas") && self.dynamic_quotas {
            checks::dynamic_quotas(self, algorithm).await?;
        }
        Ok(())
    }

    fn wants(&self, check: &str) -> bool {
        self.only.is_none_or(|only| only == check)
    }

    fn numbers(&self, check: &str) -> Numbers {
        Numbers::new(self.seed, check)
    }
}

impl fmt::Debug for Conformance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conformance")
            .field("algorithms", &self.algorithms)
            .field("leases", &self.leases)
            .field("dynamic_quotas", &self.dynamic_quotas)
            .field("sequences", &self.sequences)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

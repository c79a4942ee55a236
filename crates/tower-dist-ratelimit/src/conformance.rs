//! A test kit for authors of backends: the checks that every [`Backend`] has to pass.
//!
//! The kit compares each algorithm of a backend with the [`arithmetic`](crate::arithmetic). Then it looks for common
//! defects: concurrent tasks that exceed the limit, rejections that write, sets of policies that are charged in part,
//! keys that share a state, and used tokens that return too early or too late.
//!
//! ```
//! use std::time::Duration;
//! use tower_dist_ratelimit::backend::{BoxFuture, Memory};
//! use tower_dist_ratelimit::conformance::{Clock, Conformance};
//!
//! /// Tokio's paused clock, which the kit advances.
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

mod checks;
mod clock;
mod rng;
mod state_range;
mod subject;
mod violation;

use std::{fmt, sync::Arc, time::Duration};

use tokio::task::JoinSet;

use self::{
    checks::{CHECKS, NamedCheck},
    subject::Case,
};
pub use self::{
    clock::{Clock, Sleeping},
    violation::Violation,
};
use crate::{Algorithm, backend::Backend};

/// A run of the [conformance kit](crate::conformance) against a [`Backend`].
///
/// The kit uses its own policy names, so it can share a store with other users. If the store keeps the state of the
/// last run, give each run a new [`seed`](Self::seed).
///
/// # Default
///
/// All algorithms except staggered [fixed windows](Algorithm::FixedWindow). For each algorithm, 40 random sequences of
/// 40 requests, with [leases](Self::without_leases) and [dynamic quotas](Self::without_dynamic_quotas). Seed 1.
///
/// # Cost
///
/// A few thousand decisions per algorithm. If the clock cannot be paused, about 30 seconds in all.
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

/// All algorithms except staggered fixed windows. The kit replaces the `max_wait` of queues.
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

/// The result of a check.
type Checked = Result<(), Violation>;

impl Conformance {
    /// A run of all checks. The checks call `backend` many times. Each call has to return a new backend, or a handle to
    /// a shared store. `clock` controls the clock of these backends.
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

    /// Sets the algorithms that the backend supports. The backend's `register` has to accept each variant of
    /// [`Algorithm`] in this list, and to reject each variant that is missing. The kit replaces the `max_wait` of leaky
    /// queues.
    pub fn algorithms(mut self, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        self.algorithms = algorithms.into_iter().collect();
        self
    }

    /// Leaves out charges whose maximum grant, [`up_to`](crate::backend::Charge::up_to), is above their cost. Only
    /// [leases](crate::Consistency::Leased) need such charges.
    pub fn without_leases(mut self) -> Self {
        self.leases = false;
        self
    }

    /// Leaves out charges with a [`quota`](crate::backend::Charge::quota).
    pub fn without_dynamic_quotas(mut self) -> Self {
        self.dynamic_quotas = false;
        self
    }

    /// Sets the number of random sequences of requests per algorithm. For each sequence, the kit compares the backend's
    /// decisions with those of the [`arithmetic`](crate::arithmetic) module.
    pub fn sequences(self, sequences: u32) -> Self {
        Self { sequences, ..self }
    }

    /// Sets the seed of the random requests. The names of the policies, and most keys, contain the seed.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Runs only the check with this name. [`Violation::check`] lists the names.
    ///
    /// # Panics
    ///
    /// If no check has that name.
    pub fn only(self, check: &str) -> Self {
        let names = CHECKS.map(|(name, _)| name);
        let only = names.into_iter().find(|&name| name == check);
        assert!(only.is_some(), "no check is called {check:?}: {names:?}");
        Self { only, ..self }
    }

    /// Runs the check `building` for each variant of [`Algorithm`], and then the other checks for each supported
    /// algorithm. If [`only`](Self::only) was called, runs only the check that it names. If the clock's
    /// [grain](Clock::grain) is zero, the supported algorithms are checked one after the other, otherwise concurrently.
    ///
    /// # Errors
    ///
    /// Fails if a check finds that the backend breaks a promise of [`Backend`].
    ///
    /// # Panics
    ///
    /// If the backend or the clock panics. Can also panic outside of a tokio runtime.
    pub async fn run(self) -> Result<(), Violation> {
        let kit = Arc::new(self);
        let (building, others) = CHECKS.split_at(1);
        for algorithm in ALL {
            Arc::clone(&kit).run_checks(building, algorithm).await?;
        }
        let mut running = JoinSet::new();
        for &algorithm in &kit.algorithms {
            let one = Arc::clone(&kit).run_checks(others, algorithm);
            if kit.clock.grain().is_zero() {
                one.await?;
            } else {
                running.spawn(one);
            }
        }
        running.join_all().await.into_iter().collect()
    }

    /// Runs those of `checks` that are not left out. Adds the check and the algorithm to a violation.
    async fn run_checks(self: Arc<Self>, checks: &[NamedCheck], algorithm: Algorithm) -> Checked {
        for &(check, run) in checks {
            if self.only.is_some_and(|only| only != check) {
                continue;
            }
            let case = Case {
                kit: Arc::clone(&self),
                check,
                algorithm,
            };
            run(case).await.map_err(|violation| Violation {
                check,
                algorithm,
                ..violation
            })?;
        }
        Ok(())
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

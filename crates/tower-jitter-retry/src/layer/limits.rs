//! Time limits that end what is in flight, and with it create a new outcome.

use std::time::Duration;

use tower_attempt::Elapsed;

use super::RetryLayerBuilder;
use crate::{OnTimeout, StandardAnswer};

impl<P, O> RetryLayerBuilder<P, O> {
    /// How long an attempt may take until it is answered, from when it is sent. One that takes longer is
    /// dropped, and repeated if its request is idempotent. For services without a protocol, the rule decides:
    /// the default rule repeats it, and [`retry_if`](RetryLayerBuilder::retry_if) is asked about the timeout's answer.
    ///
    /// An [`AttemptTimeout`](crate::AttemptTimeout) in an HTTP request's extensions wins over it. Choose
    /// what the slowest good answers take, such as the 99.9th percentile.
    ///
    /// The last attempt's timeout is the call's answer. What it looks like is up to the service's error
    /// type, see [`TimeoutAnswer`](crate::TimeoutAnswer), or to [`on_timeout`](RetryLayerBuilder::on_timeout).
    ///
    /// # Default
    ///
    /// No limit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// let layer = RetryLayer::builder()
    ///     .http()
    ///     .attempt_timeout(Duration::from_millis(500))
    ///     .deadline(Duration::from_secs(2))
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn attempt_timeout(self, limit: Duration) -> RetryLayerBuilder<P, O, StandardAnswer> {
        self.limit(StandardAnswer).attempt_timeout(limit)
    }

    /// How long a call may take in all until it is answered: attempts, waits and readiness for further
    /// attempts. Then whatever it does is dropped.
    ///
    /// A [`Deadline`](crate::Deadline) in an HTTP request's extensions wins over it; a `grpc-timeout` only
    /// shortens it, since it comes from the other side.
    ///
    /// # Default
    ///
    /// No limit.
    pub fn deadline(self, limit: Duration) -> RetryLayerBuilder<P, O, StandardAnswer> {
        self.limit(StandardAnswer).deadline(limit)
    }
}

impl<P, O> RetryLayerBuilder<P, O, StandardAnswer> {
    /// How long an attempt may take until it is answered, from when it is sent.
    pub fn attempt_timeout(mut self, limit: Duration) -> Self {
        self.knobs.attempt_timeout = Some(limit);
        self
    }

    /// How long a call may take in all until it is answered.
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.knobs.deadline = Some(limit);
        self
    }

    /// What the caller gets when a time limit ran out.
    ///
    /// For error types that can't say it themselves, and for other answers than theirs.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_jitter_retry::{Elapsed, RetryLayer};
    ///
    /// #[derive(Debug)]
    /// enum StoreError {
    ///     Late(Elapsed),
    /// }
    ///
    /// let layer = RetryLayer::builder()
    ///     .deadline(Duration::from_secs(2))
    ///     .on_timeout(|elapsed| Err::<String, _>(StoreError::Late(elapsed)))
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn on_timeout<F, Res, E>(self, answer: F) -> RetryLayerBuilder<P, O, OnTimeout<F>>
    where
        F: Fn(Elapsed) -> Result<Res, E>,
    {
        self.limit(OnTimeout(answer))
    }
}

impl<P, O, T> RetryLayerBuilder<P, O, T> {
    fn limit<N>(self, limit: N) -> RetryLayerBuilder<P, O, N> {
        RetryLayerBuilder {
            protocol: self.protocol,
            observer: self.observer,
            limit,
            knobs: self.knobs,
        }
    }
}

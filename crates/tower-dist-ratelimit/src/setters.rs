//! The settings that the builders of layers and limiters share.

/// Adds the setters of `self.settings`.
macro_rules! shared_setters {
    () => {
        /// Sets the limit's name: the label `name` of its events, metrics and log lines.
        ///
        /// # Default
        ///
        /// The empty name.
        pub fn name(mut self, name: &str) -> Self {
            self.settings.emitter.name = name.into();
            self
        }

        /// Sets how to decide while the backend fails or is late.
        ///
        /// # Default
        ///
        /// [`FailureMode::Local`] with `instances: 1`. While the backend fails, every instance of a fleet then admits
        /// up to the whole limit.
        pub fn failure_mode(mut self, mode: FailureMode) -> Self {
            self.settings.failure_mode = mode;
            self
        }

        /// Maximum time that a request waits for an answer of the backend: above zero and at most one minute.
        ///
        /// The time starts when the limit queries the backend. An [asynchronous quota
        /// look-up](crate::Policy::quota_by_async) comes first, and has a timeout of the same length. Except in a
        /// [`Throttle`](crate::Throttle), the waiting request occupies the ready inner service of a layer. If that
        /// service limits concurrency, the request holds one of the service's permits.
        ///
        /// # Default
        ///
        /// 50 ms.
        pub fn backend_timeout(mut self, timeout: Duration) -> Self {
            self.settings.timeout = timeout;
            self
        }

        /// Sets how this instance shares its counts with the other instances of a fleet.
        ///
        /// # Default
        ///
        /// [`Consistency::Exact`].
        pub fn consistency(mut self, consistency: Consistency) -> Self {
            self.settings.set_consistency(consistency);
            self
        }

        /// Sets whether this instance caches the rejections of a remote backend.
        ///
        /// After a rejection, this instance usually rejects requests with the same keys and at least the same cost,
        /// without a round trip. It does so at most for the wait that the backend reported, and for at most 1 s. The
        /// backend would usually reject these requests, too. The main exceptions are refunds, resets and raised limits
        /// within that second, by another instance or another limiter.
        ///
        /// # Default
        ///
        /// `true`. The setting has no effect on [`Memory`](crate::backend::Memory).
        ///
        /// # Cost
        ///
        /// 100 kB per limiter or layer over a remote backend, 130 kB with dynamic quotas, and usually 400 bytes for each
        /// of at most 4,096 rejections.
        pub fn deny_cache(mut self, on: bool) -> Self {
            self.settings.deny_cache = on;
            self
        }

        /// Decides and charges without rejecting, to try limits out in production.
        ///
        /// The [observer](Self::observer) receives [`Event::Shadowed`](crate::Event::Shadowed) for each request that
        /// would be rejected, or would wait for tokens in a [`Throttle`](crate::Throttle). Clients see no difference:
        /// responses have no additional headers, and a failed backend or a missing key rejects no request. A slow
        /// backend delays requests as usual. The decisions of a [`Limiter`](crate::Limiter) are
        /// [`allowed`](crate::Decision::allowed), and grant no tokens where the limit would reject.
        ///
        /// # Default
        ///
        /// The limit rejects requests.
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")]
        /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
        /// use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};
        ///
        /// let limiter = Limiter::builder(Memory::default(), Policy::new("mails", Quota::per_hour(1))).shadow().build()?;
        /// let decisions = [limiter.check("alice").await?, limiter.check("alice").await?];
        /// assert_eq!(decisions.map(|one| (one.allowed, one.granted)), [(true, 1), (true, 0)]);
        /// # Ok(())
        /// # }
        /// ```
        pub fn shadow(mut self) -> Self {
            self.settings.shadow = true;
            self
        }

        /// Sets the observer of the limit's events, in place of an earlier one. An `Arc` of an observer is an observer,
        /// too, and so is a pair: `.observer((MetricsObserver::new(), TracingObserver))`.
        ///
        /// # Default
        ///
        /// No observer.
        pub fn observer(mut self, observer: impl crate::Observer) -> Self {
            self.settings.emitter.observer = Some(Arc::new(observer));
            self
        }
    };
}

pub(crate) use shared_setters;

use std::time::Duration;

use crate::Deadline;

/// Settings of one request that replace settings of a retry layer. Put the override into the extensions of an HTTP or
/// gRPC request.
///
/// Settings that the override leaves out keep the layer's values. An override never makes a request safe to resend. It
/// never changes the budget or the layer's
/// [`Mode`](https://docs.rs/tower-jitter-retry/latest/tower_jitter_retry/enum.Mode.html).
///
/// The override applies to every HTTP or gRPC retry layer whose requests carry it. Copies for further attempts carry
/// it, too. In one task, these layers together send at most `max_attempts` attempts. Hedges and their retries come on
/// top. A layer in another task, such as a task that a service spawns for each call, can add attempts.
///
/// `reqwest::Request` keeps its extensions private, so an override cannot reach a layer over reqwest's own requests.
/// The protocol [`Generic`](crate::Generic) reads no extensions: there a rule chooses the override
/// ([`RequestRule::retry_override`](crate::RequestRule::retry_override)).
///
/// # Default
///
/// Changes nothing.
///
/// # Cost
///
/// A request that carries an override costs a few allocations. Any other request costs at most a few look-ups in its
/// extensions.
///
/// ```
/// use std::time::Duration;
/// use tower_attempt::{Deadline, RetryOverride};
///
/// let mut request = http::Request::post("/orders").body(())?;
/// request.extensions_mut().insert(RetryOverride::disabled());
///
/// let patient = RetryOverride::new()
///     .max_attempts(5)
///     .attempt_timeout(Duration::from_secs(30))
///     .deadline(Deadline::after(Duration::from_secs(60)));
/// request.extensions_mut().insert(patient);
/// assert_eq!(request.extensions().get(), Some(&patient)); // replaces the first one
/// # Ok::<_, http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryOverride {
    #[doc(hidden)]
    pub max_attempts: Option<u32>,
    #[doc(hidden)]
    pub attempt_timeout: Option<Duration>,
    #[doc(hidden)]
    pub deadline: Option<Deadline>,
}

impl RetryOverride {
    /// An override that changes nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends no retry, as [`max_attempts(1)`](Self::max_attempts) does. The layer's time limits still apply.
    #[must_use]
    pub fn disabled() -> Self {
        Self::new().max_attempts(1)
    }

    /// Maximum number of attempts, the first included. It may exceed the layer's maximum. 0 counts as 1.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts.max(1));
        self
    }

    /// Time limit of each attempt, in a layer with an `attempt_timeout`, a `deadline` or an `on_timeout`. Other layers
    /// ignore this setting.
    ///
    /// `Duration::MAX` lifts the layer's limit. With zero, an attempt that is pending after its first poll has at most
    /// about a millisecond to end.
    #[must_use]
    pub fn attempt_timeout(mut self, limit: Duration) -> Self {
        self.attempt_timeout = Some(limit);
        self
    }

    /// The instant at which the caller stops waiting. No retry is scheduled for this instant or later.
    ///
    /// This deadline replaces the layer's `retry_until` and `deadline`. In a layer with an `attempt_timeout`, a
    /// `deadline` or an `on_timeout`, this deadline also ends the call. [`Deadline::NEVER`] removes
    /// `retry_until` and `deadline`, but not an `attempt_timeout`. A `grpc-timeout` may end the call earlier.
    ///
    /// Over HTTP and gRPC, hedge layers honour this deadline, too, unless the request has a [`HedgeOverride`] with a
    /// deadline.
    #[must_use]
    pub fn deadline(mut self, deadline: Deadline) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

/// Settings of one request that replace settings of a hedge layer. Put the override into the extensions of an HTTP or
/// gRPC request.
///
/// Settings that the override leaves out keep the layer's values. An override never hedges a request that must not be
/// hedged. It does not change the budget. If the layer's
/// [`Mode`](https://docs.rs/tower-hedge-latency/latest/tower_hedge_latency/enum.Mode.html) is `Off` or `Shadow`, an
/// override sends no hedge.
///
/// The override applies to every HTTP or gRPC hedge layer whose requests carry it. In a hedge layer below a retry
/// layer, it applies to each attempt of the retry layer. An HTTP or gRPC hedge layer does not hedge a hedge.
///
/// `reqwest::Request` keeps its extensions private, so an override cannot reach a layer over reqwest's own requests.
/// The protocol [`Generic`](crate::Generic) reads no extensions: there a rule chooses the override
/// ([`RequestRule::hedge_override`](crate::RequestRule::hedge_override)).
///
/// # Default
///
/// Changes nothing.
///
/// # Cost
///
/// A request that carries an override costs a few allocations. Any other request costs at most a few look-ups in its
/// extensions.
///
/// ```
/// use std::time::Duration;
/// use tower_attempt::HedgeOverride;
///
/// // Known to be slow: hedges after one and two seconds instead of the learned delay.
/// let slow = HedgeOverride::new().delay(Duration::from_secs(1)).max_hedges(2);
/// let request = http::Request::get("/report").extension(slow).body(())?;
/// assert_eq!(request.extensions().get(), Some(&slow));
/// # Ok::<_, http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HedgeOverride {
    #[doc(hidden)]
    pub delay: Option<Duration>,
    #[doc(hidden)]
    pub max_hedges: Option<u32>,
    #[doc(hidden)]
    pub deadline: Option<Deadline>,
}

impl HedgeOverride {
    /// An override that changes nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends no hedge, as [`max_hedges(0)`](Self::max_hedges) does. The layer learns nothing from the call, and
    /// deposits into no budget except a [`grpc_throttle`](crate::Budget::grpc_throttle).
    #[must_use]
    pub fn disabled() -> Self {
        Self::new().max_hedges(0)
    }

    /// Delay between hedges: hedge k is due after k times the delay, counted from the call's start. This delay replaces
    /// the layer's trigger.
    ///
    /// Without [`max_hedges`](Self::max_hedges), the layer's number of hedges stays. A layer that learns a percentile
    /// learns nothing from the call.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Maximum number of hedges. It may exceed the layer's maximum. A value above 100 counts as 100. A layer with
    /// `delays` sends at most one hedge for each delay, unless this override has a [`delay`](Self::delay).
    #[must_use]
    pub fn max_hedges(mut self, hedges: u32) -> Self {
        self.max_hedges = Some(hedges.min(100));
        self
    }

    /// The instant at which the caller stops waiting. No hedge starts then or later. Over gRPC, an earlier end of a
    /// `grpc-timeout` has the same effect.
    ///
    /// # Default
    ///
    /// For HTTP and gRPC, the deadline of the request's [`RetryOverride`], if that override has one. Otherwise, no
    /// deadline.
    #[must_use]
    pub fn deadline(mut self, deadline: Deadline) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_clamped() {
        let retry = RetryOverride::new().max_attempts(0);
        assert_eq!(retry, RetryOverride::disabled());
        assert_eq!(retry.max_attempts, Some(1));
        let hedge = HedgeOverride::new().max_hedges(u32::MAX);
        assert_eq!(hedge.max_hedges, Some(100));
    }
}

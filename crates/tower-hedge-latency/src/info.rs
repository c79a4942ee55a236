use std::time::Duration;

use tower_attempt::Attempt;

/// What a hedge layer did for a call, in the extensions of its HTTP response.
///
/// It is there when a hedge was sent, whoever won. A response without one is that of a call with a
/// single attempt.
///
/// ```
/// use tower_hedge_latency::{AttemptKind, HedgeInfo};
///
/// fn was_overtaken<B>(response: &http::Response<B>) -> bool {
///     let info = response.extensions().get::<HedgeInfo>();
///     info.is_some_and(|info| info.winner().kind() == AttemptKind::Hedge)
/// }
/// # assert!(!was_overtaken(&http::Response::new(())));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HedgeInfo {
    winner: Attempt,
    attempts: u32,
    delay: Duration,
}

impl HedgeInfo {
    pub(crate) fn new(winner: Attempt, attempts: u32, delay: Duration) -> Self {
        Self {
            winner,
            attempts,
            delay,
        }
    }

    /// The attempt whose outcome this is.
    #[must_use]
    pub fn winner(&self) -> Attempt {
        self.winner
    }

    /// How many attempts were sent, the first included.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// When the first hedge was due, as an offset from the call's start.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }
}

use std::time::Duration;

use tower_attempt::Attempt;

/// A hedge layer's report on a call, in the extensions of its HTTP or gRPC response.
///
/// A response has a report if a hedge was sent, whichever attempt won. A response without a report comes from a call
/// with a single attempt.
///
/// ```
/// use tower_hedge_latency::{AttemptKind, HedgeInfo};
///
/// fn was_overtaken<B>(response: &http::Response<B>) -> bool {
///     let info = response.extensions().get::<HedgeInfo>();
///     let winner = info.and_then(|info| info.winner);
///     winner.is_some_and(|winner| winner.kind() == AttemptKind::Hedge)
/// }
/// # assert!(!was_overtaken(&http::Response::new(())));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HedgeInfo {
    /// The attempt that succeeded with this response, or `None` if no attempt succeeded.
    pub winner: Option<Attempt>,
    /// The number of attempts that were sent, the first one included.
    pub attempts: u32,
    /// The trigger's delay from the call's start to the first hedge. The hedge may have been sent at another time:
    /// after a failed attempt, after a server's pushback, or when its service became ready.
    pub delay: Duration,
}

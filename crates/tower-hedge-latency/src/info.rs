use std::time::Duration;

use tower_attempt::Attempt;

/// The report of an HTTP or gRPC hedge layer on a call, in the extensions of the call's response.
///
/// The layer adds a report if it sent a hedge, whichever attempt won. The report replaces the report of a hedge layer
/// below. If the layer sent no hedge, the report of a layer below stays.
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
    /// The trigger's delay from the call's start to the first hedge. That hedge may have been sent earlier, for example
    /// because an attempt failed, or later, for example because its service was not ready. If the first hedge was
    /// [skipped](crate::SkipReason), this report exists because a later hedge was sent.
    pub delay: Duration,
}

//! The peers, built as in their documentation.

use std::time::Duration;

use tower::Layer;
use tower::hedge::{Hedge, Policy};
use tower_resilience_hedge::HedgeLayer;

use super::inner::Inner;

/// tower's hedge at the 95th percentile, with a histogram full of `delay`. tower reads the previous window, so the
/// period is longer than any run.
pub(super) fn tower<S>(inner: S, delay: Duration) -> Hedge<S, Always>
where
    S: Inner,
{
    let millis = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
    let (samples, period) = ([millis; 100], Duration::from_secs(24 * 3600));
    Hedge::new_with_mock_latencies(inner, Always, 10, 0.95, period, &samples)
}

/// tower-resilience's hedge with a fixed delay, its only kind.
pub(super) fn resilience<S>(inner: S, delay: Duration) -> tower_resilience_hedge::Hedge<S>
where
    S: Inner,
{
    let layer = HedgeLayer::builder().delay(delay).max_hedged_attempts(2);
    layer.build().layer(inner)
}

/// Every request may be sent twice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Always;

impl Policy<u64> for Always {
    fn clone_request(&self, request: &u64) -> Option<u64> {
        Some(*request)
    }

    fn can_retry(&self, _: &u64) -> bool {
        true
    }
}

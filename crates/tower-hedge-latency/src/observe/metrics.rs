use tower_attempt::{Attempt, AttemptKind};

use super::{Observer, SkipReason};

/// Counts what a hedge layer does with the `metrics` facade.
///
/// | metric | kind | labels |
/// |---|---|---|
/// | `hedge_attempts_total` | counter | `kind`: `primary`, `hedge` |
/// | `hedge_skipped_total` | counter | `reason`: `denied`, `held_back`, `not_ready`, `not_repeatable`, `shadow` |
/// | `hedge_calls_total` | counter | `winner`: `primary`, `hedge`, `none` if no attempt succeeded, `cancelled` |
///
/// The delays that are learned come from [`HedgeHandle`](crate::HedgeHandle).
///
/// # Cost
///
/// Two look-ups in the recorder per call, more when it is hedged.
///
/// ```
/// use tower_hedge_latency::{HedgeLayer, MetricsObserver};
///
/// let layer = HedgeLayer::builder().observer(MetricsObserver).http().build()?;
/// # let _ = layer;
/// # Ok::<_, tower_hedge_latency::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MetricsObserver;

impl Observer for MetricsObserver {
    fn attempt_started(&self, attempt: &Attempt) {
        metrics::counter!("hedge_attempts_total", "kind" => kind(attempt)).increment(1);
    }

    fn hedge_skipped(&self, _: &Attempt, reason: SkipReason) {
        let reason = match reason {
            SkipReason::Denied => "denied",
            SkipReason::HeldBack => "held_back",
            SkipReason::NotReady => "not_ready",
            SkipReason::NotRepeatable => "not_repeatable",
            SkipReason::Shadow => "shadow",
        };
        metrics::counter!("hedge_skipped_total", "reason" => reason).increment(1);
    }

    fn finished(&self, winner: Option<&Attempt>) {
        ended(winner.map_or("none", kind));
    }

    fn cancelled(&self) {
        ended("cancelled");
    }
}

fn kind(attempt: &Attempt) -> &'static str {
    match attempt.kind() {
        AttemptKind::Hedge => "hedge",
        _ => "primary",
    }
}

fn ended(winner: &'static str) {
    metrics::counter!("hedge_calls_total", "winner" => winner).increment(1);
}

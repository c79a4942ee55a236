use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tower_attempt::{Attempt, AttemptKind};

use super::{Observer, SkipReason};

/// Writes what a hedge layer does to `tracing`.
///
/// Target `tower_hedge_latency`; a call that ends before its first hedge is due writes nothing. All
/// events of one call have the same number as `call`, which links its attempts; what else they are
/// part of, the span says in which the call is polled. Each call has a clone: in an [`Arc`](std::sync::Arc), of which all
/// clones are one, all calls have the same number.
///
/// | event | level | fields |
/// |---|---|---|
/// | `hedging` | DEBUG | `call`, `attempt` that is sent |
/// | `hedge skipped` | DEBUG | `call`, `attempt`, `reason` |
/// | `attempt failed` | DEBUG | `call`, `attempt` |
/// | `won` | DEBUG | `call`, `attempt` |
/// | `no attempt succeeded` | DEBUG | `call` |
/// | `cancelled` | DEBUG | `call` |
///
/// ```
/// use tower_hedge_latency::{HedgeLayer, TracingObserver};
///
/// let layer = HedgeLayer::builder().observer(TracingObserver::default()).http().build()?;
/// # let _ = layer;
/// # Ok::<_, tower_hedge_latency::BuildError>(())
/// ```
#[derive(Debug, Default)]
pub struct TracingObserver {
    /// Numbered when there is something to tell; 0 until then.
    call: AtomicU64,
}

/// Each call has a clone of its own, and with it a number of its own.
impl Clone for TracingObserver {
    fn clone(&self) -> Self {
        Self::default()
    }
}

const TARGET: &str = "tower_hedge_latency";

/// The last number of a call.
static CALLS: AtomicU64 = AtomicU64::new(0);

impl TracingObserver {
    /// The call's number.
    fn call(&self) -> u64 {
        self.told().unwrap_or_else(|| {
            let call = CALLS.fetch_add(1, Relaxed) + 1;
            self.call.store(call, Relaxed);
            call
        })
    }

    /// Its number, if anything was told of it.
    fn told(&self) -> Option<u64> {
        Some(self.call.load(Relaxed)).filter(|call| *call > 0)
    }
}

impl Observer for TracingObserver {
    fn attempt_started(&self, attempt: &Attempt) {
        if attempt.kind() == AttemptKind::Hedge {
            let (call, attempt) = (self.call(), attempt.number());
            tracing::debug!(target: TARGET, call, attempt, "hedging");
        }
    }

    fn hedge_skipped(&self, attempt: &Attempt, reason: SkipReason) {
        let (call, attempt) = (self.call(), attempt.number());
        tracing::debug!(target: TARGET, call, attempt, ?reason, "hedge skipped");
    }

    fn attempt_failed(&self, attempt: &Attempt) {
        let (call, attempt) = (self.call(), attempt.number());
        tracing::debug!(target: TARGET, call, attempt, "attempt failed");
    }

    fn finished(&self, winner: Option<&Attempt>) {
        match (self.told(), winner) {
            (Some(call), Some(winner)) => {
                tracing::debug!(target: TARGET, call, attempt = winner.number(), "won");
            }
            (Some(call), None) => {
                tracing::debug!(target: TARGET, call, "no attempt succeeded");
            }
            (None, _) => {}
        }
    }

    fn cancelled(&self) {
        if let Some(call) = self.told() {
            tracing::debug!(target: TARGET, call, "cancelled");
        }
    }
}

use std::{sync::Arc, time::Duration};

use super::{Event, Observer};

/// Writes events as log lines with [`tracing`](https://docs.rs/tracing).
///
/// The target is `tower_dist_ratelimit`. The outcome `Allowed` writes no line.
///
/// | line | level | fields |
/// |---|---|---|
/// | `rejected` | DEBUG | `reason`; `violated` policies; `retry_after_ms`, if waiting helps and the wait is known |
/// | `would have been rejected`, for a [shadow](crate::RateLimitLayerBuilder::shadow) | INFO | the fields of `rejected` |
/// | `undecided`: the [failure mode](crate::FailureMode) decides | DEBUG | `error`: why the backend did not decide |
/// | `waited` | DEBUG | `waited_ms`, the wait in a throttle or a leaky queue |
/// | `cancelled` | DEBUG | |
///
/// Each line also has the limit's `name`, unless it is empty. Rejections are DEBUG so that an attacker cannot flood
/// your logs. The limit logs changes of its circuit breaker itself, even without this observer.
///
/// ```
/// use std::convert::Infallible;
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, TracingObserver, backend::Memory};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let layer = RateLimitLayer::builder(Memory::default())
///     .name("public-api")
///     .limit(Policy::new("all", Quota::per_second(1)))
///     .observer(TracingObserver)
///     .build()?;
///
/// let service = layer.layer(service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello")))));
/// assert_eq!(service.clone().oneshot(Request::new(())).await?.status(), 200);
/// assert_eq!(service.oneshot(Request::new(())).await?.status(), 429); // logged as `rejected`
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingObserver;

const TARGET: &str = "tower_dist_ratelimit";

/// Returns a duration in milliseconds, rounded up.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Writes the log line of a rejection.
macro_rules! rejection {
    ($level:ident, $name:expr, $rejection:expr, $line:literal) => {
        tracing::$level!(
            target: TARGET,
            name = $name,
            reason = ?$rejection.reason(),
            violated = ?$rejection.violated().collect::<Vec<_>>(),
            retry_after_ms = $rejection.retry_after().map(millis),
            $line
        )
    };
}

impl Observer for TracingObserver {
    fn on_event(&self, name: &Arc<str>, event: Event<'_>) {
        let name = Some(&**name).filter(|name| !name.is_empty());
        match event {
            Event::Rejected(one) => rejection!(debug, name, one, "rejected"),
            Event::Shadowed(one) => rejection!(info, name, one, "would have been rejected"),
            Event::BackendFailed(error) => {
                tracing::debug!(target: TARGET, name, %error, "undecided");
            }
            Event::Waited(waited) => {
                tracing::debug!(target: TARGET, name, waited_ms = millis(waited), "waited");
            }
            Event::Cancelled => tracing::debug!(target: TARGET, name, "cancelled"),
            Event::Allowed(_) | Event::CircuitOpened(_) | Event::CircuitClosed => {}
        }
    }
}

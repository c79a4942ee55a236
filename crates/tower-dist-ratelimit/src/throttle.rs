mod future;
mod lines;
mod service;
mod turn;

use std::{fmt, sync::Arc, time::Duration};

use tower_layer::Layer;

use self::lines::WaitingLines;
pub use self::{future::ThrottleFuture, service::Throttle};
use crate::{backend::BackendError, call::Calls};

/// Delays requests to a service until its limit admits them: for requests that your program sends, to stay within the
/// receiver's limit.
///
/// - The service is always ready. A call waits for its turn, then makes a clone of the inner service ready and calls it. During
///   the wait it reserves no capacity of the inner service.
/// - Requests with the same keys pass in the order of their calls. Only the first of them queries the backend.
/// - A request that would certainly wait longer than `max_wait` is rejected immediately with
///   [`Reason::TooLong`](crate::Reason::TooLong). If the wait is uncertain, the request is rejected after `max_wait`.
/// - A request that finds `max_waiters` waiting requests is rejected with [`Reason::QueueFull`](crate::Reason::QueueFull). A
///   request that can never pass is rejected with [`Reason::Quota`](crate::Reason::Quota).
/// - A call that is dropped gives its place to the requests behind it and returns its tokens. A place in a
///   [leaky queue](crate::Policy::leaky_queue) stays taken, because later requests already have their times. Such a queue is no
///   longer than `max_wait`.
///
/// Build it with [`CallLimitLayer::builder`](crate::CallLimitLayer::builder) and
/// [`waiting`](crate::CallLimitLayerBuilder::waiting). Services and clones of one layer share one queue.
///
/// Clients of gRPC and HTTP wait in the same way. Around a `tonic` channel the layer is a
/// `ThrottleLayer<http::Request<tonic::body::Body>>`. A rejected call fails with the status `UNKNOWN`, whose source is the
/// [`LimitError`](crate::LimitError).
///
/// Waits end on the millisecond, like tokio's timers. Above 1,000 requests per second, the burst must cover at least the
/// requests of one or two milliseconds. Otherwise the throughput stays below the limit.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tokio::time::Instant;
/// use tower::{Layer, Service, ServiceExt, service_fn};
/// use tower_dist_ratelimit::{CallLimitLayer, Policy, Quota, backend::Memory};
///
/// struct Request { host: &'static str }
///
/// let layer = CallLimitLayer::builder(Memory::default())
///     .limit(Policy::new("per-host", Quota::per_second(10).burst(1)).by_request(|request: &Request| request.host))
///     .waiting()
///     .max_wait(Duration::from_secs(5))
///     .build()?;
/// let mut service = layer.layer(service_fn(async |_: Request| Ok::<_, std::io::Error>(())));
///
/// let started = Instant::now();
/// for _ in 0..3 {
///     service.ready().await?.call(Request { host: "example.com" }).await?;
/// }
/// assert_eq!(started.elapsed(), Duration::from_millis(200));
/// # Ok(())
/// # }
/// ```
pub struct ThrottleLayer<Req> {
    calls: Arc<Calls<Req>>,
    lines: Arc<WaitingLines>,
}

impl<Req> ThrottleLayer<Req> {
    pub(crate) fn new(calls: Arc<Calls<Req>>, max_wait: Duration, max_waiters: usize) -> Self {
        Self {
            calls,
            lines: Arc::new(WaitingLines::new(max_wait, max_waiters)),
        }
    }

    /// Returns the unused tokens of [leases](crate::Consistency::Leased) before this instance shuts down. See
    /// [`Limiter::return_leases`](crate::Limiter::return_leases).
    ///
    /// # Errors
    ///
    /// Fails if the backend fails or times out, or while the circuit is open.
    pub async fn return_leases(&self) -> Result<(), BackendError> {
        self.calls.limits.return_leases().await
    }
}

impl<S, Req> Layer<S> for ThrottleLayer<Req> {
    type Service = Throttle<S, Req>;

    fn layer(&self, inner: S) -> Self::Service {
        let layer = self.clone();
        Throttle { inner, layer }
    }
}

impl<Req> Clone for ThrottleLayer<Req> {
    fn clone(&self) -> Self {
        Self {
            calls: Arc::clone(&self.calls),
            lines: Arc::clone(&self.lines),
        }
    }
}

impl<Req> fmt::Debug for ThrottleLayer<Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleLayer")
            .field("policies", &self.calls.limits)
            .field("max_wait", &self.lines.max_wait)
            .finish_non_exhaustive()
    }
}

mod future;
mod lines;
mod service;
mod turn;

use std::{fmt, sync::Arc, time::Duration};

use tower_layer::Layer;

use self::lines::Lines;
pub use self::{future::ThrottleFuture, service::Throttle};
use crate::{backend::BackendError, call::Calls};

/// Lets requests to a service wait until its limit has room for them: for what your program sends, to stay within the
/// limit of whom it sends to.
///
/// - The service is ready at once. A call asks for its turn, waits, and readies a clone of the inner service when its turn has
///   come: nothing that the inner service's readiness holds is held while waiting.
/// - Requests of the same keys pass in the order of their calls, and only the first of them asks the store.
/// - A request that would have to wait for longer than `max_wait` is rejected at once, if that is certain, with
///   [`Reason::TooLong`](crate::Reason::TooLong); else when that time is over. When `max_waiters` are waiting already, it is rejected
///   with [`Reason::QueueFull`](crate::Reason::QueueFull). What can never pass is rejected with
///   [`Reason::Quota`](crate::Reason::Quota).
/// - Who is dropped gives its place to those behind it, and its tokens back if it has some. A place in a
///   [leaky queue](crate::Policy::leaky_queue) stays taken, because those behind it have their times already; such a queue is no
///   longer than `max_wait`.
///
/// It is built by [`CallLimitLayer::builder`](crate::CallLimitLayer::builder) and
/// [`waiting`](crate::CallLimitLayerBuilder::waiting). Services and clones of one layer share one queue.
///
/// A client of gRPC or HTTP waits like any other: around a `tonic` channel the layer is a
/// `ThrottleLayer<http::Request<tonic::body::Body>>`, and a call that is rejected fails with the status `UNKNOWN`, whose source is
/// the [`LimitError`](crate::LimitError).
///
/// Waits end on the millisecond, as tokio's timers do. Above a thousand requests a second, let the burst be as large as
/// what comes in a millisecond or two, or the limit is not reached.
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
    gate: Arc<Gate<Req>>,
}

/// The settings and the state of one layer, shared by all its services.
struct Gate<Req> {
    calls: Arc<Calls<Req>>,
    lines: Arc<Lines>,
    max_wait: Duration,
}

impl<Req> ThrottleLayer<Req> {
    pub(crate) fn new(calls: Arc<Calls<Req>>, max_wait: Duration, max_waiters: usize) -> Self {
        let gate = Gate {
            calls,
            lines: Arc::new(Lines::new(max_waiters)),
            max_wait,
        };
        Self {
            gate: Arc::new(gate),
        }
    }

    /// Gives back what is left of [leases](crate::Consistency::Leased), when this instance is shut down. See
    /// [`Limiter::return_leases`](crate::Limiter::return_leases).
    ///
    /// # Errors
    ///
    /// If the store fails or is late.
    pub async fn return_leases(&self) -> Result<(), BackendError> {
        self.gate.calls.limits.return_leases().await
    }
}

impl<S, Req> Layer<S> for ThrottleLayer<Req> {
    type Service = Throttle<S, Req>;

    fn layer(&self, inner: S) -> Self::Service {
        Throttle::new(inner, Arc::clone(&self.gate))
    }
}

impl<Req> Clone for ThrottleLayer<Req> {
    fn clone(&self) -> Self {
        Self {
            gate: Arc::clone(&self.gate),
        }
    }
}

impl<Req> fmt::Debug for ThrottleLayer<Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleLayer")
            .field("policies", &self.gate.calls.limits)
            .field("max_wait", &self.gate.max_wait)
            .finish_non_exhaustive()
    }
}

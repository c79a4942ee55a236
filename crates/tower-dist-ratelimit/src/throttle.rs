mod future;
mod service;
mod turn;
mod wait_queues;

pub use self::future::ThrottleFuture;
pub(crate) use self::wait_queues::WaitQueues;
use crate::{CallLimit, CallLimitLayer, Waits};

/// Delays requests to a service until the layer's limit admits them. Use it for requests that your program sends, to
/// stay within the receiver's limit.
///
/// - The service is always ready. A call waits for its turn, then makes a clone of the inner service ready and calls
///   it. During the wait it reserves no capacity of the inner service.
/// - Waiting requests with the same keys usually pass in the order of their calls. Usually, only the first of them
///   queries the backend.
/// - A request that would probably wait longer than [`max_wait`](crate::CallLimitLayerBuilder::max_wait) is rejected
///   immediately with [`Reason::TooLong`](crate::Reason::TooLong). If the wait is unknown, the request waits, and is
///   rejected if its turn has not come after `max_wait`.
/// - If [`max_waiters`](crate::CallLimitLayerBuilder::max_waiters) requests are already waiting, a request that has to
///   wait for tokens is usually rejected with [`Reason::QueueFull`](crate::Reason::QueueFull). A request that can never
///   pass is normally rejected with [`Reason::Quota`](crate::Reason::Quota). With
///   [`FailureMode::Local`](crate::FailureMode::Local), a request that costs more than this instance's share of a burst
///   can be rejected with [`Reason::ReducedCapacity`](crate::Reason::ReducedCapacity) during a failure of the backend
///   and for some seconds after it.
/// - A call that is dropped before it calls the inner service gives its place to the requests behind it, and usually
///   returns its tokens. A place in a [leaky queue](crate::Policy::leaky_queue) stays taken, because later requests
///   already have their times. The layer limits the waits in a leaky queue to `max_wait`, too.
///
/// Build the layer with [`CallLimitLayer::builder`](crate::CallLimitLayer::builder) and
/// [`waiting`](crate::CallLimitLayerBuilder::waiting). Services and clones of one layer share its queues of waiting
/// requests: one queue for each combination of keys. `max_waiters` counts the requests in all of these queues.
///
/// The layer can also wrap gRPC and HTTP clients. For a `tonic` channel, the type of the layer is
/// `ThrottleLayer<http::Request<tonic::body::Body>>`. A rejected gRPC call fails with the status `UNKNOWN`,
/// whose source is the [`LimitError`](crate::LimitError).
///
/// Waits end on the millisecond, like tokio's timers. Above 1,000 requests per second, the burst must cover at least
/// the requests of one or two milliseconds. Otherwise the throughput stays below the limit.
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
pub type ThrottleLayer<Req> = CallLimitLayer<Req, Waits>;

/// A service whose requests wait for their turn, from [`ThrottleLayer`].
///
/// The service is always ready. A call clones the inner service and waits for its turn. Then it makes the clone ready
/// and calls the clone. A rejected call fails with [`LimitError::RateLimited`](crate::LimitError::RateLimited), without
/// a call of the inner service. If the clone fails to become ready, the call fails with
/// [`LimitError::Inner`](crate::LimitError::Inner).
pub type Throttle<S, Req> = CallLimit<S, Req, Waits>;

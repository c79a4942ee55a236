use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::Response;
use http_body::Body;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Losers;

/// Default maximum number of concurrent tasks. It bounds the connections that losers occupy.
const CAPACITY: usize = 64;
/// Default time limit of a task. A new connection is usually cheaper than a longer wait.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Default number of bytes after which a task stops reading. Reading more usually costs more than a new connection.
const BODY_LIMIT: u64 = 64 * 1024;

/// Lets losers, the attempts that another attempt has overtaken, end in the background, so that their connections stay
/// usable.
///
/// Dropping a pending HTTP/1 response closes its connection, and a later request may have to open a new one. Over
/// HTTP/2 a drop only resets a stream, and the connection stays usable without draining.
///
/// With both protocols, use a `Drain` above a balancer that measures latency, such as tower's p2c `Balance` with
/// `PeakEwma`. This load metric records a dropped attempt with the time until it was dropped. So a slow endpoint looks
/// faster than it is, and the balancer keeps choosing it. Make [`time_limit`](Self::time_limit) longer than the slowest
/// responses. Latency measured with ten endpoints, one of them ten times slower, and hedges after 20 ms:
///
/// | hedges | 99th percentile | 99.9th percentile |
/// |---|---|---|
/// | none | 20 ms | 125 ms |
/// | with dropped losers | 36 ms | 40 ms |
/// | with drained losers | 20 ms | 32 ms |
///
/// A background task awaits a loser's response and reads its body to the end. Another task reads the body of a failed
/// response that the caller does not receive. A task that exceeds [`time_limit`](Self::time_limit) or
/// [`body_limit`](Self::body_limit) drops the loser or the failed response. If [`capacity`](Self::capacity) tasks are
/// running, a further loser or failed response is dropped immediately.
///
/// When the layer, its services and all clones of its `Drain` are dropped, all draining losers are dropped. If a caller
/// drops a call, the call's attempts in flight are dropped.
///
/// # Default
///
/// 64 concurrent tasks, 10 s and 64 KiB for each.
///
/// # Cost
///
/// Each attempt's future is boxed, also the first. A loser takes a task and a lock, and keeps a server busy with work
/// that is no longer needed.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
/// use std::time::Duration;
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Empty;
/// use tokio::time::sleep;
/// use tower::{BoxError, Layer, ServiceExt, service_fn};
/// use tower_hedge_latency::{Drain, HedgeLayer};
///
/// static ENDED: AtomicU32 = AtomicU32::new(0);
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), BoxError> {
/// let layer = HedgeLayer::builder()
///     .http()
///     .fixed(Duration::from_millis(20))
///     .drain(Drain::default().capacity(16).time_limit(Duration::from_secs(1)))
///     .build()?;
/// let service = layer.layer(service_fn(|_: Request<_>| async {
///     sleep(Duration::from_millis(50)).await;
///     ENDED.fetch_add(1, Relaxed);
///     Ok::<_, BoxError>(Response::new(String::new()))
/// }));
/// service.oneshot(Request::new(Empty::<Bytes>::new())).await?;
/// sleep(Duration::from_millis(30)).await;
/// assert_eq!(ENDED.load(Relaxed), 2); // the loser also ends
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Drain {
    capacity: usize,
    time_limit: Duration,
    body_limit: u64,
    pool: Arc<LoserTasks>,
}

#[derive(Debug, Default)]
struct LoserTasks {
    /// Aborts the remaining tasks when it is dropped.
    tasks: Mutex<JoinSet<()>>,
    dropped: AtomicU64,
}

impl Drain {
    /// Maximum number of [losers](Self) and failed responses that are drained concurrently. The number is a total over
    /// all clones of this `Drain`, and so over all services of the layer. If it is 0, all losers and failed responses
    /// are dropped.
    #[must_use]
    pub fn capacity(mut self, losers: usize) -> Self {
        self.capacity = losers;
        self
    }

    /// Maximum duration of the background task that drains a [loser](Self) or a failed response.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Maximum size of a drained response body, in bytes.
    #[must_use]
    pub fn body_limit(mut self, bytes: u64) -> Self {
        self.body_limit = bytes;
        self
    }

    /// Returns the number of [losers](Self) and failed responses that were dropped without draining. The reason is that
    /// the maximum [`capacity`](Self::capacity) was reached, or that the call was polled outside a tokio runtime.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.pool.dropped.load(Relaxed)
    }

    fn spawn(&self, loser: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.pool.tasks.lock();
        let tasks = tasks.as_mut().unwrap_or_else(PoisonError::get_mut);
        while tasks.try_join_next().is_some() {}
        match Handle::try_current() {
            Ok(runtime) if tasks.len() < self.capacity => {
                let time_limit = self.time_limit;
                let bounded = async move {
                    // A loser that exceeds the limit is dropped here.
                    let _ = timeout(time_limit, loser).await;
                };
                tasks.spawn_on(bounded, &runtime);
            }
            _ => {
                self.pool.dropped.fetch_add(1, Relaxed);
            }
        }
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            capacity: CAPACITY,
            time_limit: TIME_LIMIT,
            body_limit: BODY_LIMIT,
            pool: Arc::default(),
        }
    }
}

impl<F, B, E> Losers<F> for Drain
where
    F: Future<Output = Result<Response<B>, E>> + Send + 'static,
    B: Body + Send + 'static,
    E: 'static,
{
    /// Boxed, so that a loser can be moved from its call to a background task.
    type Attempt = Pin<Box<F>>;

    fn hold(&self, future: F) -> Pin<Box<F>> {
        Box::pin(future)
    }

    fn dispose(&self, mut attempt: Pin<&mut Option<Pin<Box<F>>>>) {
        if let Some(attempt) = attempt.take() {
            let limit = self.body_limit;
            self.spawn(async move {
                let Ok(response) = attempt.await else { return };
                read(response.into_body(), limit).await;
            });
        }
    }

    fn discard(&self, failure: Result<Response<B>, E>) {
        if let Ok(response) = failure
            && !response.body().is_end_stream()
        {
            self.spawn(read(response.into_body(), self.body_limit));
        }
    }
}

/// Reads a body until it ends or fails, or until more than `limit` bytes have come.
async fn read<B: Body>(body: B, limit: u64) {
    let mut body = pin!(body);
    let mut length = 0_u64;
    while let Some(Ok(frame)) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        if let Ok(data) = frame.into_data() {
            let bytes = bytes::Buf::remaining(&data);
            length = length.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        }
        if length > limit {
            return;
        }
    }
}

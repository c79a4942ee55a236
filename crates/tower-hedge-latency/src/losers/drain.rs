use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Response;
use http_body::Body;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Holds, Losers};

/// As many losers as a client keeps idle connections to one host at most, if it keeps many.
const CAPACITY: usize = 64;
/// A connection is worth no longer wait than it takes to open some hundred others.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Reading more than this costs more than a new connection.
const BODY_LIMIT: u64 = 64 * 1024;

/// Lets losers end in the background, so that their connections can be used again.
///
/// To drop an HTTP/1 response that has not come yet closes its connection, and the next request pays
/// for a new one. Over HTTP/2 it only resets a stream, so there draining gains nothing.
///
/// Use it above a balancer that measures latency, such as tower's p2c `Balance` with `PeakEwma`. A load metric records a
/// dropped attempt with the time until it was dropped. So a slow endpoint looks as fast as its hedges, and the balancer
/// keeps choosing it. Measured with ten endpoints, one of them ten times slower, and hedges after 20 ms: the 99th
/// percentile was 20 ms without hedges, 36 ms with dropped losers, and 20 ms with drained ones; the 99.9th was 125,
/// 40 and 32 ms. Make [`time_limit`](Self::time_limit) longer than the slowest answers.
///
/// A loser's response is awaited and its body read to the end, and so is the body of one that failed
/// while others were in flight; it is dropped after all when that takes too long or the body is too large. When as many are draining as the pool holds, a further loser is
/// dropped at once. What drains is dropped with the layer and its services. The attempts of a call
/// that its caller gives up are always dropped.
///
/// # Default
///
/// 64 at once, 10 s and 64 KiB for each.
///
/// # Cost
///
/// Each attempt's future is boxed, also the first. A loser takes a task and a lock. It keeps a server
/// busy with work that nobody wants.
///
/// ```
/// use std::time::Duration;
/// use tower_hedge_latency::{Drain, HedgeLayer};
///
/// let layer = HedgeLayer::builder()
///     .drain(Drain::default().capacity(16).time_limit(Duration::from_secs(1)))
///     .http()
///     .build()?;
/// # let _ = layer;
/// # Ok::<_, tower_hedge_latency::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Drain {
    capacity: usize,
    time_limit: Duration,
    body_limit: u64,
    pool: Arc<Pool>,
}

#[derive(Default)]
struct Pool {
    /// Aborts what is left when it is dropped.
    tasks: Mutex<JoinSet<()>>,
    dropped: AtomicU64,
}

impl Drain {
    /// So many at once at most; with 0 all are dropped.
    #[must_use]
    pub fn capacity(self, losers: usize) -> Self {
        Self {
            capacity: losers,
            ..self
        }
    }

    /// So long for the response and its body, from the moment another attempt has won.
    #[must_use]
    pub fn time_limit(self, limit: Duration) -> Self {
        Self {
            time_limit: limit,
            ..self
        }
    }

    /// So many bytes of a response's body at most.
    #[must_use]
    pub fn body_limit(self, bytes: u64) -> Self {
        Self {
            body_limit: bytes,
            ..self
        }
    }

    /// How many losers were dropped since the pool was full or there was no runtime to run it.
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
                    // Dropped when the time is up, which is all there is to do.
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

impl fmt::Debug for Drain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drain")
            .field("capacity", &self.capacity)
            .field("time_limit", &self.time_limit)
            .field("body_limit", &self.body_limit)
            .finish_non_exhaustive()
    }
}

impl<F> Holds<F> for Drain {
    type Attempt = Held<F>;
}

impl<F, B, E> Losers<F> for Drain
where
    F: Future<Output = Result<Response<B>, E>> + Send + 'static,
    B: Body + Send + 'static,
    E: 'static,
{
    fn hold(&self, future: F) -> Held<F> {
        Held(Some(Box::pin(future)))
    }

    fn lose(&self, mut attempt: Pin<&mut Held<F>>) {
        if let Some(attempt) = attempt.0.take() {
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

/// Reads a body to its end, unless it is longer than `limit` bytes.
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

/// An attempt that can be taken out of its call.
#[derive(Debug)]
pub struct Held<F>(Option<Pin<Box<F>>>);

impl<F: Future> Future for Held<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        match &mut self.0 {
            Some(future) => future.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

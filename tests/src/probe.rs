mod answer;
mod record;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tower::Service;

pub use self::answer::{Answer, Readiness};
pub use self::record::Record;
use self::record::{InFlight, LiveResponse};

/// The probe's request.
pub type Request = http::Request<Full<Bytes>>;
/// The probe's response.
pub type Response = http::Response<Full<Bytes>>;

/// The probe's only error, with the text that the test chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeError(pub &'static str);

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for ProbeError {}

/// A service that fails the test on any use against tower's contract, and records every call.
///
/// A clone starts unready, like clones of `ConcurrencyLimit` and `Buffer`. Calling an unready instance panics.
pub struct Probe {
    shared: Arc<Shared>,
    readiness: State,
}

struct Shared {
    answer: Box<AnswerFn>,
    readiness: Box<ReadinessFn>,
    permits: Arc<Semaphore>,
    record: Arc<Record>,
}

type AnswerFn = dyn Fn(u32, &Request) -> Answer + Send + Sync;
type ReadinessFn = dyn Fn(u32) -> Readiness + Send + Sync;
type Readying =
    Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, ProbeError>> + Send + Sync>>;

enum State {
    Idle,
    Readying(Readying),
    Ready(OwnedSemaphorePermit),
}

impl Probe {
    /// Answers the 1-based n-th call over all clones with `answer(n, request)`.
    pub fn new(answer: impl Fn(u32, &Request) -> Answer + Send + Sync + 'static) -> Self {
        Self {
            shared: Arc::new(Shared {
                answer: Box::new(answer),
                readiness: Box::new(|_| Readiness::Now),
                permits: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
                record: Arc::default(),
            }),
            readiness: State::Idle,
        }
    }

    /// Answers every call in the same way.
    #[must_use]
    pub fn always(answer: Answer) -> Self {
        Self::new(move |_, _| answer)
    }

    /// Holds one of `permits` permits from readiness until the attempt's future is dropped.
    ///
    /// # Panics
    ///
    /// Panics if the probe is in use already.
    #[must_use]
    pub fn permits(mut self, permits: usize) -> Self {
        self.unshared().permits = Arc::new(Semaphore::new(permits));
        self
    }

    /// Becomes ready for the 1-based n-th time over all clones as `readiness(n)` describes.
    ///
    /// # Panics
    ///
    /// Panics if the probe is in use already.
    #[must_use]
    pub fn readiness(
        mut self,
        readiness: impl Fn(u32) -> Readiness + Send + Sync + 'static,
    ) -> Self {
        self.unshared().readiness = Box::new(readiness);
        self
    }

    /// The events of this probe and its clones.
    #[must_use]
    pub fn record(&self) -> Arc<Record> {
        Arc::clone(&self.shared.record)
    }

    /// The number of free permits.
    #[must_use]
    pub fn free_permits(&self) -> Arc<Semaphore> {
        Arc::clone(&self.shared.permits)
    }

    fn unshared(&mut self) -> &mut Shared {
        Arc::get_mut(&mut self.shared).expect("set up before it is used")
    }
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        self.shared.record.cloned();
        Self {
            shared: Arc::clone(&self.shared),
            readiness: State::Idle,
        }
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe")
            .field("record", &self.shared.record)
            .finish_non_exhaustive()
    }
}

impl Service<Request> for Probe {
    type Response = Response;
    type Error = ProbeError;
    type Future = Pin<Box<dyn Future<Output = Result<Response, ProbeError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ProbeError>> {
        loop {
            match &mut self.readiness {
                State::Ready(_) => return Poll::Ready(Ok(())),
                State::Readying(readying) => {
                    let permit = match ready!(readying.as_mut().poll(cx)) {
                        Ok(permit) => permit,
                        Err(error) => {
                            self.readiness = State::Idle;
                            return Poll::Ready(Err(error));
                        }
                    };
                    self.readiness = State::Ready(permit);
                }
                State::Idle => {
                    let readiness = (self.shared.readiness)(self.shared.record.readied());
                    let permit = Arc::clone(&self.shared.permits).acquire_owned();
                    self.readiness = State::Readying(Box::pin(async move {
                        readiness.wait().await?;
                        Ok(permit.await.expect("never closed"))
                    }));
                }
            }
        }
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let State::Ready(permit) = std::mem::replace(&mut self.readiness, State::Idle) else {
            panic!("called without readiness");
        };
        let record = &self.shared.record;
        let answer = (self.shared.answer)(record.called(&request), &request);
        let in_flight = InFlight::new(record);
        let live = LiveResponse::new(record);
        Box::pin(async move {
            let (_permit, _in_flight) = (permit, in_flight);
            match answer.after {
                Some(Duration::ZERO) => {}
                Some(delay) => sleep(delay).await,
                None => std::future::pending().await,
            }
            answer.outcome.map(|status| {
                let mut response = Response::new(Full::default());
                *response.status_mut() = status;
                if let Some(seconds) = answer.retry_after {
                    response.headers_mut().insert("retry-after", seconds.into());
                }
                response.extensions_mut().insert(live);
                response
            })
        })
    }
}

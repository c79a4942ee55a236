use std::{
    future::Future,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

use super::{BackendError, BoxFuture};

/// The deadline where none can be set. A store on the same network answers in one or two milliseconds.
pub(crate) const DEADLINE: Duration = Duration::from_millis(50);

/// A store's answer, awaited no longer than the deadline.
///
/// The mutex is never locked: it makes a future that is only `Send` also `Sync`, so that the layer's future is `Sync`
/// whenever the inner service's is.
pub(crate) struct Bounded<T>(Mutex<BoxFuture<'static, Result<T, BackendError>>>);

impl<T: 'static> Bounded<T> {
    /// The deadline counts from now.
    pub(crate) fn new(
        deadline: Duration,
        answer: impl Future<Output = Result<T, BackendError>> + Send + 'static,
    ) -> Self {
        Self::until(Instant::now() + deadline, deadline, answer)
    }

    /// The deadline has begun to count before; this is where it ends.
    pub(crate) fn until(
        end: Instant,
        deadline: Duration,
        answer: impl Future<Output = Result<T, BackendError>> + Send + 'static,
    ) -> Self {
        let answer = timeout_at(end, answer);
        Self(Mutex::new(Box::pin(async move {
            answer
                .await
                .unwrap_or_else(|_| Err(BackendError::late(deadline)))
        })))
    }
}

impl<T> Future for Bounded<T> {
    type Output = Result<T, BackendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
            .poll(cx)
    }
}

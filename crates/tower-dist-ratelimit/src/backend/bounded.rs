use std::{
    future::Future,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    task::coop::unconstrained,
    time::{Instant, Sleep, sleep_until},
};

use super::{BackendError, BoxFuture};

/// The deadline where none can be set. A store on the same network answers in one or two milliseconds.
pub(crate) const DEADLINE: Duration = Duration::from_millis(50);

/// A store's answer, awaited no longer than the deadline.
///
/// The mutex is never locked: it makes a future that is only `Send` also `Sync`, so that the layer's future is `Sync`
/// whenever the inner service's is.
pub(crate) struct Bounded<T> {
    answer: Mutex<BoxFuture<'static, Result<T, BackendError>>>,
    end: Instant,
    deadline: Duration,
    /// Once there is something to wait for.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<T> Bounded<T> {
    /// The deadline counts from now.
    pub(crate) fn new(
        deadline: Duration,
        answer: BoxFuture<'static, Result<T, BackendError>>,
    ) -> Self {
        Self::until(Instant::now() + deadline, deadline, answer)
    }

    /// The deadline has begun to count before; this is where it ends.
    pub(crate) fn until(
        end: Instant,
        deadline: Duration,
        answer: BoxFuture<'static, Result<T, BackendError>>,
    ) -> Self {
        Self {
            answer: Mutex::new(answer),
            end,
            deadline,
            timer: None,
        }
    }
}

impl<T> Future for Bounded<T> {
    type Output = Result<T, BackendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self {
            answer,
            end,
            deadline,
            timer,
        } = &mut *self;
        let answer = answer.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(answer);
        }
        let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(*end)));
        // An answer that is polled for as long as a task may be does not keep the deadline from being seen.
        let late = Pin::new(&mut unconstrained(timer.as_mut())).poll(cx);
        late.map(|()| Err(BackendError::late(*deadline)))
    }
}

use std::{
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use pin_project::pin_project;
use tokio::{
    task::coop::unconstrained,
    time::{Instant, Sleep, sleep_until},
};

use super::{BackendError, BoxFuture};

/// The default timeout, 50 ms. A server on the same network usually answers in one or two milliseconds.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_millis(50);

/// A future that awaits the answer of a backend or of a quota look-up until the timeout.
///
/// Boxed, because its destructor would otherwise be compiled into each codegen unit.
///
/// The mutex is never locked. It makes a future that is only `Send` also `Sync`, so that this type does not keep the
/// layer's future from being `Sync`.
pub(crate) struct Timeout<T>(Mutex<AnswerFuture<T>>);

type AnswerFuture<T> = BoxFuture<'static, Result<T, BackendError>>;

impl<T: Send + 'static> Timeout<T> {
    /// Awaits `answer`. The timeout starts now.
    pub(crate) fn new(timeout: Duration, answer: AnswerFuture<T>) -> Self {
        Self::since(Instant::now(), timeout, answer)
    }

    /// Awaits `answer`. The timeout starts at `start`.
    pub(crate) fn since(start: Instant, timeout: Duration, answer: AnswerFuture<T>) -> Self {
        // Not an async block, because that would copy the answer several times.
        Self(Mutex::new(Box::pin(UntilTimeout {
            answer,
            end: start + timeout,
            timeout,
            timer: None,
        })))
    }
}

/// The future behind a [`Timeout`].
#[pin_project]
struct UntilTimeout<T> {
    answer: AnswerFuture<T>,
    end: Instant,
    timeout: Duration,
    /// Created when the answer is first pending.
    #[pin]
    timer: Option<Sleep>,
}

impl<T> Future for UntilTimeout<T> {
    type Output = Result<T, BackendError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Poll::Ready(answer) = this.answer.as_mut().poll(cx) {
            return Poll::Ready(answer);
        }
        if this.timer.is_none() {
            this.timer.set(Some(sleep_until(*this.end)));
        }
        let timer = this.timer.as_pin_mut().expect("created above");
        // `unconstrained`, so that the timeout fires even if the answer's poll used up tokio's cooperative budget.
        let late = Pin::new(&mut unconstrained(timer)).poll(cx);
        late.map(|()| Err(BackendError::timeout(*this.timeout)))
    }
}

impl<T> Future for Timeout<T> {
    type Output = Result<T, BackendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        answer.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        task::{coop::consume_budget, yield_now},
        time::advance,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_keeps_its_task_busy_times_out() {
        let busy = Box::pin(async {
            loop {
                consume_budget().await;
            }
        });
        let asked = tokio::spawn(Timeout::<()>::new(DEFAULT_TIMEOUT, busy));
        yield_now().await;
        advance(DEFAULT_TIMEOUT - Duration::from_millis(1)).await;
        for _ in 0..1000 {
            yield_now().await;
        }
        assert!(!asked.is_finished());
        advance(Duration::from_millis(1)).await;
        for _ in 0..1000 {
            yield_now().await;
        }
        assert!(asked.is_finished());
        assert!(asked.await.unwrap().unwrap_err().is_timeout());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_at_the_timeout_is_accepted() {
        let began = Instant::now();
        let slow = Box::pin(async {
            tokio::time::sleep(DEFAULT_TIMEOUT).await;
            Ok(())
        });
        assert!(Timeout::new(DEFAULT_TIMEOUT, slow).await.is_ok());
        assert_eq!(began.elapsed(), DEFAULT_TIMEOUT);
        let never = Box::pin(std::future::pending());
        assert!(
            Timeout::<()>::new(DEFAULT_TIMEOUT, never)
                .await
                .unwrap_err()
                .is_timeout()
        );
        assert_eq!(began.elapsed(), 2 * DEFAULT_TIMEOUT);
    }
}

//! Helpers of the tests.

mod upstream;

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tower_jitter_retry::{
    Backoff, CallInfo, DelaySource, Jitter, Observer, RetryLayer, RetryLayerBuilder, StopReason,
};
use tower_test::mock::{Handle, SendResponse};

pub(crate) use self::upstream::{Answer, Upstream, refused_stream};

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// 100 ms, 200 ms, 400 ms …
pub(crate) fn backoff() -> Backoff {
    Backoff::exponential(ms(100), ms(20_000)).jitter(Jitter::None)
}

pub(crate) fn builder() -> RetryLayerBuilder {
    RetryLayer::builder().backoff(backoff())
}

/// Records the events of an observer.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Event>>>);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Event {
    Started(u32),
    Scheduled(u32, Duration, DelaySource),
    Shadowed(u32, Duration, DelaySource),
    Stopped(u32, StopReason),
    Cancelled(u32),
}
use Event::{Cancelled, Scheduled, Shadowed, Started, Stopped};

impl Log {
    fn add(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }

    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Observer for Log {
    fn on_event(&self, call: &CallInfo, event: tower_jitter_retry::Event<'_>) {
        self.add(match event {
            tower_jitter_retry::Event::AttemptStarted { attempt, .. } => Started(attempt.number()),
            tower_jitter_retry::Event::RetryScheduled {
                attempt,
                delay,
                source,
                is_shadow,
                ..
            } => match is_shadow {
                false => Scheduled(attempt.number(), delay, source),
                true => Shadowed(attempt.number(), delay, source),
            },
            tower_jitter_retry::Event::CallEnded { reason, .. } => match reason {
                StopReason::Cancelled => Cancelled(call.attempts),
                reason => Stopped(call.attempts, reason),
            },
            _ => return,
        });
    }
}

/// A call of the service under test, over a mock that the test answers.
macro_rules! call {
    ($layer:expr) => {{
        let (mut service, handle) = tower_test::mock::spawn_layer::<u32, u32, _>($layer);
        tokio_test::assert_ready_ok!(service.poll_ready());
        (tokio_test::task::spawn(service.call(7)), handle)
    }};
}
pub(crate) use call;

pub(crate) async fn next(handle: &mut Handle<u32, u32>) -> SendResponse<u32> {
    let (request, respond) = handle.next_request().await.expect("a request");
    assert_eq!(request, 7);
    respond
}

/// Lets the next attempt fail.
pub(crate) async fn fail(handle: &mut Handle<u32, u32>) {
    next(handle).await.send_error("failed");
}

pub(crate) fn assert_no_request(handle: &mut Handle<u32, u32>) {
    // `None` once the call has dropped the last instance of the mock.
    assert!(!matches!(handle.poll_request(), Poll::Ready(Some(_))));
}

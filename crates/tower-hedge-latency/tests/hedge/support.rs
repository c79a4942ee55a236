//! Helpers of the layer's tests.

use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tower_hedge_latency::{
    CallInfo, HedgeLayer, HedgeLayerBuilder, Observer, SkipReason, StopReason, Verdict,
};
use tower_test::mock::{Handle, SendResponse};

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn fixed(millis: u64) -> HedgeLayerBuilder {
    HedgeLayer::builder().fixed(ms(millis))
}

/// Records the events of an observer.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<Event>>>);

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Event {
    Started(u32),
    Skipped(u32, SkipReason),
    Failed(u32),
    Finished(u32),
    NoWinner,
    Cancelled,
}
pub(crate) use Event::{Cancelled, Failed, Finished, NoWinner, Skipped, Started};

impl Log {
    fn add(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }

    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Observer for Log {
    fn on_event(&self, _: &CallInfo, event: tower_hedge_latency::Event<'_>) {
        use tower_hedge_latency::Event;
        self.add(match event {
            Event::AttemptStarted { attempt, .. } => Started(attempt.number()),
            Event::AttemptEnded {
                attempt,
                verdict: Some(verdict),
                ..
            } if verdict != Verdict::Success => Failed(attempt.number()),
            Event::HedgeSkipped {
                attempt, reason, ..
            } => Skipped(attempt.number(), reason),
            Event::CallEnded { reason, winner, .. } => match (reason, winner) {
                (StopReason::Cancelled, _) => Cancelled,
                (_, Some(winner)) => Finished(winner.number()),
                (_, None) => NoWinner,
            },
            _ => return,
        });
    }
}

/// A call of the service under test, over a mock that the test answers and that becomes ready `ready` times.
macro_rules! call {
    ($layer:expr, ready: $ready:expr) => {{
        let layer = $layer.build().unwrap();
        let (mut service, mut handle) = tower_test::mock::spawn_layer::<u32, u32, _>(layer);
        handle.allow($ready);
        tokio_test::assert_ready_ok!(service.poll_ready());
        (tokio_test::task::spawn(service.call(7)), handle)
    }};
    ($layer:expr) => {
        $crate::support::call!($layer, ready: u64::from(u32::MAX))
    };
}

pub(crate) use call;

pub(crate) async fn next(handle: &mut Handle<u32, u32>) -> SendResponse<u32> {
    // On the paused clock, an hour passes only if no other event is pending.
    let request = tokio::time::timeout(ms(3_600_000), handle.next_request()).await;
    let (request, respond) = request.expect("a request in time").expect("a request");
    assert_eq!(request, 7);
    respond
}

pub(crate) fn assert_no_request(handle: &mut Handle<u32, u32>) {
    // `None` once the call has dropped the last instance of the mock.
    assert!(!matches!(handle.poll_request(), Poll::Ready(Some(_))));
}

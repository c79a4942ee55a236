//! No hedge is sent at a request's deadline or later, even if the call is polled late.

use tokio::time::{Instant, advance};
use tokio_test::{assert_pending, assert_ready_ok};
use tower_hedge_latency::{
    Attempt, Classify, Deadline, Generic, HedgeLayer, HedgeLayerBuilder, HedgeOverride,
    RequestRule, SkipReason, Verdict,
};

use crate::support::*;

/// Gives each request this deadline.
#[derive(Clone)]
struct Until(Deadline);

impl RequestRule<u32> for Until {
    type Context = ();

    fn context(&self, _: &u32) {}

    fn hedge_override(&self, (): &()) -> Option<HedgeOverride> {
        Some(HedgeOverride::new().deadline(self.0))
    }
}

impl Classify<u32, u32, Error> for Until {
    fn classify(&self, (): &(), _: &Attempt, outcome: &Result<u32, Error>) -> Verdict {
        match outcome {
            Ok(_) => Verdict::Success,
            Err(_) => Verdict::transient(),
        }
    }
}

/// A layer whose requests have a deadline `millis` from now.
fn until(builder: HedgeLayerBuilder, millis: u64) -> HedgeLayerBuilder<Generic<Until>> {
    builder.classify_with(Until(Deadline::at(Instant::now() + ms(millis))))
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_polled_after_its_deadline_is_not_hedged() {
    let (mut call, mut handle) = call!(until(fixed(10), 15));
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    // The hedge was due at 10 ms, but the task was not polled then.
    advance(ms(15)).await;
    assert!(call.is_woken());
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    primary.send_response(1);
    assert_eq!(assert_ready_ok!(call.poll()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fan_out_at_the_deadline_is_one_attempt() {
    let (mut call, mut handle) = call!(until(HedgeLayer::builder().fan_out(3), 0));
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    assert_no_request(&mut handle);
    primary.send_response(1);
    assert_eq!(assert_ready_ok!(call.poll()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_gets_ready_after_the_deadline_is_not_sent() {
    let log = Log::default();
    let layer = until(fixed(10), 15).observer(log.clone());
    let (mut call, mut handle) = call!(layer, ready: 1);
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(ms(10)).await;
    assert_pending!(call.poll());
    advance(ms(5)).await;
    handle.allow(1);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    primary.send_response(1);
    assert_eq!(assert_ready_ok!(call.poll()), 1);
    assert_eq!(
        log.take(),
        [Started(1), Skipped(2, SkipReason::NotReady), Finished(1)]
    );
}

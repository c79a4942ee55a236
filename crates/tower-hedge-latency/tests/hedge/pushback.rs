//! Servers that demand a wait.

use std::time::Duration;

use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};
use tower_hedge_latency::{
    Attempt, Classify, Deadline, Generic, HedgeLayer, HedgeLayerBuilder, HedgeOverride, Hint,
    RequestRule, SkipReason, Verdict,
};

use crate::support::*;

/// Classifies every error as throttled, with this hint.
#[derive(Clone)]
struct Hinted(Hint);

impl RequestRule<u32> for Hinted {
    type Context = ();

    fn context(&self, _: &u32) {}
}

impl Classify<u32, u32, Error> for Hinted {
    fn classify(&self, (): &(), _: &Attempt, outcome: &Result<u32, Error>) -> Verdict {
        match outcome {
            Ok(_) => Verdict::Success,
            Err(_) => Verdict::throttled().hinted(self.0),
        }
    }
}

/// Classifies as `C` does, and gives each call a deadline after this time.
#[derive(Clone)]
struct Until<C>(C, Duration);

impl<C: RequestRule<u32>> RequestRule<u32> for Until<C> {
    type Context = (C::Context, Deadline);

    fn context(&self, request: &u32) -> Self::Context {
        (self.0.context(request), Deadline::after(self.1))
    }

    fn hedge_override(&self, (_, deadline): &Self::Context) -> Option<HedgeOverride> {
        Some(HedgeOverride::new().deadline(*deadline))
    }
}

impl<C: Classify<u32, u32, Error>> Classify<u32, u32, Error> for Until<C> {
    fn classify(
        &self,
        (context, _): &Self::Context,
        attempt: &Attempt,
        outcome: &Result<u32, Error>,
    ) -> Verdict {
        self.0.classify(context, attempt, outcome)
    }
}

/// A hedge every 10 ms.
fn hinted(hint: Hint) -> HedgeLayerBuilder<Generic<Hinted>> {
    fixed(10).max_hedges(3).classify_with(Hinted(hint))
}

#[tokio::test(start_paused = true)]
async fn pushback_postpones_the_next_hedge_and_later_ones() {
    for hint in [Hint::AtLeast(ms(30)), Hint::Exactly(ms(30))] {
        let (mut call, mut handle) = call!(hinted(hint));
        assert_pending!(call.poll());
        let primary = next(&mut handle).await;
        advance(ms(10)).await;
        assert_pending!(call.poll());
        // The first hedge keeps the race open.
        let _first = next(&mut handle).await;
        advance(ms(5)).await;
        primary.send_error("busy");
        assert_pending!(call.poll());

        // The second hedge moves from 20 ms to 45 ms, and the third follows 10 ms later.
        for delay in [30, 10] {
            advance(ms(delay - 1)).await;
            assert_pending!(call.poll());
            assert_no_request(&mut handle);
            advance(ms(1)).await;
            assert!(call.is_woken());
            assert_pending!(call.poll());
            std::mem::forget(next(&mut handle).await);
        }
    }
}

/// The second hedge is due at 20 ms. The primary fails at 12 ms and demands a wait of 3 ms.
#[tokio::test(start_paused = true)]
async fn an_exact_pushback_brings_the_next_hedge_forward_and_retry_after_does_not() {
    for (hint, second, third) in [
        (Hint::Exactly(ms(3)), 15, 25),
        (Hint::Exactly(ms(0)), 12, 22),
        (Hint::AtLeast(ms(3)), 20, 30),
    ] {
        let (mut call, mut handle) = call!(hinted(hint));
        assert_pending!(call.poll());
        let primary = next(&mut handle).await;
        advance(ms(10)).await;
        assert_pending!(call.poll());
        let _first = next(&mut handle).await;
        advance(ms(2)).await;
        primary.send_error("busy");
        let mut now = 12;
        for due in [second, third] {
            while now < due {
                assert_pending!(call.poll());
                assert_no_request(&mut handle);
                advance(ms(1)).await;
                now += 1;
            }
            assert_pending!(call.poll());
            std::mem::forget(next(&mut handle).await);
        }
    }
}

/// The second hedge is due at 100 ms. The demanded wait ends at 12 ms, and the deadline is at 50 ms.
#[tokio::test(start_paused = true)]
async fn only_an_exact_pushback_brings_a_hedge_forward_that_is_due_after_the_deadline() {
    for (hint, hedges) in [(Hint::Exactly(ms(2)), 1), (Hint::AtLeast(ms(2)), 0)] {
        let layer = HedgeLayer::builder().delays([ms(10), ms(100)]);
        let (mut call, mut handle) = call!(layer.classify_with(Until(Hinted(hint), ms(50))));
        assert_pending!(call.poll());
        let primary = next(&mut handle).await;
        advance(ms(10)).await;
        assert_pending!(call.poll());
        let first = next(&mut handle).await;
        primary.send_error("busy");
        assert_pending!(call.poll());
        assert_no_request(&mut handle);
        advance(ms(2)).await;
        for _ in 0..hedges {
            assert_pending!(call.poll());
            std::mem::forget(next(&mut handle).await);
        }
        for _ in 12..49 {
            assert_pending!(call.poll());
            assert_no_request(&mut handle);
            advance(ms(1)).await;
        }
        first.send_response(7);
        assert_eq!(assert_ready_ok!(call.poll()), 7);
    }
}

/// Two servers demand different waits, and the later end counts.
#[tokio::test(start_paused = true)]
async fn an_exact_pushback_does_not_cut_an_earlier_one_short() {
    let judge = |outcome: &Result<u32, Error>, _: &Attempt| match outcome {
        Ok(_) => Verdict::Success,
        Err(error) if error.to_string() == "long" => {
            Verdict::throttled().hinted(Hint::Exactly(ms(30)))
        }
        Err(_) => Verdict::throttled().hinted(Hint::Exactly(ms(1))),
    };
    let (mut call, mut handle) = call!(fixed(10).max_hedges(3).classify_fn(judge));
    let mut attempts = Vec::new();
    for _ in 0..3 {
        assert_pending!(call.poll());
        attempts.push(next(&mut handle).await);
        advance(ms(5)).await;
        assert_pending!(call.poll());
        advance(ms(5)).await;
    }
    let _third = attempts.pop();
    for (attempt, error) in attempts.into_iter().zip(["long", "short"]) {
        attempt.send_error(error);
        assert_pending!(call.poll());
    }
    advance(ms(29)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    advance(ms(1)).await;
    assert_pending!(call.poll());
    let _fourth = next(&mut handle).await;
}

#[tokio::test(start_paused = true)]
async fn a_negative_pushback_cancels_further_hedges_and_keeps_those_in_flight() {
    let (mut call, mut handle) = call!(hinted(Hint::Never));
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(ms(10)).await;
    assert_pending!(call.poll());
    let first = next(&mut handle).await;
    primary.send_error("busy");
    assert_pending!(call.poll());
    advance(ms(1000)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    first.send_response(2);
    assert_eq!(assert_ready_ok!(call.poll()), 2);
}

#[tokio::test(start_paused = true)]
async fn each_pushback_adds_to_the_last_one() {
    let (mut call, mut handle) = call!(hinted(Hint::AtLeast(ms(30))));
    let mut attempts = Vec::new();
    for _ in 0..3 {
        assert_pending!(call.poll());
        attempts.push(next(&mut handle).await);
        advance(ms(10)).await;
    }
    // The last hedge is due at 30 ms; the call has not been polled since.
    let _last_out = attempts.pop();
    for (attempt, wait) in attempts.into_iter().zip([0, 2]) {
        advance(ms(wait)).await;
        attempt.send_error("busy");
        assert_pending!(call.poll());
    }
    // At 30 ms it was postponed to 60 ms, and at 32 ms to 62 ms.
    advance(ms(29)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    advance(ms(1)).await;
    assert_pending!(call.poll());
    let _hedge = next(&mut handle).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_with_a_demanded_wait_postpones_the_hedge_that_follows_failures_immediately() {
    for hint in [Hint::AtLeast(ms(30)), Hint::Exactly(ms(30))] {
        let (mut call, mut handle) = call!(hinted(hint).hedge_on_failure(true));
        assert_pending!(call.poll());
        let primary = next(&mut handle).await;
        advance(ms(10)).await;
        assert_pending!(call.poll());
        let _first = next(&mut handle).await;
        primary.send_error("busy");
        assert_pending!(call.poll());
        assert_no_request(&mut handle);
        advance(ms(29)).await;
        assert_pending!(call.poll());
        assert_no_request(&mut handle);
        advance(ms(1)).await;
        assert_pending!(call.poll());
        let _second = next(&mut handle).await;
    }
}

/// A wait without an attempt in flight is the business of a retry layer.
#[tokio::test(start_paused = true)]
async fn a_failure_with_a_demanded_wait_sends_no_hedge() {
    let (mut call, mut handle) = call!(hinted(Hint::AtLeast(ms(30))).hedge_on_failure(true));
    assert_pending!(call.poll());
    next(&mut handle).await.send_error("busy");
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "busy");
    assert_no_request(&mut handle);
}

#[tokio::test(start_paused = true)]
async fn a_hedge_after_a_pushback_beyond_the_clock_is_never_due() {
    let (mut call, mut handle) = call!(hinted(Hint::AtLeast(Duration::MAX)));
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(ms(10)).await;
    assert_pending!(call.poll());
    let first = next(&mut handle).await;
    primary.send_error("busy");
    assert_pending!(call.poll());
    first.send_response(2);
    assert_eq!(assert_ready_ok!(call.poll()), 2);
}

/// The second hedge was due earlier, but its service was not ready.
#[tokio::test(start_paused = true)]
async fn a_hedge_that_gets_ready_after_a_pushback_is_not_sent() {
    let hints = [
        Hint::Never,
        Hint::AtLeast(ms(30)),
        Hint::AtLeast(Duration::MAX),
    ];
    // The last hedge, and a hedge that another one would follow.
    for (hint, hedges) in hints.into_iter().flat_map(|hint| [(hint, 2), (hint, 3)]) {
        let log = Log::default();
        let layer = hinted(hint).max_hedges(hedges).observer(log.clone());
        let (mut call, mut handle) = call!(layer, ready: 2);
        assert_pending!(call.poll());
        let primary = next(&mut handle).await;
        advance(ms(10)).await;
        assert_pending!(call.poll());
        let first = next(&mut handle).await;
        advance(ms(10)).await;
        assert_pending!(call.poll());
        first.send_error("busy");
        assert_pending!(call.poll());
        handle.allow(1);
        assert!(call.is_woken());
        assert_pending!(call.poll());
        assert_no_request(&mut handle);
        primary.send_response(1);
        assert_eq!(assert_ready_ok!(call.poll()), 1);
        let skipped = Skipped(3, SkipReason::NotReady);
        let expected = [Started(1), Started(2), Failed(2), skipped, Finished(1)];
        assert_eq!(log.take(), expected, "{hint:?}, {hedges} hedges");
    }
}

/// The second hedge gets ready during the wait and is not sent. The third one keeps the time that the server named.
#[tokio::test(start_paused = true)]
async fn a_hedge_that_is_skipped_during_a_pushback_does_not_delay_the_next_one() {
    for hint in [Hint::Exactly(ms(30)), Hint::AtLeast(ms(30))] {
        let (mut call, mut handle) = call!(hinted(hint), ready: 2);
        assert_pending!(call.poll());
        let _primary = next(&mut handle).await;
        advance(ms(10)).await;
        assert_pending!(call.poll());
        let first = next(&mut handle).await;
        advance(ms(10)).await;
        assert_pending!(call.poll());
        first.send_error("busy");
        assert_pending!(call.poll());
        handle.allow(1);
        assert_pending!(call.poll());
        handle.allow(1);
        advance(ms(29)).await;
        assert_pending!(call.poll());
        assert_no_request(&mut handle);
        advance(ms(1)).await;
        assert_pending!(call.poll());
        let _third = next(&mut handle).await;
    }
}

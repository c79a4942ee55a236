//! Budgets that hedges share with other layers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use tests::{Answer, Probe, Request};
use tower::{Layer, ServiceExt};
use tower_hedge_latency::{Budget, Budgets, HedgeLayer, RequestHead};
use tower_jitter_retry::{Backoff, RetryLayer};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn get(uri: &'static str) -> Request {
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.uri_mut() = Uri::from_static(uri);
    request
}

fn by_host(request: RequestHead<'_>) -> Option<&str> {
    request.authority()
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_slow_leaves_the_others_their_budget() {
    let budgets = Budgets::new(Budget::ratio(0.0).burst(2));
    let layer = HedgeLayer::builder().fixed(ms(10)).http();
    let layer = layer.budget_by(budgets, by_host).build().unwrap();
    let handle = layer.handle();
    let service = layer.layer(Probe::always(Answer::OK.after(100)));
    for (uri, hedges, denied) in [
        ("http://a.example", 1, 0),
        ("http://a.example", 2, 0),
        ("http://a.example", 2, 1),
        ("http://b.example", 3, 1),
    ] {
        service.clone().oneshot(get(uri)).await.unwrap();
        let counts = handle.counts();
        assert_eq!((counts.hedges, counts.denied), (hedges, denied), "{uri}");
    }
}

/// Retries and hedges share the budget of each host, and a call deposits once.
#[tokio::test(start_paused = true)]
async fn each_host_has_one_budget_for_retries_and_hedges() {
    let budgets = || Budgets::new(Budget::ratio(1.0).burst(2).initial(0));
    for (shared, expected) in [(true, [1, 0]), (false, [1, 1])] {
        let retries = budgets();
        let hedges = if shared { retries.clone() } else { budgets() };
        let retry = RetryLayer::builder().backoff(Backoff::none()).http();
        let retry = retry.budget_by(retries.clone(), by_host).build().unwrap();
        let hedge = HedgeLayer::builder().fixed(ms(10)).http();
        let hedge = match shared {
            true => hedge.shared_budget_by(hedges.clone(), by_host),
            false => hedge.budget_by(hedges.clone(), by_host),
        };
        let stack = retry.layer(hedge.build().unwrap().layer(Probe::always(Answer::OK)));
        stack.oneshot(get("http://a.example")).await.unwrap();
        let left = [retries, hedges].map(|budgets| {
            let budget = budgets.get("a.example");
            budget.withdraw().map(|permit| permit.spend()).is_some()
        });
        assert_eq!(left.map(u32::from), expected, "shared: {shared}");
    }
}

/// The default percentile rises until one partition's budget can pay for the hedges.
#[tokio::test(start_paused = true)]
async fn the_trigger_is_aligned_with_budgets_per_host() {
    for (ratio, late) in [(0.1, 0.05), (0.01, 0.01)] {
        let budgets = Budgets::new(Budget::ratio(ratio));
        let layer = HedgeLayer::builder().http();
        let layer = layer.budget_by(budgets, by_host).build().unwrap();
        let handle = layer.handle();
        // 1 to 100 ms, uniformly distributed.
        let probe = Probe::new(|n, _| Answer::OK.after(u64::from(n * 37 % 100 + 1)));
        let service = layer.layer(probe);
        for _ in 0..1_500 {
            let call = service.clone().oneshot(get("http://a.example"));
            call.await.unwrap();
        }
        let delay = handle.delay().unwrap();
        let expected = ms(1000).mul_f64((1.0 - late) / 10.0);
        let off = delay.abs_diff(expected);
        assert!(off < ms(4), "{delay:?} for {ratio}");
    }
}

/// The number of failures that a throttle of 100 tokens has recorded.
fn recorded(throttle: &Budget) -> usize {
    let more = (0..).find(|_| {
        let closed = throttle.withdraw().is_none();
        throttle.record_failure();
        closed
    });
    50 - more.unwrap()
}

/// The retry layer is outside and records the outcome of each race; the hedge layer records the other attempts.
#[tokio::test(start_paused = true)]
async fn a_retry_and_a_hedge_on_one_throttle_count_each_failed_attempt_once() {
    for (latency, attempts) in [(0, 3), (15, 6)] {
        let throttle = Budget::grpc_throttle(100, 0.001);
        let retry = RetryLayer::builder().backoff(Backoff::none()).http();
        let retry = retry.budget(throttle.clone()).build().unwrap();
        let hedge = HedgeLayer::builder().fixed(ms(10)).http();
        let hedge = hedge.shared_budget(throttle.clone()).build().unwrap();
        let probe = Probe::always(Answer::UNAVAILABLE.after(latency));
        let record = probe.record();
        let stack = retry.layer(hedge.layer(probe));
        stack.oneshot(get("http://a.example")).await.unwrap();
        assert_eq!(record.calls(), attempts);
        assert_eq!(recorded(&throttle), attempts, "after {latency} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hedge_over_a_retry_on_one_throttle_counts_each_failed_attempt_once() {
    let throttle = Budget::grpc_throttle(100, 0.001);
    let hedge = HedgeLayer::builder().fixed(ms(10)).http();
    let hedge = hedge.budget(throttle.clone()).build().unwrap();
    let retry = RetryLayer::builder().backoff(Backoff::none()).http();
    let retry = retry.shared_budget(throttle.clone()).build().unwrap();
    let stack = hedge.layer(retry.layer(Probe::always(Answer::UNAVAILABLE)));
    stack.oneshot(get("http://a.example")).await.unwrap();
    assert_eq!(recorded(&throttle), 3);
}

/// The retry layer gives up after 45 ms. The hedge, which is the second request, succeeds after 110 ms.
#[tokio::test(start_paused = true)]
async fn a_failure_that_a_retry_below_has_recorded_is_not_recorded_again_if_a_hedge_wins() {
    let throttle = Budget::grpc_throttle(100, 0.001);
    let hedge = HedgeLayer::builder().fixed(ms(10)).http();
    let hedge = hedge.shared_budget(throttle.clone()).build().unwrap();
    let retry = RetryLayer::builder().backoff(Backoff::none()).http();
    let retry = retry.shared_budget(throttle.clone()).build().unwrap();
    let probe = Probe::new(|n, _| match n {
        2 => Answer::OK.after(100),
        _ => Answer::UNAVAILABLE.after(15),
    });
    let record = probe.record();
    let stack = hedge.layer(retry.layer(probe));
    let response = stack.oneshot(get("http://a.example")).await.unwrap();
    assert_eq!((response.status().as_u16(), record.calls()), (200, 4));
    assert_eq!(recorded(&throttle), 3);
}

/// gRFC A6 counts each failed RPC. For the hedge layer, all attempts of the retry layer below are one RPC.
#[tokio::test(start_paused = true)]
async fn a_throttle_of_the_hedge_layer_counts_the_attempts_on_which_a_retry_below_gave_up() {
    for (latency, hedged) in [(0, 1), (15, 2)] {
        let (above, below) = (
            Budget::grpc_throttle(100, 0.001),
            Budget::grpc_throttle(100, 0.001),
        );
        let hedge = HedgeLayer::builder().fixed(ms(10)).http();
        let hedge = hedge.budget(above.clone()).build().unwrap();
        let retry = RetryLayer::builder().backoff(Backoff::none()).http();
        let retry = retry.budget(below.clone()).build().unwrap();
        let stack = hedge.layer(retry.layer(Probe::always(Answer::UNAVAILABLE.after(latency))));
        stack.oneshot(get("http://a.example")).await.unwrap();
        let counts = (recorded(&above), recorded(&below));
        assert_eq!(counts, (hedged, 3 * hedged), "after {latency} ms");
    }
}

#[test]
fn wrong_budgets_are_named_with_their_bound() {
    let builder = HedgeLayer::builder().http();
    let budgets = Budgets::new(Budget::default()).capacity(0);
    let error = builder.budget_by(budgets, by_host).build().unwrap_err();
    let expected = "budgets.capacity is 0, but must be from 1 to 1048576 partitions";
    assert_eq!(error.to_string(), expected);
}

/// Hedge over retry over hedge makes nine attempts without a budget.
#[tokio::test(start_paused = true)]
async fn two_hedges_and_a_retry_on_one_budget_stay_within_it() {
    let budget = Budget::ratio(0.2).burst(5);
    let hedge = || {
        let layer = HedgeLayer::builder().fixed(ms(10)).max_hedges(2);
        layer.shared_budget(budget.clone()).http().build().unwrap()
    };
    let retry = RetryLayer::builder().backoff(Backoff::none());
    let retry = retry.budget(budget.clone()).http().build().unwrap();
    let probe = Probe::new(|n, _| match n % 3 {
        0 => Answer::OK.after(100),
        _ => Answer::UNAVAILABLE.after(100),
    });
    let (record, mut successes) = (probe.record(), 0);
    let stack = hedge().layer(retry.layer(hedge().layer(probe)));
    let stack = Arc::new(stack);
    for calls in 1..=300 {
        let response = (*stack).clone().oneshot(get("http://a.example")).await;
        successes += usize::from(response.unwrap().status().is_success());
        let extra = record.calls() - calls;
        // The retry layer's attempts that lost to a hedge deposited nothing.
        assert!(extra <= 5 + successes / 5, "{extra} after {calls} calls");
    }
    assert!(record.calls() > 300 + successes / 10);
}

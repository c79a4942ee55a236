//! Budgets per destination, and gRPC's throttle.

use ::http::Request;
use bytes::Bytes;
use http_body_util::Full;
use tower::{Layer, ServiceExt};
use tower_jitter_retry::{Backoff, Budget, Budgets, RequestHead, RetryLayer};

use crate::support::{Answer, Upstream};

type HttpRequest = Request<Full<Bytes>>;

fn get(uri: &str) -> HttpRequest {
    Request::get(uri).body(Full::default()).unwrap()
}

fn by_host(request: RequestHead<'_>) -> Option<&str> {
    request.authority()
}

#[tokio::test(start_paused = true)]
async fn a_host_that_fails_leaves_the_others_their_budget() {
    let budgets = Budgets::new(Budget::ratio(0.0).burst(2));
    let layer = RetryLayer::builder().backoff(Backoff::none()).http();
    let layer = layer.budget_by(budgets, by_host).build().unwrap();
    let upstream = Upstream::new([Answer::status(503)]);
    let service = layer.layer(upstream.clone());
    for (uri, attempts) in [
        ("http://a.example", 3),
        ("http://a.example", 1),
        ("http://b.example", 3),
        ("http://b.example", 1),
    ] {
        service.clone().oneshot(get(uri)).await.unwrap();
        assert_eq!(upstream.seen().len(), attempts, "{uri}");
    }
}

#[tokio::test(start_paused = true)]
async fn successes_pay_into_their_own_budget_unless_it_is_shared() {
    for (shared, attempts) in [(false, 2), (true, 1)] {
        let budgets = Budgets::new(Budget::ratio(1.0).burst(1).initial(0));
        let builder = RetryLayer::builder().backoff(Backoff::none()).http();
        let layer = match shared {
            false => builder.budget_by(budgets, by_host),
            true => builder.shared_budget_by(budgets, by_host),
        };
        let good = Upstream::new([Answer::status(200)]);
        let layer = layer.build().unwrap();
        layer
            .layer(good)
            .oneshot(get("http://a.example"))
            .await
            .unwrap();
        let bad = Upstream::new([Answer::status(503)]);
        for (uri, attempts) in [("http://b.example", 1), ("http://a.example", attempts)] {
            layer.layer(bad.clone()).oneshot(get(uri)).await.unwrap();
            assert_eq!(bad.seen().len(), attempts, "{uri}, shared: {shared}");
        }
    }
}

#[test]
fn a_wrong_capacity_is_named_with_its_bound() {
    let builder = RetryLayer::builder().http();
    let budgets = Budgets::new(Budget::default()).capacity(0);
    let error = builder.budget_by(budgets, by_host).build().unwrap_err();
    let expected = "budgets.capacity is 0, but must be from 1 to 1048576 partitions";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_budget_besides_one_for_each_request_is_an_error() {
    let by_request = || {
        let budgets = Budgets::new(Budget::ratio(0.1));
        RetryLayer::builder().http().budget_by(budgets, by_host)
    };
    assert!(by_request().build().is_ok());
    let budget = Budget::default;
    for (builder, setter) in [
        (by_request().budget(budget()), "budget"),
        (by_request().shared_budget(budget()), "shared_budget"),
    ] {
        let error = builder.build().unwrap_err().to_string();
        let expected = format!("{setter} is set, but must be unset besides budget_by");
        assert_eq!(error, expected);
    }
}

/// gRFC A6: each failure takes a token, also the last failure of a call. Retries are sent above half of the tokens.
#[tokio::test(start_paused = true)]
async fn a_throttle_closes_at_half_and_opens_with_successes() {
    let throttle = Budget::grpc_throttle(10, 0.5);
    let layer = RetryLayer::builder().backoff(Backoff::none()).http();
    let layer = layer.budget(throttle).build().unwrap();
    let bad = Upstream::new([Answer::status(503)]);
    let good = Upstream::new([Answer::status(200)]);
    let attempts = async |uri| {
        layer.layer(bad.clone()).oneshot(get(uri)).await.unwrap();
        bad.seen().len()
    };
    // Three attempts take 10 tokens to 7. The next failure leaves 6 and the one after it 5, which is not above half.
    assert_eq!(attempts("/").await, 3);
    assert_eq!(attempts("/").await, 2);
    assert_eq!(attempts("/").await, 1);
    // 4 tokens and ten halves are 9.
    for _ in 0..10 {
        layer.layer(good.clone()).oneshot(get("/")).await.unwrap();
    }
    assert_eq!(attempts("/").await, 3);
}

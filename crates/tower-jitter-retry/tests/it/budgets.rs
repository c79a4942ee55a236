//! Budgets per destination, and gRPC's throttle.

use ::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use tokio::time::sleep;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_jitter_retry::{
    Backoff, Budget, Budgets, Http, Mode, RequestHead, RetryLayer, RetryLayerBuilder, Verdict,
};

use crate::support::{Answer, Upstream, ms};

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

fn immediate() -> RetryLayerBuilder<Http> {
    RetryLayer::builder().backoff(Backoff::none()).http()
}

fn throttle() -> Budget {
    Budget::grpc_throttle(100, 0.001)
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

/// gRFC A6 counts each failed RPC once. The layer above receives these failures without a mark.
#[tokio::test(start_paused = true)]
async fn a_shared_throttle_counts_a_failure_once_that_only_the_layer_above_may_retry() {
    for inner in [
        immediate().mode(Mode::Off),
        immediate().mode(Mode::Shadow),
        immediate().max_attempts(1),
    ] {
        let (shared, upstream) = (throttle(), Upstream::new([Answer::status(503)]));
        let outer = immediate().budget(shared.clone()).build().unwrap();
        let inner = inner.shared_budget(shared.clone()).build().unwrap();
        let stack = outer.layer(inner.layer(upstream.clone()));
        stack.oneshot(get("/")).await.unwrap();
        assert_eq!((upstream.seen().len(), recorded(&shared)), (3, 3));
    }
    // A request with `Upgrade` cannot be resent.
    let (shared, upstream) = (throttle(), Upstream::new([Answer::status(503)]));
    let outer = immediate().budget(shared.clone()).build().unwrap();
    let inner = immediate().shared_budget(shared.clone()).build().unwrap();
    let upgrade = Request::get("/").header("upgrade", "websocket");
    let upgrade = upgrade.body(Full::default()).unwrap();
    let stack = outer.layer(inner.layer(upstream.clone()));
    stack.oneshot(upgrade).await.unwrap();
    assert_eq!((upstream.seen().len(), recorded(&shared)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_never_retries_does_not_count_what_the_layer_below_has_counted() {
    for outer in [immediate().mode(Mode::Off), immediate().max_attempts(1)] {
        let (shared, upstream) = (throttle(), Upstream::new([Answer::status(503)]));
        let outer = outer.budget(shared.clone()).build().unwrap();
        let inner = immediate().shared_budget(shared.clone()).build().unwrap();
        let stack = outer.layer(inner.layer(upstream.clone()));
        stack.oneshot(get("/")).await.unwrap();
        assert_eq!((upstream.seen().len(), recorded(&shared)), (3, 3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttle_of_the_layer_above_counts_the_call_on_which_the_layer_below_gave_up() {
    let (above, below) = (throttle(), throttle());
    let upstream = Upstream::new([Answer::status(503)]);
    let outer = immediate().budget(above.clone()).build().unwrap();
    let inner = immediate().budget(below.clone()).build().unwrap();
    let stack = outer.layer(inner.layer(upstream.clone()));
    stack.oneshot(get("/")).await.unwrap();
    assert_eq!(upstream.seen().len(), 3);
    assert_eq!((recorded(&above), recorded(&below)), (1, 3));
}

/// The middle layer shares the budget of the outermost one, and the innermost layer has its own.
#[tokio::test(start_paused = true)]
async fn of_three_layers_each_throttle_counts_the_call_once() {
    let (above, below) = (throttle(), throttle());
    let upstream = Upstream::new([Answer::status(503)]);
    let outer = immediate().budget(above.clone()).build().unwrap();
    let middle = immediate().shared_budget(above.clone()).build().unwrap();
    let inner = immediate().budget(below.clone()).build().unwrap();
    let stack = outer.layer(middle.layer(inner.layer(upstream.clone())));
    stack.oneshot(get("/")).await.unwrap();
    assert_eq!(upstream.seen().len(), 3);
    assert_eq!((recorded(&above), recorded(&below)), (1, 3));
}

/// Only the layer above retries the 404. The layer below leaves the failures of these retries to the layer above.
#[tokio::test(start_paused = true)]
async fn a_throttle_of_the_layer_below_counts_failed_retries_of_the_layer_above() {
    let retries_404 = || {
        immediate().classify(|outcome| match outcome.status() {
            Some(StatusCode::NOT_FOUND) => Verdict::transient(),
            _ => outcome.verdict(),
        })
    };
    for is_shared in [false, true] {
        let (above, below) = (throttle(), throttle());
        let upstream = Upstream::new([404, 503].map(Answer::status));
        let outer = retries_404().budget(above.clone()).build().unwrap();
        let inner = match is_shared {
            false => immediate().budget(below.clone()),
            true => immediate().shared_budget(above.clone()),
        };
        let stack = outer.layer(inner.build().unwrap().layer(upstream.clone()));
        stack.oneshot(get("/")).await.unwrap();
        assert_eq!(upstream.seen().len(), 3);
        let expected = if is_shared { 0 } else { 2 };
        assert_eq!((recorded(&above), recorded(&below)), (3, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_counts_that_arrives_when_the_deadline_has_just_expired() {
    let own = throttle();
    let upstream = Upstream::new([Answer::status(503)]);
    let slow = upstream.clone();
    let slow = service_fn(move |request| {
        let answer = slow.clone().call(request);
        async move {
            sleep(ms(100)).await;
            answer.await
        }
    });
    let layer = immediate().budget(own.clone()).deadline(ms(100));
    let service = layer.build().unwrap().layer(slow);
    let error = service.oneshot(get("/")).await.unwrap_err();
    assert!(error.is::<tower_jitter_retry::Elapsed>(), "{error}");
    assert_eq!((upstream.seen().len(), recorded(&own)), (1, 1));
}

/// No attempt has failed: the caller ends it.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_the_deadline_ends_is_no_failure() {
    let own = throttle();
    let silent = service_fn(|_: HttpRequest| {
        std::future::pending::<Result<::http::Response<()>, crate::support::BoxError>>()
    });
    let layer = immediate().budget(own.clone()).deadline(ms(100));
    let service = layer.build().unwrap().layer(silent);
    assert!(service.oneshot(get("/")).await.is_err());
    assert_eq!(recorded(&own), 0);
}

//! Requests that differ from their layer's settings.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::Full;
use tests::{Answer, Probe, Request};
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_attempt::{Deadline, HedgeOverride, RetryOverride};
use tower_hedge_latency::{Budget, HedgeLayer, HedgeLayerBuilder, Http};
use tower_jitter_retry::{
    Backoff, Jitter, Mode, RetryInfo, RetryLayer, RetryLayerBuilder, StopReason,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn request<T: Clone + Send + Sync + 'static>(method: Method, own: T) -> Request {
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.method_mut() = method;
    request.extensions_mut().insert(own);
    request
}

fn get<T: Clone + Send + Sync + 'static>(own: T) -> Request {
    request(Method::GET, own)
}

fn retry() -> RetryLayerBuilder<Http> {
    let backoff = Backoff::constant(ms(50)).jitter(Jitter::None);
    RetryLayer::builder().backoff(backoff).http()
}

fn hedge() -> HedgeLayerBuilder<Http> {
    HedgeLayer::builder().fixed(ms(10)).http()
}

/// The number of attempts over a service that always fails, and why the last was the last.
async fn attempts(layer: RetryLayerBuilder<Http>, request: Request) -> (usize, Option<StopReason>) {
    let probe = Probe::always(Answer::UNAVAILABLE);
    let service = layer.build().unwrap().layer(probe.clone());
    let response = service.oneshot(request).await.unwrap();
    let info = response
        .extensions()
        .get()
        .map(|info: &RetryInfo| info.stop);
    (probe.record().calls(), info)
}

#[tokio::test(start_paused = true)]
async fn a_request_chooses_its_number_of_attempts_and_no_other_request_is_affected() {
    let exhausted = Some(StopReason::AttemptsExhausted);
    for (own, expected) in [
        (RetryOverride::disabled(), 1),
        (RetryOverride::new().max_attempts(0), 1),
        (RetryOverride::new().max_attempts(2), 2),
        (RetryOverride::new(), 3),
        (RetryOverride::new().max_attempts(5), 5),
    ] {
        let seen = attempts(retry(), get(own)).await;
        assert_eq!(seen, (expected, exhausted), "{own:?}");
    }
    let probe = Probe::always(Answer::UNAVAILABLE);
    let service = retry().build().unwrap().layer(probe.clone());
    let disabled = get(RetryOverride::disabled());
    service.clone().oneshot(disabled).await.unwrap();
    service.oneshot(get(())).await.unwrap();
    assert_eq!(probe.record().calls(), 1 + 3);
}

#[tokio::test(start_paused = true)]
async fn more_attempts_do_not_lift_budget_safety_or_mode() {
    let five = RetryOverride::new().max_attempts(5);
    let budget = || retry().budget(Budget::ratio(0.0).burst(1));
    let empty = (2, Some(StopReason::BudgetExhausted));
    assert_eq!(attempts(budget(), get(five)).await, empty);
    let post = request(Method::POST, five);
    assert_eq!(attempts(retry(), post).await, (1, None));
    for mode in [Mode::Off, Mode::Shadow] {
        assert_eq!(attempts(retry().mode(mode), get(five)).await, (1, None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_disabled_request_still_has_time_limits_and_pays_into_the_budget() {
    let budget = Budget::ratio(1.0).initial(0);
    let layer = retry().budget(budget.clone()).attempt_timeout(ms(100));
    let probe = Probe::new(|n, _| match n {
        1 => Answer::OK,
        _ => Answer::OK.never(),
    });
    let boxed = tower::util::MapErr::new(probe.clone(), tower::BoxError::from);
    let service = layer.build().unwrap().layer(boxed);
    let disabled = || get(RetryOverride::disabled());
    service.clone().oneshot(disabled()).await.unwrap();
    assert_eq!(budget.available(), 1);
    let start = Instant::now();
    let error = service.clone().oneshot(disabled()).await.unwrap_err();
    assert!(error.is::<tower_jitter_retry::Elapsed>());
    assert_eq!(start.elapsed(), ms(100));
    let own = RetryOverride::disabled().attempt_timeout(ms(20));
    service.oneshot(get(own)).await.unwrap_err();
    assert_eq!(start.elapsed(), ms(100 + 20));
    assert_eq!(probe.record().calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_override_applies_to_all_retry_layers_together() {
    for answer in [Answer::UNAVAILABLE, Answer::error("busy")] {
        for (own, expected) in [
            (RetryOverride::disabled(), 1),
            (RetryOverride::new(), 3),
            (RetryOverride::new().max_attempts(5), 5),
        ] {
            let probe = Probe::always(answer);
            let layer = || retry().build().unwrap();
            let stack = layer().layer(layer().layer(probe.clone()));
            let _ = stack.oneshot(get(own)).await;
            assert_eq!(probe.record().calls(), expected, "{own:?} {answer:?}");
            // The copies carry the override on.
            let carried = probe.record().extensions();
            assert!(carried.iter().all(|all| all.get() == Some(&own)));
        }
    }
}

/// When attempts arrive at a service that never answers, within a second.
async fn arrivals(layer: HedgeLayerBuilder<Http>, request: Request) -> Vec<u64> {
    let start = Instant::now();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let probe = Probe::new(move |_, _| {
        sender.send(start.elapsed()).unwrap();
        Answer::OK.never()
    });
    let service = layer.build().unwrap().layer(probe);
    let call = tokio::time::timeout(ms(1_000), service.oneshot(request)).await;
    assert!(call.is_err());
    let mut arrivals = Vec::new();
    while let Some(arrival) = receiver.recv().await {
        arrivals.push(u64::try_from(arrival.as_millis()).unwrap());
    }
    arrivals
}

#[tokio::test(start_paused = true)]
async fn a_request_chooses_its_hedges() {
    let new = HedgeOverride::new;
    let all = || {
        let (two, of_ten) = (hedge().max_hedges(2), hedge());
        let delays = HedgeLayer::builder().delays([ms(10), ms(15)]).http();
        let fan_out = HedgeLayer::builder().fan_out(3).http();
        let learned = HedgeLayer::builder().percentile(0.9).http();
        [of_ten, two, delays, fan_out, learned]
    };
    let none: &[u64] = &[0];
    for (own, expected) in [
        (
            new(),
            [&[0, 10][..], &[0, 10, 20], &[0, 10, 15], &[0, 0, 0], none],
        ),
        (HedgeOverride::disabled(), [none; 5]),
        (new().max_hedges(0), [none; 5]),
        (
            new().max_hedges(1),
            [&[0, 10], &[0, 10], &[0, 10], &[0, 0], none],
        ),
        (
            new().max_hedges(3),
            [
                &[0, 10, 20, 30],
                &[0, 10, 20, 30],
                &[0, 10, 15],
                &[0, 0, 0, 0],
                none,
            ],
        ),
        (
            new().delay(ms(7)),
            [&[0, 7], &[0, 7, 14], &[0, 7, 14], &[0, 7, 14], &[0, 7]],
        ),
        (new().delay(Duration::ZERO).max_hedges(2), [&[0, 0, 0]; 5]),
        (new().delay(Duration::MAX), [none; 5]),
        (
            new().deadline(Deadline::after(ms(10))),
            [none, none, none, &[0, 0, 0], none],
        ),
    ] {
        for (layer, expected) in all().into_iter().zip(expected) {
            // Deadlines are instants, which the layers before this one have passed.
            let own = match own.deadline {
                Some(_) => new().deadline(Deadline::after(ms(10))),
                None => own,
            };
            let layer = layer.budget(Budget::unlimited());
            assert_eq!(arrivals(layer, get(own)).await, expected, "{own:?}");
        }
    }
    let many = new().delay(ms(1)).max_hedges(u32::MAX);
    assert_eq!(arrivals(hedge(), get(many)).await.len(), 1 + 100);
}

#[tokio::test(start_paused = true)]
async fn more_hedges_do_not_lift_budget_safety_or_mode() {
    let own = HedgeOverride::new().delay(ms(1)).max_hedges(5);
    let budget = hedge().budget(Budget::ratio(0.0).burst(2));
    assert_eq!(arrivals(budget, get(own)).await, [0, 1, 2]);
    let post = request(Method::POST, own);
    assert_eq!(arrivals(hedge(), post).await, [0]);
    for mode in [
        tower_hedge_latency::Mode::Off,
        tower_hedge_latency::Mode::Shadow,
    ] {
        assert_eq!(arrivals(hedge().mode(mode), get(own)).await, [0]);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_learned_from_a_request_with_a_delay_of_its_own() {
    let layer = HedgeLayer::builder().percentile(0.9).http();
    let layer = layer.build().unwrap();
    let service = layer.layer(Probe::always(Answer::OK.after(10)));
    let own = HedgeOverride::new().delay(ms(50));
    for _ in 0..1_000 {
        service.clone().oneshot(get(own)).await.unwrap();
    }
    assert_eq!(layer.handle().delay(), None);
    for _ in 0..1_000 {
        service.clone().oneshot(get(())).await.unwrap();
    }
    assert!(layer.handle().delay().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_request_without_hedges_trains_no_trigger_deposits_into_no_ratio_and_is_not_ineligible() {
    let none = HedgeOverride::disabled();
    for (mode, own) in [
        (Mode::On, none),
        (Mode::On, HedgeOverride::new().max_hedges(0)),
        (Mode::On, none.deadline(Deadline::NEVER)),
        (Mode::Shadow, none),
    ] {
        let budget = Budget::ratio(1.0).initial(0);
        let layer = HedgeLayer::builder().percentile(0.9).mode(mode);
        let layer = layer.budget(budget.clone()).http().build().unwrap();
        let handle = layer.handle();
        let service = layer.layer(Probe::always(Answer::OK.after(10)));
        for _ in 0..1_000 {
            service.clone().oneshot(get(own)).await.unwrap();
        }
        // The method of this request is not hedged either.
        let post = request(Method::POST, own);
        service.clone().oneshot(post).await.unwrap();
        assert_eq!(handle.delay(), None, "{mode:?} {own:?}");
        assert_eq!(budget.available(), 0, "{mode:?} {own:?}");
        let counts = handle.counts();
        assert_eq!((counts.calls, counts.ineligible), (1_001, 0), "{own:?}");
        for _ in 0..1_000 {
            service.clone().oneshot(get(())).await.unwrap();
        }
        assert!(handle.delay().is_some(), "{mode:?} {own:?}");
        assert_eq!(budget.available(), 100, "{mode:?} {own:?}");
    }
}

/// Each attempt of the retry layer is a race of its own, with the same override.
#[tokio::test(start_paused = true)]
async fn below_a_retry_layer_each_attempt_follows_the_hedge_override() {
    for (hedges, expected) in [(0, 2), (1, 4), (2, 6)] {
        let probe = Probe::always(Answer::UNAVAILABLE.after(100));
        let hedge = hedge().build().unwrap().layer(probe.clone());
        let stack = retry().build().unwrap().layer(hedge);
        let mut request = get(RetryOverride::new().max_attempts(2));
        let own = HedgeOverride::new().max_hedges(hedges);
        request.extensions_mut().insert(own);
        stack.oneshot(request).await.unwrap();
        assert_eq!(probe.record().calls(), expected);
    }
}

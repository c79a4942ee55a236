//! The handle: counts, the budget, and single settings that change while calls are made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_jitter_retry::{
    Backoff, Budget, Jitter, Mode, RetryHandle, RetryLayer, RetryLayerBuilder, StopReason, Verdict,
};

use crate::support::{BoxError, ms};

fn builder() -> RetryLayerBuilder {
    let backoff = Backoff::constant(ms(100));
    RetryLayer::builder()
        .backoff(backoff)
        .budget(Budget::unlimited())
}

/// The attempts and the duration of a call that succeeds with its n-th attempt.
async fn call<P, O, T>(layer: &RetryLayer<P, O, T>, success: u32) -> (u32, Duration)
where
    RetryLayer<P, O, T>: Layer<Flaky, Service: tower::Service<(), Error = BoxError>>,
{
    let sent = Arc::new(AtomicU32::new(0));
    let start = Instant::now();
    let _ = layer
        .layer(flaky(Arc::clone(&sent), success))
        .oneshot(())
        .await;
    (sent.load(Relaxed), start.elapsed())
}

type Flaky = tower::util::BoxCloneService<(), (), BoxError>;

fn flaky(sent: Arc<AtomicU32>, success: u32) -> Flaky {
    Flaky::new(service_fn(move |(): ()| {
        let attempt = sent.fetch_add(1, Relaxed) + 1;
        async move {
            match attempt >= success {
                true => Ok(()),
                false => Err(BoxError::from("failed")),
            }
        }
    }))
}

#[tokio::test(start_paused = true)]
async fn calls_are_counted_by_their_end_unless_the_first_attempt_succeeds() {
    let layer = builder().build().unwrap();
    let handle = layer.handle();
    call(&layer, 1).await;
    assert_eq!(handle.counts(), Default::default());
    call(&layer, 2).await;
    call(&layer, 9).await;
    handle.set_mode(Mode::Off);
    call(&layer, 9).await;
    let counts = handle.counts();
    assert_eq!((counts.retries, counts.recovered), (1 + 2, 1));
    for (reason, calls) in [
        (StopReason::Success, 1),
        (StopReason::AttemptsExhausted, 1),
        (StopReason::Off, 1),
        (StopReason::BudgetExhausted, 0),
        (StopReason::Cancelled, 0),
    ] {
        assert_eq!(counts.stopped(reason), calls, "{reason:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_setting_changes_alone() {
    let layer = builder().attempt_timeout(ms(1_000)).build().unwrap();
    let handle = layer.handle();
    assert_eq!(call(&layer, 9).await, (3, ms(200)));
    handle.set_max_attempts(4).unwrap();
    assert_eq!(call(&layer, 9).await, (4, ms(300)));
    handle.set_backoff(Backoff::constant(ms(50))).unwrap();
    assert_eq!(call(&layer, 9).await, (4, ms(150)));
    // The fourth attempt would be sent after the deadline.
    handle.set_deadline(ms(120)).unwrap();
    assert_eq!(call(&layer, 9).await, (3, ms(100)));
    handle.set_budget(Budget::ratio(0.0).initial(1)).unwrap();
    assert_eq!(handle.budget().available(), 1);
    assert_eq!(call(&layer, 9).await, (2, ms(50)));
    assert_eq!(handle.budget().available(), 0);
    handle.set_mode(Mode::Shadow);
    assert_eq!(
        (handle.mode(), call(&layer, 9).await),
        (Mode::Shadow, (1, ms(0)))
    );
}

#[tokio::test(start_paused = true)]
async fn the_maximum_retry_after_changes_while_calls_are_made() {
    let failure = |_: &Result<(), BoxError>, _: &_| Verdict::throttled().after(ms(500));
    let layer = builder().classify_fn(failure).build().unwrap();
    let handle = layer.handle();
    // A hint of 500 ms is honoured, with jitter of up to a tenth.
    let (sent, waited) = call(&layer, 9).await;
    assert_eq!(sent, 3);
    assert!((ms(1_000)..=ms(1_100)).contains(&waited), "{waited:?}");
    for (longest, expected) in [(ms(499), 1), (ms(500), 3), (ms(0), 1), (Duration::MAX, 3)] {
        handle.set_max_retry_after(longest);
        assert_eq!(call(&layer, 9).await.0, expected, "{longest:?}");
    }
    let too_long = handle.counts().stopped(StopReason::RetryAfterTooLong);
    assert_eq!(too_long, 2);
    // A later change of another setting keeps the maximum.
    handle.set_max_retry_after(ms(499));
    handle.set_max_attempts(2).unwrap();
    assert_eq!(call(&layer, 9).await, (1, ms(0)));
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_is_retuned_keeps_the_settings_that_are_not_given() {
    let layer = builder().max_attempts(5).build().unwrap();
    let handle = layer.handle();
    let given = RetryLayer::builder().backoff(Backoff::constant(ms(10)));
    handle.retune(&given.build().unwrap()).unwrap();
    assert_eq!(call(&layer, 9).await, (5, ms(40)));
    let budget = Budget::ratio(0.0).initial(2);
    let given = RetryLayer::builder().budget(budget.clone());
    handle.retune(&given.build().unwrap()).unwrap();
    assert_eq!(call(&layer, 9).await, (3, ms(20)));
    assert_eq!(budget.available(), 0, "it is shared");
    // The other layer was given no setting.
    handle
        .retune(&RetryLayer::builder().build().unwrap())
        .unwrap();
    assert_eq!(call(&layer, 9).await, (1, ms(0)));
}

#[tokio::test(start_paused = true)]
async fn a_setting_out_of_its_range_is_an_error_and_changes_nothing() {
    type Set = fn(&RetryHandle) -> Result<(), tower_jitter_retry::BuildError>;
    let layer = builder().build().unwrap();
    let without =
        "but must be unset: the layer was built without attempt_timeout, deadline and on_timeout";
    let sets: [(Set, String); 5] = [
        (
            |handle| handle.set_max_attempts(0),
            "max_attempts is 0, but must be at least 1, the first attempt included".into(),
        ),
        (
            |handle| handle.set_backoff(Backoff::default().factor(0.5)),
            "backoff.factor is 0.5, but must be finite and at least 1".into(),
        ),
        (
            |handle| handle.set_budget(Budget::ratio(-1.0)),
            "budget.ratio is -1.0, but must be from 0 to 10 extra attempts per deposit".into(),
        ),
        (
            |handle| handle.set_attempt_timeout(ms(5)),
            format!("attempt_timeout is 5ms, {without}"),
        ),
        (
            |handle| handle.retune(&RetryLayer::builder().deadline(ms(5)).build()?),
            format!("deadline is 5ms, {without}"),
        ),
    ];
    for (set, message) in sets {
        assert_eq!(set(&layer.handle()).unwrap_err().to_string(), message);
    }
    assert_eq!(call(&layer, 9).await, (3, ms(200)));
}

#[cfg(feature = "http")]
#[test]
fn budgets_by_key_stay_and_their_handle_shows_that_of_requests_without_a_key() {
    let budgets = tower_jitter_retry::Budgets::new(Budget::ratio(0.5).initial(7));
    let builder = || RetryLayer::builder().http();
    let by_host = builder().budget_by(budgets, |request| request.authority());
    let handle = by_host.build().unwrap().handle();
    assert_eq!(handle.budget().available(), 7);
    let expected = "budget is set, but must be unset besides budget_by";
    let error = handle.set_budget(Budget::default()).unwrap_err();
    assert_eq!(error.to_string(), expected);
    let other = builder().budget(Budget::default()).build().unwrap();
    assert_eq!(handle.retune(&other).unwrap_err().to_string(), expected);
}

#[test]
fn a_constant_backoff_has_jitter_only_if_it_is_set() {
    let delays = |backoff: Backoff| backoff.schedule().take(50).collect::<Vec<_>>();
    assert_eq!(delays(Backoff::constant(ms(70))), [ms(70); 50]);
    assert_ne!(
        delays(Backoff::constant(ms(70)).jitter(Jitter::Full)),
        [ms(70); 50]
    );
    assert_ne!(delays(Backoff::exponential(ms(70), ms(70))), [ms(70); 50]);
}

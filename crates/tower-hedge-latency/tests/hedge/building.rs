//! The builder: invalid settings, retuning, and the types of the layer.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::{advance, sleep};
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{Layer, ServiceExt, service_fn};
use tower_hedge_latency::{Budget, HedgeLayer, HedgeLayerBuilder};
use tower_test::mock;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_retuned_layer_changes_from_the_next_call_on() {
    let layer = fixed(10).build().unwrap();
    let (mut service, mut handle) = mock::spawn_layer::<u32, u32, _>(layer.clone());
    assert_ready_ok!(service.poll_ready());
    let mut before = task::spawn(service.call(7));
    layer.handle().retune(&fixed(20).build().unwrap()).unwrap();
    assert_ready_ok!(service.poll_ready());
    let mut after = task::spawn(service.call(7));
    assert_pending!(before.poll());
    assert_pending!(after.poll());
    let _primaries = (next(&mut handle).await, next(&mut handle).await);
    advance(ms(10)).await;
    assert_pending!(after.poll());
    assert_no_request(&mut handle);
    assert_pending!(before.poll());
    let _hedge = next(&mut handle).await;
    advance(ms(10)).await;
    assert_pending!(after.poll());
    let _hedge = next(&mut handle).await;
}

#[test]
fn a_wrong_value_is_named_with_its_bound() {
    let message = |builder: HedgeLayerBuilder| builder.build().unwrap_err().to_string();
    let percentile = || HedgeLayer::builder().percentile(0.9);
    for (builder, expected) in [
        (
            HedgeLayer::builder().fan_out(0),
            "fan_out is 0, but must be from 2 to 101 attempts in all",
        ),
        (
            fixed(10).max_hedges(0),
            "max_hedges is 0, but must be from 1 to 100",
        ),
        (
            percentile().max_hedges(101),
            "max_hedges is 101, but must be from 1 to 100",
        ),
        (
            fixed(10).budget(Budget::ratio(0.1).burst(0)),
            "budget.burst is 0, but must be at least 1; to switch extra attempts off use Mode::Off",
        ),
        (
            HedgeLayer::builder().percentile(95.0),
            "percentile is 95.0, but must be above 0 and below 1: 0.95 is the 95th percentile",
        ),
        (
            HedgeLayer::builder().percentile(f64::NAN),
            "percentile is NaN, but must be above 0 and below 1: 0.95 is the 95th percentile",
        ),
        (
            percentile().window(Duration::ZERO),
            "window is 0ns, but must be longer than nothing",
        ),
        (
            percentile().min_delay(ms(20)).max_delay(ms(10)),
            "max_delay is 10ms, but must be at least the min_delay of 20ms",
        ),
        (
            percentile().max_delay(Duration::ZERO),
            "max_delay is 0ns, but must be at least the min_delay of 1ms",
        ),
        (
            fixed(10).percentile(0.9),
            "percentile is set, but must be unset besides fixed",
        ),
        (
            HedgeLayer::builder().fan_out(3).delays([ms(10)]),
            "delays is set, but must be unset besides fan_out",
        ),
        (
            fixed(10).window(ms(10)),
            "window is set, but must be unset besides fixed",
        ),
        (
            percentile().budget(Budget::ratio(f64::NAN)),
            "budget.ratio is NaN, but must be from 0 to 10 extra attempts per deposit",
        ),
    ] {
        assert_eq!(message(builder), expected);
    }
    assert!(HedgeLayer::builder().build().is_ok());
}

#[test]
fn a_key_besides_a_trigger_that_learns_nothing_is_an_error() {
    let class = |request: &u32| *request;
    let builder = HedgeLayer::builder;
    for (triggered, setter) in [
        (fixed(10), "fixed"),
        (builder().delays([ms(10)]), "delays"),
        (builder().fan_out(2), "fan_out"),
    ] {
        let error = triggered.key(class).build().unwrap_err().to_string();
        let expected = format!("key is set, but must be unset besides {setter}");
        assert_eq!(error, expected);
    }
    for learned in [builder(), builder().percentile(0.9)] {
        assert!(learned.key(class).build().is_ok());
    }
}

#[test]
fn a_layer_with_a_key_can_be_retuned_while_its_trigger_is_a_fixed_delay() {
    let class = |request: &u32| *request;
    let layer = HedgeLayer::builder().key(class).build().unwrap();
    let handle = layer.handle();
    handle.set_fixed(ms(20));
    let other = HedgeLayer::builder().key(class).build().unwrap();
    handle.retune(&other).unwrap();
    assert_eq!(handle.delay(), Some(ms(20)));
    handle.set_percentile(0.9).unwrap();
    assert_eq!(handle.quantile(), Some(0.9));
}

/// The layer would never draw on a second budget, whose setter also decides which layer deposits.
#[cfg(feature = "http")]
#[test]
fn a_budget_besides_one_for_each_request_is_an_error() {
    let by_request = || {
        let budgets = tower_hedge_latency::Budgets::new(Budget::ratio(0.1));
        fixed(10)
            .http()
            .budget_by(budgets, |request| request.authority())
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

/// Boxed services are `Send` but not `Sync`.
#[tokio::test(start_paused = true)]
async fn a_call_with_boxed_alternates_can_be_spawned() {
    let region = |millis| {
        tower::util::BoxCloneService::new(service_fn(move |(): ()| async move {
            sleep(ms(millis)).await;
            Ok::<_, Infallible>(millis)
        }))
    };
    let layer = fixed(10).max_hedges(3).alternates([region(90), region(5)]);
    let service = layer.build().unwrap().layer(region(100));
    let call = tokio::spawn(async move { service.oneshot(()).await });
    assert_eq!(call.await.unwrap(), Ok(5));
}

use tower_hedge_latency::{Attempt, Drain, HedgeLayer, UsedEndpoints};

use crate::pairs::check;
use crate::*;

fn choose(_: Attempt, _: &UsedEndpoints) {}

fn class(_: &String) -> &'static str {
    "page"
}

/// Two budgets, two triggers, and settings that a trigger does not use.
fn contradict(first: &str, second: &str) -> bool {
    const TRIGGERS: [&str; 4] = ["percentile", "fixed", "delays", "fan_out"];
    const LEARNED: [&str; 5] = ["min_delay", "max_delay", "initial_delay", "window", "key"];
    is_in_both(&BUDGETS, first, second)
        || is_in_both(&TRIGGERS, first, second)
        || (TRIGGERS[1..].contains(&first) && LEARNED.contains(&second))
        || (TRIGGERS[2..].contains(&first) && second == "max_hedges")
}

#[test]
fn http_setters_come_in_any_order() {
    let built = pairs!(
        HedgeLayer::builder().http(),
        [
            name("payments"),
            mode(Mode::Shadow),
            observer(Silent),
            budget(budget()),
            shared_budget(budget()),
            budget_by(budgets(), by_host),
            shared_budget_by(budgets(), by_host),
            percentile(0.9),
            fixed(ms(9)),
            delays([ms(8)]),
            fan_out(3),
            max_hedges(2),
            min_delay(ms(3)),
            max_delay(ms(30)),
            initial_delay(ms(10)),
            window(ms(100)),
            hedge_on_failure(true),
            key(by_host),
            alternates([()]),
            alternates_fn(choose),
            spread(),
            drain(Drain::default()),
            replay_limit(5),
            hedge_if(yes),
            hedge_unsafe_if(yes),
            classify(http_verdict),
            retry_statuses([StatusCode::LOCKED]),
            generate_idempotency_key(random_key),
        ]
    );
    check(&built, contradict);
}

#[test]
fn grpc_setters_come_in_any_order() {
    let built = pairs!(
        HedgeLayer::builder().grpc().idempotent_methods(["/a.B/C"]),
        [
            name("payments"),
            mode(Mode::Shadow),
            observer(Silent),
            budget(budget()),
            shared_budget(budget()),
            budget_by(budgets(), by_host),
            shared_budget_by(budgets(), by_host),
            percentile(0.9),
            fixed(ms(9)),
            delays([ms(8)]),
            fan_out(3),
            max_hedges(2),
            min_delay(ms(3)),
            max_delay(ms(30)),
            initial_delay(ms(10)),
            window(ms(100)),
            hedge_on_failure(true),
            key(by_host),
            alternates([()]),
            alternates_fn(choose),
            spread(),
            drain(Drain::default()),
            replay_limit(5),
            hedge_if(yes),
            idempotent_if(yes),
            idempotent_methods(["/a.B/D"]),
            classify(grpc_verdict),
        ]
    );
    check(&built, contradict);
}

#[test]
fn setters_for_any_other_service_come_in_any_order() {
    macro_rules! pairs_from {
        ($($builder:expr),*) => {
            $(check(&pairs!($builder, [
                name("payments"),
                mode(Mode::Shadow),
                observer(Silent),
                budget(budget()),
                shared_budget(budget()),
                percentile(0.9),
                fixed(ms(9)),
                delays([ms(8)]),
                fan_out(3),
                max_hedges(2),
                min_delay(ms(3)),
                max_delay(ms(30)),
                initial_delay(ms(10)),
                window(ms(100)),
                hedge_on_failure(true),
                key(class),
                alternates([()]),
                alternates_fn(choose),
                spread(),
                drain(Drain::default()),
            ]), contradict);)*
        };
    }
    let builder = HedgeLayer::builder;
    // A rule comes before all others here, and after them below.
    pairs_from!(
        builder(),
        builder().retry_if(failed),
        builder().classify_fn(never)
    );
    let first = builder().retry_if(failed).key(class).observer(Silent);
    let last = builder().key(class).observer(Silent).retry_if(failed);
    assert_eq!(format!("{first:?}"), format!("{last:?}"));
    assert!(first.build().is_ok() && last.build().is_ok());
}

use tower_jitter_retry::{Backoff, Elapsed, RetryLayer};

use crate::pairs::check;
use crate::*;

fn late(_: Elapsed) -> Result<(), BoxError> {
    Ok(())
}

fn http_backoff(_: u32, _: HttpOutcome<'_>) -> Option<Duration> {
    None
}

fn grpc_backoff(_: u32, _: GrpcOutcome<'_>) -> Option<Duration> {
    None
}

fn contradict(first: &str, second: &str) -> bool {
    is_in_both(&BUDGETS, first, second)
}

#[test]
fn http_setters_come_in_any_order() {
    let built = pairs!(
        RetryLayer::builder().http(),
        [
            name("payments"),
            mode(Mode::Shadow),
            observer(Silent),
            budget(budget()),
            shared_budget(budget()),
            budget_by(budgets(), by_host),
            shared_budget_by(budgets(), by_host),
            max_attempts(4),
            backoff(Backoff::none()),
            max_retry_after(ms(9)),
            retry_until(ms(8)),
            attempt_timeout(ms(7)),
            deadline(ms(6)),
            on_timeout(late),
            replay_limit(5),
            idempotent_if(yes),
            classify(http_verdict),
            backoff_by(http_backoff),
            retry_statuses([StatusCode::LOCKED]),
            generate_idempotency_key(random_key),
            retry_429_for_idempotent_only(),
            without_redirects(),
        ]
    );
    check(&built, contradict);
}

#[test]
fn grpc_setters_come_in_any_order() {
    let built = pairs!(
        RetryLayer::builder().grpc(),
        [
            name("payments"),
            mode(Mode::Shadow),
            observer(Silent),
            budget(budget()),
            shared_budget(budget()),
            budget_by(budgets(), by_host),
            shared_budget_by(budgets(), by_host),
            max_attempts(4),
            backoff(Backoff::none()),
            max_retry_after(ms(9)),
            retry_until(ms(8)),
            attempt_timeout(ms(7)),
            deadline(ms(6)),
            on_timeout(late),
            replay_limit(5),
            idempotent_if(yes),
            idempotent_methods(["/a.B/C"]),
            classify(grpc_verdict),
            backoff_by(grpc_backoff),
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
                max_attempts(4),
                backoff(Backoff::none()),
                max_retry_after(ms(9)),
                retry_until(ms(8)),
                attempt_timeout(ms(7)),
                deadline(ms(6)),
                on_timeout(late),
            ]), contradict);)*
        };
    }
    let builder = RetryLayer::builder;
    // A rule comes before all others here, and after them below.
    pairs_from!(
        builder(),
        builder().retry_if(failed),
        builder().classify_fn(never)
    );
    let first = builder().retry_if(failed).on_timeout(late).observer(Silent);
    let last = builder().on_timeout(late).observer(Silent).retry_if(failed);
    assert_eq!(format!("{first:?}"), format!("{last:?}"));
    assert!(first.build().is_ok() && last.build().is_ok());
}

//! Every pair of setters builds the same layer in both orders, or is an error in both that names both.

#[macro_use]
mod pairs;
mod hedge;
mod retry;

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tower::BoxError;
use tower_attempt::{
    Attempt, Budget, Budgets, GrpcOutcome, HttpOutcome, Mode, Observer, RequestHead, Verdict,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[derive(Clone)]
struct Silent;

impl Observer for Silent {}

fn budget() -> Budget {
    Budget::ratio(0.3)
}

fn budgets() -> Budgets {
    Budgets::new(budget())
}

// Functions and not closures, so that all pairs share their code.

fn by_host<'a>(request: RequestHead<'a>) -> Option<&'a str> {
    request.authority()
}

fn yes(_: RequestHead<'_>) -> bool {
    true
}

fn random_key() -> HeaderValue {
    HeaderValue::from_static("1")
}

fn http_verdict(outcome: HttpOutcome<'_>) -> Verdict {
    outcome.verdict()
}

fn grpc_verdict(outcome: GrpcOutcome<'_>) -> Verdict {
    outcome.verdict()
}

fn failed(outcome: &Result<(), BoxError>) -> bool {
    outcome.is_err()
}

fn never(_: &Result<(), BoxError>, _: &Attempt) -> Verdict {
    Verdict::Fatal
}

/// Whether both setters belong to a group that allows only one of them.
fn is_in_both(group: &[&str], first: &str, second: &str) -> bool {
    first != second && group.contains(&first) && group.contains(&second)
}

const BUDGETS: [&str; 4] = ["budget", "shared_budget", "budget_by", "shared_budget_by"];

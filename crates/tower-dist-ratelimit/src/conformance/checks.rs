//! The checks of one algorithm.

mod decisions;
mod frozen;
mod timed;

use std::mem::discriminant;

use self::{
    decisions::decisions,
    frozen::{all_or_nothing, dynamic_quotas, keys, nothing_written, racing, refunds, reset},
    timed::{expiry, retry},
};
use super::{
    Checked, Violation,
    rng::Rng,
    subject::{self, Case, FROZEN},
    violation,
};
use crate::{Quota, backend::BoxFuture};

/// The name and the function of a check.
pub(super) type NamedCheck = (&'static str, fn(Case) -> BoxFuture<'static, Checked>);

/// All checks. The first one runs for each variant of `Algorithm`, the others for each supported algorithm.
pub(super) const CHECKS: [NamedCheck; 11] = [
    ("building", |case| Box::pin(building(case))),
    ("decisions", |case| Box::pin(decisions(case))),
    ("retry", |case| Box::pin(retry(case))),
    ("expiry", |case| Box::pin(expiry(case))),
    ("nothing written", |case| Box::pin(nothing_written(case))),
    ("refunds", |case| Box::pin(refunds(case))),
    ("reset", |case| Box::pin(reset(case))),
    ("keys", |case| Box::pin(keys(case))),
    ("racing", |case| Box::pin(racing(case))),
    ("all or nothing", |case| Box::pin(all_or_nothing(case))),
    ("dynamic quotas", |case| Box::pin(dynamic_quotas(case))),
];

/// Checks that `register` accepts the case's algorithm if the backend supports it, and rejects it otherwise.
async fn building(case: Case) -> Checked {
    let is_same = |one| discriminant(one) == discriminant(&case.algorithm);
    let built = case.subject(FROZEN);
    if case.kit.algorithms.iter().any(is_same) {
        return built.map(drop);
    }
    let expected = "an error: the backend does not have the algorithm";
    violation::promise(built.is_err(), "register", "the answer", expected, "ids")
}

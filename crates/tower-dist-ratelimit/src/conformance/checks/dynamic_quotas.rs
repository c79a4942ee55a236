use super::{Conformance, Subject, Violation, found};
use crate::{Algorithm, Quota, conformance::subject::LIMIT};

/// A limit that is lowered below what is used rejects, one that is raised admits at once, and what was used stays used.
pub(in super::super) async fn dynamic_quotas(
    kit: &Conformance,
    algorithm: Algorithm,
) -> Result<(), Violation> {
    let subject = Subject::dynamic(kit, "dynamic quotas", algorithm)?;
    let key = subject.key("a");
    let of = |limit| Quota::new(limit, subject.quota.window());
    let by = |limit, cost| subject.charge(&key, cost).quota(of(limit));
    let used = subject.exhaust(&key).await?;
    let zero = subject.ask(by(0, 1)).await?;
    subject.promise(!zero.allowed && zero.retry_after.is_none(), || {
        found(
            "acquire by a limit of 0",
            "allowed",
            "false, for ever",
            zero,
        )
    })?;
    let low = subject.ask(by(LIMIT / 2, 1)).await?;
    let rejected = !low.allowed && low.remaining == 0 && low.limit == LIMIT / 2;
    subject.promise(rejected && low.retry_after.is_some(), || {
        let operation = format!("acquire by a limit below the {used} that are used");
        found(
            operation,
            "allowed",
            "false, with the new limit and a retry_after",
            low,
        )
    })?;
    let high = subject.ask(by(2 * LIMIT, 1)).await?;
    subject.promise(high.allowed && high.limit == 2 * LIMIT, || {
        let operation = format!("acquire by a limit above the {used} that are used");
        found(operation, "allowed", "true, with the new limit", high)
    })?;
    subject.promise(high.remaining < LIMIT + 1, || {
        let expected = format!("at most {LIMIT}: used tokens stay used");
        found("acquire by a raised limit", "remaining", expected, high)
    })?;
    let back = subject.take(&key, 1).await?;
    subject.promise(!back.allowed && back.limit == LIMIT, || {
        found(
            "acquire by the policy's own quota again",
            "allowed",
            "false, with its limit",
            back,
        )
    })
}

use super::{Algorithm, Checked, Conformance, FROZEN, LIMIT, Subject};

/// Rejections and looks write nothing: the remaining tokens stay, and an unused key stays unused.
pub(in super::super) async fn nothing_written(kit: &Conformance, algorithm: Algorithm) -> Checked {
    let subject = Subject::one(kit, "nothing written", algorithm, FROZEN, false)?;
    let (key, fresh) = (subject.key("used"), subject.key("fresh"));
    subject.exhaust(&key).await?;
    let before = subject.look(&key).await?;
    for _ in 0..20 {
        for cost in [1, 2, LIMIT + 1, u64::MAX, 0] {
            let seen = subject.take(&key, cost).await?;
            let (expected, operation) = (
                cost == 0,
                format!("acquire of {cost} from an exhausted key"),
            );
            subject.promise(
                seen.allowed == expected,
                operation,
                "allowed",
                expected,
                seen,
            )?;
        }
        for cost in [0, LIMIT + 1, u64::MAX] {
            subject.take(&fresh, cost).await?;
        }
    }
    let after = subject.look(&key).await?;
    // Time may have passed, so the wait may be shorter, but not longer.
    let same = after.remaining == before.remaining
        && after.reset_after <= before.reset_after
        && (!subject.clock.grain().is_zero() || after == before);
    let expected = format!("as before: {before:?}");
    subject.promise(
        same,
        "a look after rejections",
        "the decision",
        expected,
        after,
    )?;
    let unused = subject.look(&fresh).await?;
    let fresh = unused.reset_after.is_zero() && unused.remaining >= LIMIT;
    let operation = "a look at a key of rejections alone";
    subject.promise(fresh, operation, "remaining", "as of an unused key", unused)
}

use super::{Algorithm, Checked, Conformance, FROZEN, LIMIT, Subject};

/// Rejections and looks write nothing: the remaining tokens stay, and an unused key stays unused.
pub(in super::super) async fn nothing_written(kit: &Conformance, algorithm: Algorithm) -> Checked {
    let subject = Subject::one(kit, "nothing written", algorithm, FROZEN, false)?;
    let (key, fresh) = (subject.key("used"), subject.key("fresh"));
    let unused = subject.look(&fresh).await?;
    subject.exhaust(&key).await?;
    let before = subject.look(&key).await?;
    for _ in 0..20 {
        for cost in [1, 2, LIMIT + 1, u64::MAX, 0] {
            let seen = subject.take(&key, cost).await?;
            let operation = format!("acquire of {cost} from an exhausted key");
            subject.allows(operation, cost == 0, seen)?;
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
    let operation = "a look after rejections";
    subject.promise(same, operation, "the decision", expected, after)?;
    let seen = subject.look(&fresh).await?;
    subject.is_unused("a look at a key of rejections alone", unused, seen)
}

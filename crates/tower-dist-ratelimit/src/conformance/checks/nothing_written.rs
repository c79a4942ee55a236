use super::{Conformance, Subject, Violation, found};
use crate::{Algorithm, conformance::subject::LIMIT};

/// Rejections and looks leave no trace: what is left stays, and a key that nobody has charged stays unused.
pub(in super::super) async fn nothing_written(
    kit: &Conformance,
    algorithm: Algorithm,
) -> Result<(), Violation> {
    let subject = Subject::frozen(kit, "nothing written", algorithm)?;
    let (key, fresh) = (subject.key("used"), subject.key("fresh"));
    subject.exhaust(&key).await?;
    let before = subject.look(&key).await?;
    let grain = subject.clock.grain();
    for _ in 0..20 {
        for cost in [1, 2, LIMIT + 1, u64::MAX, 0] {
            let decision = subject.take(&key, cost).await?;
            subject.promise(decision.allowed == (cost == 0), || {
                found(
                    format!("acquire of {cost} from an exhausted key"),
                    "allowed",
                    cost == 0,
                    decision,
                )
            })?;
        }
        for cost in [0, LIMIT + 1, u64::MAX] {
            subject.take(&fresh, cost).await?;
        }
    }
    let after = subject.look(&key).await?;
    // Time may have passed, so it may have less to wait; and never more.
    let same = after.remaining == before.remaining
        && after.reset_after <= before.reset_after
        && (!grain.is_zero() || after == before);
    subject.promise(same, || {
        let expected = format!("as before: {before:?}");
        found("a look after rejections", "the decision", expected, after)
    })?;
    let unused = subject.look(&fresh).await?;
    let fresh = unused.reset_after.is_zero() && unused.remaining >= LIMIT;
    subject.promise(fresh, || {
        let operation = "a look at a key of rejections alone";
        found(operation, "remaining", "as of an unused key", unused)
    })
}

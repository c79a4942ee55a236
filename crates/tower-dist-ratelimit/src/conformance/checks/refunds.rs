use super::{Conformance, Subject, Violation, found};
use crate::{Algorithm, Decision, conformance::subject::LIMIT};

/// Refunds put back what was taken, and never more; extra charges take what is not there.
pub(in super::super) async fn refunds(
    kit: &Conformance,
    algorithm: Algorithm,
) -> Result<(), Violation> {
    let subject = Subject::frozen(kit, "refunds", algorithm)?;
    let key = subject.key("a");
    let full = subject.look(&key).await?.remaining;
    let left = |what: &'static str, seen: Decision, expected: u64| {
        subject.promise(seen.remaining == expected, || {
            found(format!("{what} of {full}"), "remaining", expected, seen)
        })
    };
    let taken = subject.take(&key, 5).await?;
    left("5 taken", taken, full - 5)?;
    subject.settle(subject.charge(&key, 5), -2).await?;
    left("2 refunded", subject.look(&key).await?, full - 3)?;
    // Of a charge at most its cost.
    subject.settle(subject.charge(&key, 1), -100).await?;
    left("1 refunded", subject.look(&key).await?, full - 2)?;
    subject
        .settle(subject.charge(&key, LIMIT), i64::MIN)
        .await?;
    left("all refunded", subject.look(&key).await?, full)?;
    subject.take(&key, 4).await?;
    subject.settle(subject.charge(&key, 4), 3).await?;
    left("3 more taken", subject.look(&key).await?, full - 7)?;
    let debt = LIMIT.cast_signed();
    subject.settle(subject.charge(&key, 4), debt).await?;
    left("more taken than there was", subject.look(&key).await?, 0)?;
    let rejected = subject.take(&key, 1).await?;
    subject.promise(!rejected.allowed, || {
        found("acquire of a key in debt", "allowed", false, rejected)
    })?;
    subject.settle(subject.charge(&key, LIMIT), -debt).await?;
    left("the debt refunded", subject.look(&key).await?, full - 7)?;
    let other = subject.look(&subject.key("b")).await?;
    left("another key", other, full)
}

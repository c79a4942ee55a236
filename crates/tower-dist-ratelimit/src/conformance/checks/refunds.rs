use super::{Algorithm, Checked, Conformance, Decision, FROZEN, LIMIT, Subject};

/// Refunds return the charged tokens and no more. Extra charges take tokens even if there are fewer.
pub(in super::super) async fn refunds(kit: &Conformance, algorithm: Algorithm) -> Checked {
    let subject = Subject::one(kit, "refunds", algorithm, FROZEN, false)?;
    let key = subject.key("a");
    let full = subject.look(&key).await?.remaining;
    let left = |what: &'static str, seen: Decision, expected: u64| {
        subject.remains(format_args!("{what} of {full}"), expected, seen)
    };
    let taken = subject.take(&key, 5).await?;
    left("5 taken", taken, full - 5)?;
    subject.settle(subject.charge(&key, 5), -2).await?;
    left("2 refunded", subject.look(&key).await?, full - 3)?;
    // A refund of a charge is at most its cost.
    subject.settle(subject.charge(&key, 1), -100).await?;
    left("1 refunded", subject.look(&key).await?, full - 2)?;
    let all = subject.charge(&key, LIMIT);
    subject.settle(all, i64::MIN).await?;
    left("all refunded", subject.look(&key).await?, full)?;
    subject.take(&key, 4).await?;
    subject.settle(subject.charge(&key, 4), 3).await?;
    left("3 more taken", subject.look(&key).await?, full - 7)?;
    let debt = LIMIT.cast_signed();
    subject.settle(subject.charge(&key, 4), debt).await?;
    left("more taken than there was", subject.look(&key).await?, 0)?;
    let rejected = subject.take(&key, 1).await?;
    subject.allows("acquire of a key in debt", false, rejected)?;
    subject.settle(all, -debt).await?;
    left("the debt refunded", subject.look(&key).await?, full - 7)?;
    let other = subject.look(&subject.key("b")).await?;
    left("another key", other, full)
}

use super::{Conformance, Subject, Violation, found};
use crate::Algorithm;

/// A reset forgets one key.
pub(in super::super) async fn reset(
    kit: &Conformance,
    algorithm: Algorithm,
) -> Result<(), Violation> {
    let subject = Subject::frozen(kit, "reset", algorithm)?;
    let (key, other) = (subject.key("a"), subject.key("b"));
    let unused = subject.look(&key).await?;
    subject.exhaust(&key).await?;
    subject.exhaust(&other).await?;
    subject.reset(&key).await?;
    let seen = subject.look(&key).await?;
    let forgotten = seen.remaining == unused.remaining && seen.reset_after.is_zero();
    subject.promise(forgotten, || {
        found(
            "a look after a reset",
            "remaining",
            "as of an unused key",
            seen,
        )
    })?;
    let other = subject.take(&other, 1).await?;
    subject.promise(!other.allowed, || {
        found("acquire after another key's reset", "allowed", false, other)
    })?;
    // Also one that there is nothing to forget of.
    subject.reset(&subject.key("c")).await
}

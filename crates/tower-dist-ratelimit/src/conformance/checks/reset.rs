use super::{Algorithm, Checked, Conformance, FROZEN, Subject};

/// A reset forgets one key and no other.
pub(in super::super) async fn reset(kit: &Conformance, algorithm: Algorithm) -> Checked {
    let subject = Subject::one(kit, "reset", algorithm, FROZEN, false)?;
    let (key, other) = (subject.key("a"), subject.key("b"));
    let unused = subject.look(&key).await?;
    subject.exhaust(&key).await?;
    subject.exhaust(&other).await?;
    subject.reset(&key).await?;
    let seen = subject.look(&key).await?;
    subject.is_unused("a look after a reset", unused, seen)?;
    let other = subject.take(&other, 1).await?;
    subject.allows("acquire after another key's reset", false, other)?;
    // A key without a state can be reset, too.
    subject.reset(&subject.key("c")).await
}

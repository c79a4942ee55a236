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
    let forgotten = seen.remaining == unused.remaining && seen.reset_after.is_zero();
    let expected = "as of an unused key";
    subject.promise(
        forgotten,
        "a look after a reset",
        "remaining",
        expected,
        seen,
    )?;
    let other = subject.take(&other, 1).await?;
    let operation = "acquire after another key's reset";
    subject.promise(!other.allowed, operation, "allowed", false, other)?;
    // A key without a state can be reset, too.
    subject.reset(&subject.key("c")).await
}

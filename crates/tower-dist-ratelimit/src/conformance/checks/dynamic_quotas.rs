use super::{Algorithm, Checked, Conformance, FROZEN, LIMIT, Quota, Subject};

/// A limit below the used tokens rejects. A raised limit admits immediately. Used tokens stay used.
pub(in super::super) async fn dynamic_quotas(kit: &Conformance, algorithm: Algorithm) -> Checked {
    if !kit.dynamic_quotas {
        return Ok(());
    }
    let subject = Subject::one(kit, "dynamic quotas", algorithm, FROZEN, true)?;
    let key = subject.key("a");
    let of = |limit| Quota::new(limit, FROZEN.window());
    let by = |limit, cost| subject.charge(&key, cost).quota(of(limit));
    let used = subject.exhaust(&key).await?;
    let zero = subject.ask(by(0, 1)).await?;
    let rejected = !zero.allowed && zero.retry_after.is_none();
    let (operation, expected) = ("acquire by a limit of 0", "false, for ever");
    subject.promise(rejected, operation, "allowed", expected, zero)?;
    let low = subject.ask(by(LIMIT / 2, 1)).await?;
    let rejected = !low.allowed && low.remaining == 0 && low.limit == LIMIT / 2;
    let kept = rejected && low.retry_after.is_some();
    let operation = format!("acquire by a limit below the {used} that are used");
    let expected = "false, with the new limit and a retry_after";
    subject.promise(kept, operation, "allowed", expected, low)?;
    let high = subject.ask(by(2 * LIMIT, 1)).await?;
    let allowed = high.allowed && high.limit == 2 * LIMIT;
    let operation = format!("acquire by a limit above the {used} that are used");
    let expected = "true, with the new limit";
    subject.promise(allowed, operation, "allowed", expected, high)?;
    let (kept, operation) = (high.remaining <= LIMIT, "acquire by a raised limit");
    let expected = format!("at most {LIMIT}: used tokens stay used");
    subject.promise(kept, operation, "remaining", expected, high)?;
    let back = subject.take(&key, 1).await?;
    let operation = "acquire by the policy's own quota again";
    let rejected = !back.allowed && back.limit == LIMIT;
    let expected = "false, with its limit";
    subject.promise(rejected, operation, "allowed", expected, back)
}

use std::time::Duration;

use super::{Algorithm, Checked, Conformance, LIMIT, QUICK, Subject, Violation};

/// A rejected request is rejected just before its `retry_after` and allowed at it, by the grain of the clock.
pub(in super::super) async fn retry(kit: &Conformance, algorithm: Algorithm) -> Checked {
    let subject = Subject::one(kit, "retry", algorithm, QUICK, false)?;
    // At least one round has to see a rejection. A window can end between two requests.
    let mut seen = false;
    for (round, cost) in [1, 3, LIMIT / 2, LIMIT].into_iter().enumerate() {
        let key = subject.key(&round.to_string());
        subject.exhaust(&key).await?;
        let asked = subject.now();
        let decision = subject.take(&key, cost).await?;
        if decision.allowed {
            continue;
        }
        let wait = decision.retry_after.unwrap_or_default();
        let operation = format!("acquire of {cost} from an exhausted key");
        let (some, expected) = (!wait.is_zero(), "above zero");
        subject.promise(some, operation, "retry_after", expected, decision)?;
        let since = [asked, subject.now()].map(Duration::from_nanos);
        if subject.clock.grain().is_zero() {
            seen = true;
            exactly(&subject, &key, cost, wait).await?;
        } else {
            seen |= about(&subject, &key, cost, wait, since).await?;
        }
    }
    let (operation, expected) = (
        "acquire from an exhausted key",
        "long enough to look before it",
    );
    subject.promise(seen, operation, "retry_after", expected, "shorter")
}

/// Charges one nanosecond before the end of `wait` and at its end, by a paused clock.
async fn exactly(subject: &Subject, key: &[u8], cost: u64, wait: Duration) -> Checked {
    let nano = Duration::from_nanos(1);
    subject.clock.pass(wait - nano).await;
    let early = subject.take(key, cost).await?;
    let operation = format!("acquire of {cost}, {nano:?} before a retry_after of {wait:?}");
    subject.allows(operation, false, early)?;
    subject.clock.pass(nano).await;
    let decision = subject.take(key, cost).await?;
    let operation = format!("acquire of {cost} after a retry_after of {wait:?}");
    subject.allows(operation, true, decision)
}

/// Charges repeatedly around the end of `wait`, by a clock that cannot be paused.
///
/// Each decision was made between the request and its answer; the one with `wait` was made between the two times of
/// `since`. Returns whether another rejection was seen.
async fn about(
    subject: &Subject,
    key: &[u8],
    cost: u64,
    wait: Duration,
    since: [Duration; 2],
) -> Result<bool, Violation> {
    let (grain, mut seen) = (subject.clock.grain(), false);
    let now = || Duration::from_nanos(subject.now());
    let mut pauses = [wait / 2, (wait / 2).saturating_sub(4 * grain)].into_iter();
    loop {
        subject.clock.pass(pauses.next().unwrap_or(grain / 2)).await;
        let asked = now();
        let decision = subject.take(key, cost).await?;
        let (least, most) = (asked.saturating_sub(since[1]), now() - since[0]);
        if decision.allowed {
            let operation = format!("acquire at most {most:?} into a retry_after of {wait:?}");
            subject.promise(most + grain >= wait, operation, "allowed", false, decision)?;
            return Ok(seen);
        }
        let operation = format!("acquire at least {least:?} after a retry_after of {wait:?}");
        subject.promise(least <= wait + grain, operation, "allowed", true, decision)?;
        seen = true;
    }
}

use std::time::Duration;

use super::{Conformance, Subject, Violation, found};
use crate::{Algorithm, conformance::subject::LIMIT};

/// Rounds, of which at least one has to say something: windows can be over at once.
const ROUNDS: u64 = 4;

/// A rejected request is rejected just before its `retry_after` and allowed at it, by the grain of the clock.
pub(in super::super) async fn retry(
    kit: &Conformance,
    algorithm: Algorithm,
) -> Result<(), Violation> {
    let subject = Subject::quick(kit, "retry", algorithm)?;
    let grain = subject.clock.grain();
    let mut seen = false;
    for round in 0..ROUNDS {
        let key = subject.key(&round.to_string());
        let cost = [1, 3, LIMIT / 2, LIMIT][usize::try_from(round % 4).unwrap_or(0)];
        subject.exhaust(&key).await?;
        let asked = subject.now();
        let Some(wait) = wait(&subject, &key, cost).await? else {
            continue;
        };
        let since = [asked, subject.now()].map(Duration::from_nanos);
        if grain.is_zero() {
            seen = true;
            exactly(&subject, &key, cost, wait).await?;
        } else {
            seen |= about(&subject, &key, cost, wait, since).await?;
        }
    }
    subject.promise(seen, || {
        let expected = "long enough to look before it";
        found(
            "acquire from an exhausted key",
            "retry_after",
            expected,
            "shorter",
        )
    })
}

/// Where time stands still: a nanosecond before it and at it.
async fn exactly(
    subject: &Subject,
    key: &[u8],
    cost: u64,
    wait: Duration,
) -> Result<(), Violation> {
    let nano = Duration::from_nanos(1);
    subject.clock.pass(wait - nano).await;
    let early = subject.take(key, cost).await?;
    subject.promise(!early.allowed, || {
        let operation = format!("acquire of {cost}, {nano:?} before a retry_after of {wait:?}");
        found(operation, "allowed", false, early)
    })?;
    subject.clock.pass(nano).await;
    let decision = subject.take(key, cost).await?;
    subject.promise(decision.allowed, || {
        let operation = format!("acquire of {cost} after a retry_after of {wait:?}");
        found(operation, "allowed", true, decision)
    })
}

/// Where it goes on: again and again around it, and each answer has to fit, whenever it was decided between the question
/// and the answer. `since` is the same of the rejection. Returns whether it was early enough to see one more.
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
            subject.promise(most + grain >= wait, || {
                let operation = format!("acquire at most {most:?} into a retry_after of {wait:?}");
                found(operation, "allowed", false, decision)
            })?;
            return Ok(seen);
        }
        subject.promise(least <= wait + grain, || {
            let operation = format!("acquire at least {least:?} after a retry_after of {wait:?}");
            found(operation, "allowed", true, decision)
        })?;
        seen = true;
    }
}

/// How long the key has to wait, if it is rejected.
async fn wait(subject: &Subject, key: &[u8], cost: u64) -> Result<Option<Duration>, Violation> {
    let decision = subject.take(key, cost).await?;
    if decision.allowed {
        return Ok(None);
    }
    match decision.retry_after {
        Some(wait) if !wait.is_zero() => Ok(Some(wait)),
        _ => {
            let operation = format!("acquire of {cost} from an exhausted key");
            Err(subject.broken(found(operation, "retry_after", "above zero", decision)))
        }
    }
}

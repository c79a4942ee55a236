use std::time::Duration;

use super::{Conformance, Subject, Violation};
use crate::{Algorithm, conformance::subject::LIMIT};

/// Rounds, of which at least one has to say something: windows can be over at once.
const ROUNDS: u64 = 4;

/// A refused request is refused just before its `retry_after` and allowed at it, by the grain of the clock.
pub(in super::super) async fn retry(
    kit: &Conformance,
    algorithm: Algorithm,
) -> Result<(), Violation> {
    let subject = Subject::quick(kit, "retry", algorithm)?;
    let grain = subject.clock.grain().max(Duration::from_nanos(1));
    let mut seen = false;
    for round in 0..ROUNDS {
        let key = subject.key(&round.to_string());
        let cost = [1, 3, LIMIT / 2, LIMIT][usize::try_from(round % 4).unwrap_or(0)];
        subject.exhaust(&key).await?;
        let Some(wait) = wait(&subject, &key, cost).await? else {
            continue;
        };
        let (asked, early) = (subject.now(), wait.saturating_sub(2 * grain));
        if subject.clock.grain().is_zero() {
            subject.clock.pass(wait - grain).await;
        } else {
            subject.clock.pass(early).await;
        }
        // Not if the clock took longer than it was asked to.
        let passed = Duration::from_nanos(subject.now() - asked);
        if passed + grain <= wait {
            seen = true;
            let decision = subject.take(&key, cost).await?;
            subject.promise(!decision.allowed, || {
                format!("allowed {passed:?} after it was to wait {wait:?}")
            })?;
        }
        let left = (wait + grain).saturating_sub(passed);
        let left = if subject.clock.grain().is_zero() {
            wait - passed
        } else {
            left
        };
        subject.clock.pass(left).await;
        let decision = subject.take(&key, cost).await?;
        subject.promise(decision.allowed, || {
            format!("refused again after waiting {wait:?}: {decision:?}")
        })?;
    }
    subject.promise(seen, || {
        "no wait was long enough to look before it".to_owned()
    })
}

/// How long the key has to wait, if it is refused.
async fn wait(subject: &Subject, key: &[u8], cost: u64) -> Result<Option<Duration>, Violation> {
    let decision = subject.take(key, cost).await?;
    if decision.allowed {
        return Ok(None);
    }
    match decision.retry_after {
        Some(wait) if !wait.is_zero() => Ok(Some(wait)),
        _ => Err(subject.broken(format!("refused, but {decision:?}"))),
    }
}

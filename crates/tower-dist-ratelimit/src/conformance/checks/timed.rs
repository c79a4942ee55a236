//! Checks that wait until used tokens are free again.

use std::time::Duration;

use super::{
    Case, Checked, Violation,
    subject::{LIMIT, QUICK, Subject},
    violation::{equal, is_unused, promise, within},
};

const NANO: Duration = Duration::from_nanos(1);

/// Returns a margin before the end of a wait. A check that asks this long before the end expects that the wait still
/// lasts, even if the clock errs by its grain.
fn early(grain: Duration) -> Duration {
    (4 * grain).max(NANO)
}

/// Checks that a rejected request is still rejected just before its `retry_after` has passed, and allowed afterwards.
/// The clock's grain is the tolerance.
pub(super) async fn retry(case: Case) -> Checked {
    let subject = case.subject(QUICK)?;
    // In some rounds no request is rejected during the wait, for example if a window ends soon after the wait begins.
    // At least one round has to see a rejection. The rejection that named the wait does not count.
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
        promise(some, operation, "retry_after", expected, decision)?;
        let since = [asked, subject.now()].map(Duration::from_nanos);
        seen |= around(&subject, &key, cost, wait, since).await?;
    }
    let operation = "acquire from an exhausted key";
    let expected = "long enough to look before it";
    promise(seen, operation, "retry_after", expected, "shorter")
}

/// Charges repeatedly around the end of `wait`. With a paused clock, charges after half of `wait`, one nanosecond
/// before its end, and at its end.
///
/// The decision that returned `wait` was made between the two times of `since`. Returns whether another request was
/// rejected.
async fn around(
    subject: &Subject,
    key: &[u8],
    cost: u64,
    wait: Duration,
    since: [Duration; 2],
) -> Result<bool, Violation> {
    let (grain, mut seen) = (subject.grain(), false);
    let now = || Duration::from_nanos(subject.now());
    let half = wait / 2;
    let mut pauses = [half, (wait - half).saturating_sub(early(grain))].into_iter();
    loop {
        let step = (grain / 2).max(NANO);
        subject.pass(pauses.next().unwrap_or(step)).await;
        let asked = now();
        let decision = subject.take(key, cost).await?;
        let (least, most) = (asked.saturating_sub(since[1]), now() - since[0]);
        if decision.allowed {
            let operation = format!("acquire at most {most:?} into a retry_after of {wait:?}");
            promise(most + grain >= wait, operation, "allowed", false, decision)?;
            return Ok(seen);
        }
        let operation = format!("acquire at least {least:?} after a retry_after of {wait:?}");
        promise(least < wait + grain, operation, "allowed", true, decision)?;
        seen = true;
    }
}

/// Checks that used tokens count until `reset_after`, and not longer.
pub(super) async fn expiry(case: Case) -> Checked {
    let subject = case.subject(QUICK)?;
    let key = subject.key("a");
    let unused = subject.look(&key).await?;
    let operation = "a look at an unused key";
    equal(operation, "reset_after", Duration::ZERO, unused.reset_after)?;
    subject.take(&key, 3).await?;
    let asked = subject.now();
    let used = subject.take(&key, 2).await?;
    let since = [asked, subject.now()].map(Duration::from_nanos);
    let (wait, grain) = (used.reset_after, subject.grain());
    // Under this quota, no token counts for longer than two windows.
    let longest = 2 * subject.quota.window() + grain;
    within("acquire of a used key", "reset_after", NANO..=longest, wait)?;
    subject.pass(wait.saturating_sub(early(grain))).await;
    still(&subject, &key, wait, since).await?;
    let passed = Duration::from_nanos(subject.now()) - since[1];
    subject.pass((wait + grain).saturating_sub(passed)).await;
    let seen = subject.look(&key).await?;
    let operation = format!("a look after a reset_after of {wait:?}");
    is_unused(operation, unused, seen)
}

/// Checks the `reset_after` of a look (a charge of zero cost) during `wait`, the `reset_after` of an earlier decision.
/// That decision was made between the two times of `since`.
async fn still(subject: &Subject, key: &[u8], wait: Duration, since: [Duration; 2]) -> Checked {
    let now = || Duration::from_nanos(subject.now());
    let (grain, asked) = (subject.grain(), now());
    let seen = subject.look(key).await?;
    let (least, most) = (asked.saturating_sub(since[1]), now() - since[0]);
    let left = wait.saturating_sub(most + grain)..=(wait + grain).saturating_sub(least);
    let operation = format!("a look {least:?} to {most:?} into a reset_after of {wait:?}");
    within(operation, "reset_after", left, seen.reset_after)
}

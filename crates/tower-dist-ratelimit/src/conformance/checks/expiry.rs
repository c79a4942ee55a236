use std::time::Duration;

use super::{Algorithm, Checked, Conformance, QUICK, Subject};

/// Used tokens count until `reset_after` and not longer.
pub(in super::super) async fn expiry(kit: &Conformance, algorithm: Algorithm) -> Checked {
    let subject = Subject::one(kit, "expiry", algorithm, QUICK, false)?;
    let key = subject.key("a");
    let unused = subject.look(&key).await?;
    let operation = "a look at an unused key";
    subject.equal(operation, "reset_after", Duration::ZERO, unused.reset_after)?;
    subject.take(&key, 3).await?;
    let asked = subject.now();
    let used = subject.take(&key, 2).await?;
    let since = [asked, subject.now()].map(Duration::from_nanos);
    let (wait, grain) = (used.reset_after, subject.clock.grain());
    // Nothing counts longer than two windows. A queue lasts a window and one request.
    let longest = 2 * subject.quota.window() + grain;
    let expected = format!("above zero and at most {longest:?}");
    let fits = !wait.is_zero() && wait <= longest;
    subject.promise(fits, "acquire of a used key", "reset_after", expected, used)?;
    if grain.is_zero() {
        let nano = Duration::from_nanos(1);
        subject.clock.pass(wait - nano).await;
        let seen = subject.look(&key).await?;
        let operation = format!("a look 1 ns before a reset_after of {wait:?}");
        let kept = seen.reset_after == nano;
        subject.promise(kept, operation, "reset_after", "1ns", seen)?;
        subject.clock.pass(nano).await;
    } else {
        subject.clock.pass(wait.saturating_sub(4 * grain)).await;
        still(&subject, &key, wait, since).await?;
        let passed = Duration::from_nanos(subject.now()) - since[1];
        let rest = (wait + grain).saturating_sub(passed);
        subject.clock.pass(rest).await;
    }
    let seen = subject.look(&key).await?;
    let operation = format!("a look after a reset_after of {wait:?}");
    subject.is_unused(operation, unused, seen)
}

/// Checks the rest of `wait` shortly before its end. The answer with `wait` was made between the two times of `since`.
async fn still(subject: &Subject, key: &[u8], wait: Duration, since: [Duration; 2]) -> Checked {
    let now = || Duration::from_nanos(subject.now());
    let (grain, asked) = (subject.clock.grain(), now());
    let seen = subject.look(key).await?;
    let (least, most) = (asked.saturating_sub(since[1]), now() - since[0]);
    let left = wait.saturating_sub(most + grain)..=(wait + grain).saturating_sub(least);
    let operation = format!("a look {least:?} to {most:?} into a reset_after of {wait:?}");
    let (kept, expected) = (left.contains(&seen.reset_after), format!("{left:?}"));
    subject.promise(kept, operation, "reset_after", expected, seen)
}

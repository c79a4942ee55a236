use std::time::Duration;

use super::{Conformance, Subject, Violation, found};
use crate::Algorithm;

/// What was used counts until `reset_after` and not longer.
pub(in super::super) async fn expiry(
    kit: &Conformance,
    algorithm: Algorithm,
) -> Result<(), Violation> {
    let subject = Subject::quick(kit, "expiry", algorithm)?;
    let key = subject.key("a");
    let unused = subject.look(&key).await?;
    subject.promise(unused.reset_after.is_zero(), || {
        found("a look at an unused key", "reset_after", "zero", unused)
    })?;
    subject.take(&key, 3).await?;
    let asked = subject.now();
    let used = subject.take(&key, 2).await?;
    let since = [asked, subject.now()].map(Duration::from_nanos);
    let wait = used.reset_after;
    // Two windows are the longest that anything counts; a queue is a window long and one request more.
    let longest = 2 * subject.quota.window() + subject.clock.grain();
    subject.promise(!wait.is_zero() && wait <= longest, || {
        let expected = format!("above zero and at most {longest:?}");
        found("acquire of a used key", "reset_after", expected, used)
    })?;
    if subject.clock.grain().is_zero() {
        let grain = Duration::from_nanos(1);
        subject.clock.pass(wait - grain).await;
        let seen = subject.look(&key).await?;
        subject.promise(seen.reset_after == grain, || {
            let operation = format!("a look 1 ns before a reset_after of {wait:?}");
            found(operation, "reset_after", "1ns", seen)
        })?;
        subject.clock.pass(grain).await;
    } else {
        let grain = subject.clock.grain();
        subject.clock.pass(wait.saturating_sub(4 * grain)).await;
        still(&subject, &key, wait, since).await?;
        let passed = Duration::from_nanos(subject.now()) - since[1];
        subject
            .clock
            .pass((wait + grain).saturating_sub(passed))
            .await;
    }
    let seen = subject.look(&key).await?;
    let as_new = seen.remaining == unused.remaining && seen.reset_after.is_zero();
    subject.promise(as_new, || {
        let operation = format!("a look after a reset_after of {wait:?}");
        found(
            operation,
            "remaining",
            format!("as of an unused key, {unused:?}"),
            seen,
        )
    })
}

/// Shortly before it, what is left of `wait`, since it was said at some time between these.
async fn still(
    subject: &Subject,
    key: &[u8],
    wait: Duration,
    since: [Duration; 2],
) -> Result<(), Violation> {
    let (grain, now) = (subject.clock.grain(), || {
        Duration::from_nanos(subject.now())
    });
    let asked = now();
    let seen = subject.look(key).await?;
    let (least, most) = (asked.saturating_sub(since[1]), now() - since[0]);
    let left = wait.saturating_sub(most + grain)..=(wait + grain).saturating_sub(least);
    subject.promise(left.contains(&seen.reset_after), || {
        let operation = format!("a look {least:?} to {most:?} into a reset_after of {wait:?}");
        found(operation, "reset_after", format!("{left:?}"), seen)
    })
}

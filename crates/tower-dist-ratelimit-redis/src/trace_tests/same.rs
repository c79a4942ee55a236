use std::time::Duration;

use tower_dist_ratelimit::Decision;

/// Whether two waits are the same: ours in whole microseconds, rounded up; theirs in nanoseconds, which may be rounded
/// up or down by one. After changes of the quota both have rounded what was used up to units of their own: that is more
/// by a share.
fn same_wait(ours: Duration, theirs: Duration, changes: bool) -> bool {
    // By a limit of zero nothing drains: both say decades, each as many as it can count.
    let never = Duration::from_secs(1_000_000_000);
    if ours.min(theirs) > never {
        return true;
    }
    let (ours, theirs) = (ours.as_nanos(), theirs.as_nanos());
    let up = |nanos: u128| nanos.div_ceil(1000) * 1000;
    let around = if changes {
        2_000 + theirs / 100_000_000
    } else {
        1
    };
    (up(theirs.saturating_sub(around))..=up(theirs + around)).contains(&ours)
}

pub(super) fn same(ours: &Decision, theirs: &Decision, changes: bool) -> bool {
    let wait = match (ours.retry_after, theirs.retry_after) {
        (Some(ours), Some(theirs)) => same_wait(ours, theirs, changes),
        (ours, theirs) => ours == theirs,
    };
    wait && (ours.allowed, ours.limit, ours.remaining, ours.granted)
        == (
            theirs.allowed,
            theirs.limit,
            theirs.remaining,
            theirs.granted,
        )
        && same_wait(ours.reset_after, theirs.reset_after, changes)
        && same_wait(ours.delay, theirs.delay, changes)
}

use std::time::Duration;

use tower_dist_ratelimit::Decision;

/// Returns whether two waits are equal. The script rounds up to microseconds; the arithmetic rounds to nanoseconds, up
/// or down. After changes of the quota, both have rounded the used tokens to their own units, which adds a share of the
/// wait.
fn same_wait(ours: Duration, theirs: Duration, changes: bool) -> bool {
    // With a limit of zero no token drains. Both waits are then decades, up to the largest number of each.
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

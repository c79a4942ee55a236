use std::time::{self, Duration};

use crate::algorithm::saturating_nanos;

/// The start of 2020 (UTC), as the time since the start of 1970.
///
/// So in a backend that counts time from this instant, a daily [`fixed_window`](crate::Policy::fixed_window) begins at
/// midnight (UTC). In such a backend, the [maximum time](crate::arithmetic::HORIZON) of the arithmetic is in January
/// 2120.
pub const EPOCH: Duration = Duration::from_secs(1_577_836_800);

/// A backend that decides by the clocks of the instances' machines keeps each window for some time after its end: at
/// least the shorter of this constant and the window's own length. So a machine whose clock is somewhat behind still
/// finds the window.
///
/// The backends add one or more seconds, because the clocks of some stores tick only once a second.
pub const SKEW: Duration = Duration::from_secs(60);

/// Returns the time of this machine's wall clock, in nanoseconds since the [`EPOCH`].
///
/// ```
/// use std::time::Duration;
/// use tower_dist_ratelimit::backend::toolkit::wall_clock;
///
/// let five_years = Duration::from_secs(5 * 365 * 86_400);
/// assert!(u128::from(wall_clock()) > five_years.as_nanos());
/// ```
#[expect(
    clippy::disallowed_types,
    reason = "read here only: the one clock that a whole fleet has"
)]
#[must_use]
pub fn wall_clock() -> u64 {
    let since_1970 = time::SystemTime::UNIX_EPOCH.elapsed();
    saturating_nanos(since_1970.unwrap_or_default().saturating_sub(EPOCH))
}

use std::time::Duration;
#[expect(
    clippy::disallowed_types,
    reason = "read here only: the one clock that a whole fleet has"
)]
use std::time::SystemTime;

use tower_dist_ratelimit::arithmetic::saturating_nanos;

/// 2020 began so many seconds after 1970. Times count from there: windows of days begin at midnight (UTC), and what the
/// algorithms call 100 years lasts until 2119.
const BEGINNING: u64 = 1_577_836_800;

/// How far the clocks of a fleet may be apart before a window can be forgotten while some still count in it.
pub(super) const SKEW: Duration = Duration::from_secs(60);

/// In seconds: the server's clock ticks once a second; and what is written takes its way.
pub(super) const SLACK: u64 = 2;

/// What tells the time: [`now`], but where a test has several machines.
pub(super) type Clock = fn() -> Time;

/// What this machine's clock shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    /// Nanoseconds since the beginning of 2020.
    pub(super) nanos: u64,
    /// Seconds since 1970.
    pub(super) unix: u64,
}

/// The time by this machine's clock.
///
/// Memcached's own clock ticks once a second, which is no time to fill a bucket by.
#[expect(
    clippy::disallowed_types,
    reason = "read here only: the one clock that a whole fleet has"
)]
pub(super) fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    Time {
        nanos: saturating_nanos(since.saturating_sub(Duration::from_secs(BEGINNING))),
        unix: since.as_secs(),
    }
}

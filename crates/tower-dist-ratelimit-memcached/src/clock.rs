use std::time::Duration;
#[expect(
    clippy::disallowed_types,
    reason = "read here only: the one clock that a whole fleet has"
)]
use std::time::SystemTime;

use tower_dist_ratelimit::arithmetic::saturating_nanos;

/// The start of 2020 (UTC) in seconds since 1970. Windows of days then begin at midnight, and the horizon of the
/// arithmetic is in 2119.
const EPOCH: u64 = 1_577_836_800;

/// How far the clocks of a fleet may differ before a window can be forgotten while it still counts on some machine.
pub(super) const SKEW: Duration = Duration::from_secs(60);

/// Seconds that an item is kept longer: the server's clock ticks once a second, and a command takes time to arrive.
pub(super) const SLACK: u64 = 2;

/// Returns the time in nanoseconds since the start of 2020. Tests have machines with other clocks.
pub(super) type Clock = fn() -> u64;

/// The wall clock of this machine. The server's clock ticks once a second, which is too coarse for a window.
#[expect(
    clippy::disallowed_types,
    reason = "read here only: the one clock that a whole fleet has"
)]
pub(super) fn wall() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    saturating_nanos(since_1970.unwrap_or_default()).saturating_sub(EPOCH * 1_000_000_000)
}

/// The same time in seconds since 1970.
pub(super) fn unix(nanos: u64) -> u64 {
    EPOCH + nanos / 1_000_000_000
}

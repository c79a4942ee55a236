use std::time::Duration;
#[expect(
    clippy::disallowed_types,
    reason = "read here only: the one clock that a whole fleet has"
)]
use std::time::SystemTime;

use crate::algorithm::saturating_nanos;

/// The start of 2020 (UTC) in seconds since 1970. Windows of days then begin at midnight, and the horizon of the
/// arithmetic is in 2119.
const EPOCH: Duration = Duration::from_secs(1_577_836_800);

/// How far the clocks of a fleet may differ before a window can be forgotten while it still counts on some machine.
pub(super) const SKEW: Duration = Duration::from_secs(60);

/// Returns the time in nanoseconds since the start of 2020. Tests have machines with other clocks.
pub(super) type Clock = fn() -> u64;

/// The wall clock of this machine.
#[expect(
    clippy::disallowed_types,
    reason = "read here only: the one clock that a whole fleet has"
)]
pub(super) fn wall() -> u64 {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    saturating_nanos(since_1970.unwrap_or_default().saturating_sub(EPOCH))
}

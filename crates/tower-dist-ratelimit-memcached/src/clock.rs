use tower_dist_ratelimit::backend::toolkit::EPOCH;

/// Seconds added to the time for which an item is needed, because the server's clock ticks once a second and a command
/// takes time to arrive. Not added to a window that the server ends by expiring its item, because that would lengthen
/// the window.
pub(super) const SLACK: u64 = 2;

/// Converts a time in nanoseconds since the [`EPOCH`] to seconds since 1970.
pub(super) fn unix(nanos: u64) -> u64 {
    EPOCH.as_secs() + nanos / 1_000_000_000
}

/// A function that returns the time in nanoseconds since the [`EPOCH`]. Tests replace the wall clock.
pub(super) type WallClock = fn() -> u64;

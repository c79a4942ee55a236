//! Counts the retries of the layers below, so that retry layers above each other do not multiply their attempts.
//!
//! A layer below in the same task sends its retries while this thread polls the attempt of the layer above. A
//! thread-local variable counts those retries, also if the attempt ends with an error or the layer above drops it. A
//! mark in the request's extensions would cost every first attempt three allocations.

use std::cell::Cell;

thread_local! {
    /// The retries seen by the innermost running [`count`] on this thread. Meaningless while none runs.
    static RETRIES: Cell<u32> = const { Cell::new(0) };
}

/// Polls an attempt, and returns the number of retries that layers below sent during the poll. The retries also count
/// for the layers above.
#[inline]
pub(crate) fn count<T>(poll: impl FnOnce() -> T) -> (T, u32) {
    let above = RETRIES.replace(0);
    let polled = poll();
    let below = RETRIES.get();
    RETRIES.set(above.saturating_add(below));
    (polled, below)
}

/// Counts a retry that this layer sends.
pub(crate) fn sent() {
    RETRIES.set(RETRIES.get().saturating_add(1));
}

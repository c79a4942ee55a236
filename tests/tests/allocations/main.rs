//! What is allocated, and what is not.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod nearby;
mod per_key;
mod rate_limit;
mod replay;
mod stack;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts each thread's allocations, and the bytes that they have not given back.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

#[expect(
    unsafe_code,
    reason = "counting allocations takes a global allocator, which is an unsafe trait"
)]
// SAFETY: leaves all the work to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get().wrapping_add(layout.size()));
        // SAFETY: the caller's promises are the system allocator's demands.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get().wrapping_sub(layout.size()));
        // SAFETY: the caller's promises are the system allocator's demands.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many bytes more are in use after `work`, and what comes of it.
fn bytes<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = BYTES.get();
    let result = work();
    (BYTES.get().wrapping_sub(before), result)
}

/// How many allocations `work` makes, and what comes of it.
fn allocations<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = ALLOCATIONS.get();
    let result = work();
    (ALLOCATIONS.get() - before, result)
}

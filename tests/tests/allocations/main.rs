//! Number and size of allocations.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod nearby;
mod per_key;
mod rate_limit;
mod replay;
mod stack;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Counts each thread's allocations and its bytes in use.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

#[expect(
    unsafe_code,
    reason = "counting allocations takes a global allocator, which is an unsafe trait"
)]
// SAFETY: every call goes to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get().wrapping_add(layout.size()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the system allocator requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get().wrapping_sub(layout.size()));
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, which the system allocator requires.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The increase in bytes in use during `work`, and its result.
fn bytes<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = BYTES.get();
    let result = work();
    (BYTES.get().wrapping_sub(before), result)
}

/// The number of allocations during `work`, and its result.
fn allocations<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let before = ALLOCATIONS.get();
    let result = work();
    (ALLOCATIONS.get() - before, result)
}

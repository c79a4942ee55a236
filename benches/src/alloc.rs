//! A counting allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    // A constant without a destructor, so that access never allocates.
    static TOTAL: Cell<Heap> = const { Cell::new(Heap { allocations: 0, bytes: 0 }) };
}

/// A thread's allocations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heap {
    pub(crate) allocations: u32,
    pub(crate) bytes: u32,
}

/// The allocations of this thread during `run`; deallocations are not subtracted.
pub(crate) fn heap_of(run: impl FnOnce()) -> Heap {
    let before = TOTAL.get();
    run();
    let after = TOTAL.get();
    Heap {
        allocations: after.allocations.wrapping_sub(before.allocations),
        bytes: after.bytes.wrapping_sub(before.bytes),
    }
}

/// The system's allocator with a counter, which costs every subject the same.
struct Counting;

impl Counting {
    fn count(size: usize) {
        let total = TOTAL.get();
        // Sizes beyond 4 GB saturate; no subject allocates that much.
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        TOTAL.set(Heap {
            allocations: total.allocations.wrapping_add(1),
            bytes: total.bytes.wrapping_add(size),
        });
    }
}

#[expect(unsafe_code, reason = "an allocator can't be written without it")]
// SAFETY: every request and its result pass unchanged between the caller and `System`. Counting neither allocates nor
// unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size());
        // SAFETY: the caller's promise about `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count(layout.size());
        // SAFETY: the caller's promise about `layout`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count(size);
        // SAFETY: the caller's promise; `block` came from `System`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; `block` came from `System`.
        unsafe { System.dealloc(block, layout) }
    }
}

//! An allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    // Constant and without a destructor, so that reaching it never allocates.
    static TOTAL: Cell<Heap> = const { Cell::new(Heap { allocations: 0, bytes: 0 }) };
}

/// What a thread asked the heap for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heap {
    pub(crate) allocations: u32,
    pub(crate) bytes: u32,
}

/// What this thread asks for while `run` runs; what it gives back does not count.
pub(crate) fn heap_of(run: impl FnOnce()) -> Heap {
    let before = TOTAL.get();
    run();
    let after = TOTAL.get();
    Heap {
        allocations: after.allocations.wrapping_sub(before.allocations),
        bytes: after.bytes.wrapping_sub(before.bytes),
    }
}

/// The system's allocator, with one addition per request: every subject pays it alike.
struct Counting;

impl Counting {
    fn count(size: usize) {
        let total = TOTAL.get();
        // A size beyond 4 GB stands for all of them; no subject comes near.
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        TOTAL.set(Heap {
            allocations: total.allocations.wrapping_add(1),
            bytes: total.bytes.wrapping_add(size),
        });
    }
}

#[expect(unsafe_code, reason = "an allocator can't be written without it")]
// SAFETY: every request goes to `System` as it came, and so does what it answers; counting
// neither allocates nor unwinds.
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

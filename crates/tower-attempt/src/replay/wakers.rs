use std::collections::BTreeMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The number of a reader's attempt.
pub(super) type ReaderId = u32;

/// The wakers of all readers that wait for the source. Used as a waker, this type wakes all of them, whichever reader
/// polled the source last.
///
/// This type has an allocation and a lock of its own. The source keeps this type as its waker, so this type must not
/// own the source. A wake must not need the lock under which readers look for frames.
#[derive(Debug, Default)]
pub(super) struct Wakers(Mutex<BTreeMap<ReaderId, Waker>>);

impl Wakers {
    pub(super) fn lock(&self) -> MutexGuard<'_, BTreeMap<ReaderId, Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all readers except `id`, whose waker stays registered.
    pub(super) fn wake_others(&self, id: ReaderId) {
        let mut waiting = self.lock();
        let mut others = mem::take(&mut *waiting);
        waiting.extend(others.remove_entry(&id));
        drop(waiting);
        others.into_values().for_each(Waker::wake);
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        let waiting = mem::take(&mut *self.lock());
        waiting.into_values().for_each(Waker::wake);
    }
}

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use super::readers::Id;

/// The wakers of the readers that wait for the source.
#[derive(Debug)]
pub(super) enum Waiting {
    /// There is one reader, and the source gets its waker as it is.
    Alone(Option<(Id, Waker)>),
    /// There have been several.
    Several(Arc<Wakers>),
}

impl Waiting {
    /// From now on there is more than one reader.
    pub(super) fn share(&mut self) {
        if let Self::Alone(waiting) = self {
            let waiting = Mutex::new(waiting.take().into_iter().collect());
            *self = Self::Several(Arc::new(Wakers { waiting }));
        }
    }

    pub(super) fn shared(&self) -> Option<Arc<Wakers>> {
        match self {
            Self::Alone(_) => None,
            Self::Several(wakers) => Some(Arc::clone(wakers)),
        }
    }

    /// Gives the waker that is replaced, to be dropped where no lock is held: with a waker its task
    /// may be dropped, and with it readers.
    pub(super) fn register(&mut self, id: Id, waker: &Waker) -> Option<Waker> {
        match self {
            Self::Alone(Some((_, known))) if known.will_wake(waker) => None,
            Self::Alone(waiting) => Some(waiting.replace((id, waker.clone()))?.1),
            Self::Several(wakers) => wakers.register(id, waker),
        }
    }

    /// The reader waits no more. Gives its waker, to be dropped where no lock is held.
    pub(super) fn forget(&mut self, id: Id) -> Option<Waker> {
        match self {
            Self::Alone(waiting) => Some(waiting.take_if(|(known, _)| *known == id)?.1),
            Self::Several(wakers) => wakers.forget(id),
        }
    }
}

/// Wakes every reader that waits, whichever of them polled the source last.
///
/// An allocation and a lock of its own: the source keeps this as its waker, so that it must neither
/// own the source nor need the lock under which readers look for frames.
#[derive(Debug)]
pub(super) struct Wakers {
    waiting: Mutex<Vec<(Id, Waker)>>,
}

impl Wakers {
    fn lock(&self) -> MutexGuard<'_, Vec<(Id, Waker)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, id: Id, waker: &Waker) -> Option<Waker> {
        let mut waiting = self.lock();
        match waiting.iter_mut().find(|(known, _)| *known == id) {
            Some((_, known)) if known.will_wake(waker) => None,
            Some((_, known)) => Some(mem::replace(known, waker.clone())),
            None => {
                waiting.push((id, waker.clone()));
                None
            }
        }
    }

    fn forget(&self, id: Id) -> Option<Waker> {
        let mut waiting = self.lock();
        let found = waiting.iter().position(|(known, _)| *known == id)?;
        Some(waiting.swap_remove(found).1)
    }

    /// Wakes all but one, which stays registered.
    pub(super) fn wake_others(&self, id: Id) {
        let mut waiting = self.lock();
        let mut others = mem::take(&mut *waiting);
        if let Some(own) = others.iter().position(|(known, _)| *known == id) {
            waiting.push(others.swap_remove(own));
        }
        drop(waiting);
        others.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let all = mem::take(&mut *self.lock());
        all.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

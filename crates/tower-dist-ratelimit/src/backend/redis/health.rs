use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// Whether there is a connection, and why not.
#[derive(Debug)]
pub(super) struct Health {
    up: AtomicBool,
    reason: Mutex<String>,
}

impl Health {
    pub(super) fn up() -> Self {
        Self {
            up: AtomicBool::new(true),
            reason: Mutex::default(),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    pub(super) fn rise(&self) {
        self.up.store(true, Ordering::Release);
    }

    pub(super) fn fall(&self, reason: String) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
        self.up.store(false, Ordering::Release);
    }

    /// Why the connection was lost, or could not be made again.
    pub(super) fn reason(&self) -> String {
        self.reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// Whether there is a connection, and why not.
#[derive(Debug)]
pub(in crate::backend) struct Health {
    up: AtomicBool,
    /// There never was one.
    new: AtomicBool,
    reason: Mutex<String>,
}

impl Health {
    pub(in crate::backend) fn up() -> Self {
        Self {
            up: AtomicBool::new(true),
            new: AtomicBool::new(false),
            reason: Mutex::default(),
        }
    }

    pub(in crate::backend) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Whether the first attempt is still being made.
    pub(in crate::backend) fn is_new(&self) -> bool {
        self.new.load(Ordering::Acquire)
    }

    /// No attempt to connect has ended yet.
    pub(in crate::backend) fn waiting() -> Self {
        Self {
            up: AtomicBool::new(false),
            new: AtomicBool::new(true),
            reason: Mutex::new("the first attempt to connect has not ended".to_owned()),
        }
    }

    pub(in crate::backend) fn rise(&self) {
        self.up.store(true, Ordering::Release);
    }

    pub(in crate::backend) fn fall(&self, reason: String) {
        *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = reason;
        self.up.store(false, Ordering::Release);
        self.new.store(false, Ordering::Release);
    }

    /// Why the connection was lost, or could not be made again.
    pub(in crate::backend) fn reason(&self) -> String {
        self.reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

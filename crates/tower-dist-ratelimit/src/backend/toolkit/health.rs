use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// The state of a backend's connection: up, or down for a reason.
///
/// Usually the task that owns the connection writes the state. During an outage, decisions usually fail immediately
/// with the reason.
///
/// ```
/// use tower_dist_ratelimit::backend::toolkit::Health;
///
/// let health = Health::waiting();
/// assert!(health.is_new() && !health.is_up());
/// assert_eq!(health.reason(), "the first attempt to connect has not ended");
/// health.disconnected("connection refused".to_owned());
/// assert_eq!((health.is_new(), &*health.reason()), (false, "connection refused"));
/// health.connected();
/// assert!(health.is_up());
/// ```
#[derive(Debug)]
pub struct Health {
    up: AtomicBool,
    /// The last recorded reason for a lost connection or for a failed attempt to connect. `None` before the first.
    reason: Mutex<Option<String>>,
}

impl Health {
    /// The state of a backend that is connected.
    #[must_use]
    pub fn up() -> Self {
        let health = Self::waiting();
        health.connected();
        health
    }

    /// Returns whether there is a connection.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Returns whether there is no connection and [`disconnected`](Self::disconnected) has not recorded a reason. If
    /// so, the first attempt to connect has usually not ended.
    #[must_use]
    pub fn is_new(&self) -> bool {
        !self.is_up() && self.last_reason().is_none()
    }

    /// The state of a backend that makes its first attempt to connect.
    #[must_use]
    pub fn waiting() -> Self {
        Self {
            up: AtomicBool::new(false),
            reason: Mutex::default(),
        }
    }

    /// Records a new connection.
    pub fn connected(&self) {
        self.up.store(true, Ordering::Release);
    }

    /// Records that there is no connection, and the reason.
    pub fn disconnected(&self, reason: String) {
        *self.last_reason() = Some(reason);
        self.up.store(false, Ordering::Release);
    }

    /// Returns the last reason that was recorded: why the connection was lost, or why an attempt to connect failed.
    /// Without a recorded reason, the text says that the first attempt has not ended.
    #[must_use]
    pub fn reason(&self) -> String {
        let reason = self.last_reason().clone();
        reason.unwrap_or_else(|| "the first attempt to connect has not ended".to_owned())
    }

    fn last_reason(&self) -> MutexGuard<'_, Option<String>> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Cache};

/// The settings of a layer, which a handle may replace while the layer is in use.
#[derive(Clone)]
pub struct Live<S>(Arc<SharedSettings<S>>);

/// A service's view of [`Live`] settings.
pub type Current<S> = Cache<Live<S>, Arc<S>>;

struct SharedSettings<S> {
    current: ArcSwap<S>,
    /// Held by the thread that changes the settings.
    changing: Mutex<()>,
}

impl<S> Live<S> {
    /// Starts with these settings.
    pub fn new(settings: S) -> Self {
        Self(Arc::new(SharedSettings {
            current: ArcSwap::from_pointee(settings),
            changing: Mutex::new(()),
        }))
    }

    /// Replaces the settings with the result of `next`.
    ///
    /// # Errors
    ///
    /// Returns the error of `next`, and changes nothing.
    pub fn change<E>(&self, next: impl FnOnce(&S) -> Result<S, E>) -> Result<(), E> {
        let changing = &self.0.changing;
        let _changing = changing.lock().unwrap_or_else(PoisonError::into_inner);
        let settings = next(&self.load())?;
        self.store(Arc::new(settings));
        Ok(())
    }
}

impl<S> Deref for Live<S> {
    type Target = ArcSwap<S>;

    fn deref(&self) -> &ArcSwap<S> {
        &self.0.current
    }
}

impl<S: fmt::Debug> fmt::Debug for Live<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load().fmt(f)
    }
}

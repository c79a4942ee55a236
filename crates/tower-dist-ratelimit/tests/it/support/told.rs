//! What an observer is told.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tower_dist_ratelimit::{Decided, Observer, Rejection, backend::BackendError};

/// Keeps what it is told, as text.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn note(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }

    /// Since the last look.
    pub(crate) fn all(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn rejection(rejection: &Rejection<'_>) -> String {
    let violated: Vec<_> = rejection.violated().collect();
    let decided = rejection.decided().iter().count();
    format!("{:?} {violated:?} of {decided}", rejection.reason())
}

impl Observer for Told {
    fn allowed(&self, decided: &Decided<'_>) {
        let left = decided.iter().map(|(name, one)| (name, one.remaining));
        self.note(format!("allowed {:?}", left.collect::<Vec<_>>()));
    }

    fn rejected(&self, rejected: &Rejection<'_>) {
        self.note(format!("rejected {}", rejection(rejected)));
    }

    fn shadowed(&self, rejected: &Rejection<'_>) {
        self.note(format!("shadowed {}", rejection(rejected)));
    }

    fn failed(&self, error: &BackendError) {
        self.note(format!("failed late={}", error.is_late()));
    }

    fn waited(&self, waited: Duration) {
        self.note(format!("waited {}", waited.as_millis()));
    }

    fn cancelled(&self) {
        self.note("cancelled".into());
    }
}

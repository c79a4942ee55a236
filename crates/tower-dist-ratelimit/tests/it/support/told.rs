//! What an observer is told.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tower_dist_ratelimit::{Decided, Observer, Refusal, backend::BackendError};

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

fn refusal(refusal: &Refusal<'_>) -> String {
    let violated: Vec<_> = refusal.violated().collect();
    let decided = refusal.decided().iter().count();
    format!("{:?} {violated:?} of {decided}", refusal.reason())
}

impl Observer for Told {
    fn allowed(&self, decided: &Decided<'_>) {
        let left = decided.iter().map(|(name, one)| (name, one.remaining));
        self.note(format!("allowed {:?}", left.collect::<Vec<_>>()));
    }

    fn refused(&self, refused: &Refusal<'_>) {
        self.note(format!("refused {}", refusal(refused)));
    }

    fn shadowed(&self, refused: &Refusal<'_>) {
        self.note(format!("shadowed {}", refusal(refused)));
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

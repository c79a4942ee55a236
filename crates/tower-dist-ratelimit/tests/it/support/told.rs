//! An observer for tests.

use std::sync::{Arc, Mutex};

use tower_dist_ratelimit::{Event, Observer, Rejection};

/// Records events as text.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn note(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }

    /// Events since the last call.
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
    fn on_event(&self, _: &Arc<str>, event: Event<'_>) {
        match event {
            Event::Allowed(decided) => {
                let left = decided.iter().map(|(name, one)| (name, one.remaining));
                self.note(format!("allowed {:?}", left.collect::<Vec<_>>()));
            }
            Event::Rejected(one) => self.note(format!("rejected {}", rejection(&one))),
            Event::Shadowed(one) => self.note(format!("shadowed {}", rejection(&one))),
            Event::BackendFailed(error) => self.note(format!("failed late={}", error.is_timeout())),
            Event::Waited(waited) => self.note(format!("waited {}", waited.as_millis())),
            Event::Cancelled => self.note("cancelled".into()),
            _ => {}
        }
    }
}

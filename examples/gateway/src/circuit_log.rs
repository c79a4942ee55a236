//! Logs when the circuit to the limits' backend opens and closes.

use std::sync::Arc;

use tower_dist_ratelimit::{Event, Observer};

use crate::log;

/// Writes one line to stderr for each change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CircuitLog {
    /// The number of gateways that share the limits.
    pub(crate) fleet: u32,
}

impl Observer for CircuitLog {
    fn on_event(&self, _: &Arc<str>, event: Event<'_>) {
        match event {
            Event::CircuitOpened(error) => {
                let share = match self.fleet {
                    1 => "the whole of every limit".to_owned(),
                    fleet => format!("a share of 1/{fleet} of every limit"),
                };
                log(&format!(
                    "{error}; circuit opened: this gateway decides locally, with {share}"
                ));
            }
            Event::CircuitClosed => log("rate-limit backend available again: circuit closed"),
            _ => {}
        }
    }
}

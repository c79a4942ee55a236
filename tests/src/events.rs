use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower_jitter_retry::{CallInfo, DelaySource, Event, Observer, StopReason};

/// Records the events of a retry layer.
#[derive(Clone, Default)]
pub struct Events {
    log: Arc<Mutex<Log>>,
    on_retry: Option<Arc<dyn Fn() + Send + Sync>>,
}

#[derive(Debug, Default)]
struct Log {
    attempts: usize,
    delays: Vec<(Duration, DelaySource)>,
    stops: Vec<StopReason>,
}

impl Events {
    /// Also calls `hook` between a failed attempt and the next.
    pub fn with_hook(hook: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            on_retry: Some(Arc::new(hook)),
            ..Self::default()
        }
    }

    /// How many attempts went out.
    #[must_use]
    pub fn attempts(&self) -> usize {
        self.log.lock().unwrap().attempts
    }

    /// The waits before further attempts, and where they come from.
    #[must_use]
    pub fn delays(&self) -> Vec<(Duration, DelaySource)> {
        self.log.lock().unwrap().delays.clone()
    }

    /// Why the only call so far ended.
    #[must_use]
    pub fn stop(&self) -> StopReason {
        match self.log.lock().unwrap().stops[..] {
            [stop] => stop,
            ref stops => panic!("not one call: {stops:?}"),
        }
    }
}

impl Observer for Events {
    fn on_event(&self, _: &CallInfo, event: Event<'_>) {
        let mut log = self.log.lock().unwrap();
        match event {
            Event::AttemptStarted { .. } => log.attempts += 1,
            Event::RetryScheduled { delay, source, .. } => {
                log.delays.push((delay, source));
                drop(log);
                if let Some(hook) = &self.on_retry {
                    hook();
                }
            }
            Event::CallEnded { reason, .. } => log.stops.push(reason),
            _ => {}
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.log.lock().unwrap().fmt(f)
    }
}

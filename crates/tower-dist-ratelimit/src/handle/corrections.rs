use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::{runtime, task::JoinSet};

use crate::{
    Source,
    backend::{Answer, Backend, BackendError, Bounded, Charge},
    ladder::{Instead, NotAsked},
    limits::Limits,
};

/// The most corrections of one layer that travel at a time: as many requests as a busy instance has at once.
const MAX_TRAVELLING: usize = 1024;

/// Corrections of charges that are on their way to a store. They have no caller to wait for them, since a response that is
/// dropped cannot wait; they end with the layer.
#[derive(Default)]
pub(crate) struct Corrections {
    travelling: Mutex<JoinSet<()>>,
    lost: Arc<AtomicU64>,
}

impl Corrections {
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

impl Limits {
    /// Changes a charge to the policy of this number, where it was made. A store that is left alone is not asked for this,
    /// either.
    pub(crate) fn settle(
        &self,
        source: Source,
        number: usize,
        charge: Charge<'_>,
        delta: i64,
    ) -> Answer {
        match (source, &self.ladder.instead) {
            (Source::Local, Instead::Decide(fallback)) => fallback
                .settle(number, charge, delta)
                .map_or_else(Answer::Failed, |()| Answer::Done(true)),
            // There it was charged nothing.
            (Source::Local | Source::Allowed | Source::Denied, _) => Answer::Done(true),
            _ if self.ladder.shut_for().is_some() => Answer::Failed(BackendError::new(NotAsked)),
            _ => self.backend.settle(&[charge], delta),
        }
    }

    /// Changes a charge by `delta` tokens.
    pub(crate) fn correct(&self, source: Source, number: usize, charge: Charge<'_>, delta: i64) {
        if delta == 0 {
            return;
        }
        let Corrections { travelling, lost } = &self.corrections;
        let answer = match self.settle(source, number, charge, delta) {
            Answer::Done(_) => return,
            Answer::Later(answer) => answer,
            Answer::Failed(_) => {
                lost.fetch_add(1, Relaxed);
                return;
            }
        };
        let mut travelling = travelling.lock().unwrap_or_else(PoisonError::into_inner);
        while travelling.try_join_next().is_some() {}
        let runtime = runtime::Handle::try_current().ok();
        let Some(runtime) = runtime.filter(|_| travelling.len() < MAX_TRAVELLING) else {
            lost.fetch_add(1, Relaxed);
            return;
        };
        let (deadline, lost) = (self.deadline, Arc::clone(lost));
        let travel = async move {
            if Bounded::new(deadline, answer).await.is_err() {
                lost.fetch_add(1, Relaxed);
            }
        };
        travelling.spawn_on(travel, &runtime);
    }
}

use std::sync::{Mutex, PoisonError};

use tokio::{runtime, task::JoinSet};

use crate::backend::BoxFuture;

/// Tasks that can outlive the requests that started them. Dropping the `Background` aborts them.
#[derive(Default)]
pub(crate) struct Background(Mutex<JoinSet<()>>);

impl Background {
    /// Spawns a task. Returns `false` outside of a runtime, or if `most` tasks are running.
    pub(crate) fn spawn(&self, most: usize, task: BoxFuture<'static, ()>) -> bool {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        let runtime = runtime::Handle::try_current().ok();
        let Some(runtime) = runtime.filter(|_| tasks.len() < most) else {
            return false;
        };
        tasks.spawn_on(task, &runtime);
        true
    }
}

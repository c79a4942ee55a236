use crate::backend::{Answer, BoxFuture};

/// Runs an action twice for each given key: before an operation of the backend, and when the operation ends or is
/// dropped. The operation usually takes effect at an unknown time between the two runs, so a single run could come too
/// early or too late.
pub(crate) struct Bracket<F: Fn(u64)> {
    /// The hashes of the keys.
    tags: Vec<u64>,
    action: F,
}

impl<F: Fn(u64) + Send + 'static> Bracket<F> {
    /// Runs the action for the first time.
    pub(crate) fn new(tags: impl Iterator<Item = u64>, action: F) -> Self {
        let tags = tags.inspect(|&tag| action(tag)).collect();
        Self { tags, action }
    }

    /// Runs the action again when the answer is complete or dropped.
    pub(crate) fn answer(self, answer: Answer) -> Answer {
        match answer {
            Answer::Later(answer) => Answer::Later(self.future(answer)),
            answer => answer,
        }
    }

    /// Runs the action again when the future is complete or dropped.
    pub(crate) fn future<T: 'static>(self, future: BoxFuture<'static, T>) -> BoxFuture<'static, T> {
        Box::pin(async move {
            let _bracket = self;
            future.await
        })
    }
}

impl<F: Fn(u64)> Drop for Bracket<F> {
    fn drop(&mut self) {
        self.tags.iter().copied().for_each(&self.action);
    }
}

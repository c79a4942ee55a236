use std::convert::identity;
use std::time::Duration;

use super::Classify;
use super::forward::forward_classify;
use crate::Budget;

/// A classification together with a closure that computes the delays.
#[derive(Clone, Copy, Debug)]
pub struct CustomBackoff<C, F> {
    classify: C,
    backoff: F,
}

impl<C, F> CustomBackoff<C, F> {
    /// Judges like `classify`, and takes delays from `backoff`.
    pub const fn new(classify: C, backoff: F) -> Self {
        Self { classify, backoff }
    }
}

impl<C, F, Req, Res, E> Classify<Req, Res, E> for CustomBackoff<C, F>
where
    C: Classify<Req, Res, E>,
    F: Fn(u32, &Result<Res, E>) -> Duration,
{
    type Context = C::Context;

    fn prepare(&self, request: &mut Req) {
        self.classify.prepare(request);
    }

    fn context(&self, request: &Req) -> Self::Context {
        self.classify.context(request)
    }

    fn budget<'a>(&'a self, context: &'a Self::Context) -> Option<&'a Budget> {
        self.classify.budget(context)
    }

    fn backoff(&self, retry: u32, outcome: &Result<Res, E>) -> Option<Duration> {
        Some((self.backoff)(retry, outcome))
    }

    forward_classify!(identity, identity);
}

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::{ArcSwap, Cache};
use tower_attempt::{Classify, Plain, Replays, Rules};
use tower_service::Service;

use crate::future::{Call, Repeat};
use crate::settings::Settings;
use crate::{NoObserver, Observer, ResponseFuture};

/// Repeats failed calls of a service; made by [`RetryLayer`](crate::RetryLayer).
///
/// The first attempt goes to the very instance that was polled ready. Only if the request may be
/// repeated are it and the service cloned.
pub struct Retry<S, P = Plain, O = NoObserver> {
    inner: S,
    rules: P,
    observer: O,
    settings: Cache<Arc<ArcSwap<Settings>>, Arc<Settings>>,
}

impl<S, P, O> Retry<S, P, O> {
    pub(crate) fn new(inner: S, rules: P, observer: O, settings: Arc<ArcSwap<Settings>>) -> Self {
        Self {
            inner,
            rules,
            observer,
            settings: Cache::new(settings),
        }
    }
}

impl<S: Clone, P: Clone, O: Clone> Clone for Retry<S, P, O> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            rules: self.rules.clone(),
            observer: self.observer.clone(),
            settings: self.settings.clone(),
        }
    }
}

impl<S: fmt::Debug, P, O> fmt::Debug for Retry<S, P, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, C, R, O, Req> Service<Req> for Retry<S, Rules<C, R>, O>
where
    S: Service<Req> + Clone,
    C: Classify<Req, S::Response, S::Error> + Clone,
    R: Replays<Req> + Clone,
    O: Observer + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, C, R, O, Req>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let settings = self.settings.load();
        let context = self.rules.classify.context(&request);
        let may_repeat =
            settings.knobs.max_attempts > 1 && self.rules.classify.may_repeat(&context);
        let (request, repeat) = match may_repeat {
            true => {
                let (request, saved) = self.rules.replays.first(request);
                let repeat = saved.map(|saved| Repeat::new(self.inner.clone(), saved));
                (request, repeat)
            }
            false => (request, None),
        };
        let call = Call::new(
            self.rules.clone(),
            self.observer.clone(),
            Arc::clone(settings),
            context,
            repeat,
        );
        ResponseFuture::new(self.inner.call(request), call)
    }
}

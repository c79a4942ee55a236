use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::{ArcSwap, Cache};
use tower_attempt::{Classify, Plain, Replays, Rules};
use tower_service::Service;

use crate::future::Call;
use crate::settings::{Mode, Settings};
use crate::time_limit::{Limits, TimeLimit, Timer};
use crate::{NoObserver, NoTimeLimit, Observer, ResponseFuture};

/// Repeats failed calls of a service; made by [`RetryLayer`](crate::RetryLayer).
///
/// The first attempt goes to the very instance that was polled ready. Only if the request may be
/// repeated are it and the service cloned.
pub struct Retry<S, P = Plain, O = NoObserver, T = NoTimeLimit> {
    inner: S,
    rules: P,
    observer: O,
    limit: T,
    settings: Cache<Arc<ArcSwap<Settings>>, Arc<Settings>>,
}

impl<S, P, O, T> Retry<S, P, O, T> {
    pub(crate) fn new(
        inner: S,
        rules: P,
        observer: O,
        limit: T,
        settings: Arc<ArcSwap<Settings>>,
    ) -> Self {
        Self {
            inner,
            rules,
            observer,
            limit,
            settings: Cache::new(settings),
        }
    }
}

impl<S: Clone, P: Clone, O: Clone, T: Clone> Clone for Retry<S, P, O, T> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            rules: self.rules.clone(),
            observer: self.observer.clone(),
            limit: self.limit.clone(),
            settings: self.settings.clone(),
        }
    }
}

impl<S: fmt::Debug, P, O, T> fmt::Debug for Retry<S, P, O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, C, R, O, T, Req> Service<Req> for Retry<S, Rules<C, R>, O, T>
where
    S: Service<Req> + Clone,
    C: Classify<Req, S::Response, S::Error> + Clone,
    R: Replays<Req> + Clone,
    O: Observer + Clone,
    T: TimeLimit<R, S::Response, S::Error> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, C, R, O, T, Req>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, mut request: Req) -> Self::Future {
        let settings = self.settings.load();
        let rules = self.rules.clone();
        if settings.knobs.mode == Mode::On {
            rules.classify.prepare(&mut request);
        }
        let context = rules.classify.context(&request);
        let may_repeat = settings.may_repeat
            && rules.classify.may_repeat(&context)
            && !rules.classify.is_repeated_above(&context);
        let deadline = rules.classify.deadline(&context);
        let expiry = rules.classify.expiry(&context);
        let timer = T::Timer::start(Limits {
            knobs: &settings.knobs,
            deadline,
            expiry,
            attempt_timeout: rules.classify.attempt_timeout(&context),
        });
        let last_start = deadline.unwrap_or_else(|| settings.last_start());
        let last_start = last_start.or_earlier(expiry);
        let saved = match may_repeat {
            true => rules.replays.first(&mut request),
            false => None,
        };
        let service = saved.is_some().then(|| self.inner.clone());
        let (observer, limit) = (self.observer.clone(), self.limit.clone());
        let first = self.inner.call(request);
        // Last, so that nothing can unwind while it exists: the compiler then builds it in place.
        let settings = Arc::clone(settings);
        let call = Call::new(
            rules, observer, settings, context, last_start, service, saved,
        );
        ResponseFuture::new(first, timer, limit, call)
    }
}

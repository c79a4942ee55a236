use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::{ArcSwap, Cache};
use tower_attempt::{Classify, Plain, Replays, Rules};
use tower_service::Service;

use crate::future::{Race, Spare};
use crate::settings::Settings;
use crate::{NoObserver, Observer, ResponseFuture};

/// Sends another attempt when the first is late; made by [`HedgeLayer`](crate::HedgeLayer).
///
/// The first attempt goes to the very instance that was polled ready. Only if the request may be
/// hedged are it and the service cloned.
pub struct Hedge<S, P = Plain, O = NoObserver> {
    inner: S,
    rules: P,
    observer: O,
    settings: Cache<Arc<ArcSwap<Settings>>, Arc<Settings>>,
}

impl<S, P, O> Hedge<S, P, O> {
    pub(crate) fn new(inner: S, rules: P, observer: O, settings: Arc<ArcSwap<Settings>>) -> Self {
        Self {
            inner,
            rules,
            observer,
            settings: Cache::new(settings),
        }
    }
}

impl<S: Clone, P: Clone, O: Clone> Clone for Hedge<S, P, O> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            rules: self.rules.clone(),
            observer: self.observer.clone(),
            settings: self.settings.clone(),
        }
    }
}

impl<S: fmt::Debug, P, O> fmt::Debug for Hedge<S, P, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hedge")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, C, R, O, Req> Service<Req> for Hedge<S, Rules<C, R>, O>
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

    fn call(&mut self, mut request: Req) -> Self::Future {
        let rules = self.rules.clone();
        let context = rules.classify.context(&request);
        let saved = match rules.classify.may_hedge(&context) {
            true => rules.replays.first(&mut request),
            false => None,
        };
        let spare = saved.map(|saved| Spare::new(self.inner.clone(), saved));
        let observer = self.observer.clone();
        let primary = self.inner.call(request);
        // Last, so that nothing can unwind while it exists: the compiler then builds it in place.
        let settings = Arc::clone(self.settings.load());
        let race = Race::new(rules, observer, settings, context, spare);
        ResponseFuture::new(primary, race)
    }
}

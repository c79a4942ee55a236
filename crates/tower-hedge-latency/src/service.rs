use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::time::Instant;
use tower_attempt::layer::{Current, Parts};
use tower_attempt::{Attempt, Deadline, Generic, LayerKind, Mode, Observe, Outcomes, Record};
use tower_service::Service;

use crate::destination::{Anywhere, HedgeDestination};
use crate::future::Race;
use crate::losers::{Cancel, Losers};
use crate::settings::Settings;
use crate::{NoObserver, ResponseFuture, StopReason};

/// A service that hedges calls; made by [`HedgeLayer`](crate::HedgeLayer).
///
/// The first attempt uses the instance of the service that was polled ready. The layer clones the request and the
/// service only if the request may be hedged.
#[derive(Clone)]
pub struct Hedge<S, P = Generic, O = NoObserver, A = Anywhere, L = Cancel> {
    pub(crate) inner: S,
    pub(crate) parts: Parts<P, O, (A, L), Current<Settings>>,
}

impl<S, P, O, A, L, Req> Service<Req> for Hedge<S, P, O, A, L>
where
    S: Service<Req> + Clone,
    P: Outcomes<Req, S::Response, S::Error> + Clone,
    O: Observe,
    A: HedgeDestination<S, Req> + Clone,
    L: Losers<S::Future> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<L::Attempt, S, Result<S::Response, S::Error>, P, O, A, L, Req>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Req) -> Self::Future {
        let settings = self.parts.settings.load();
        let protocol = self.parts.protocol.clone();
        if settings.config.common.mode() == Mode::On {
            protocol.prepare(&mut request);
        }
        let context = protocol.context(&request);
        let own = protocol.hedge_override(&context);
        let overridden = own.as_ref().map(|own| settings.overridden(own));
        let settings = overridden.as_ref().unwrap_or(settings);
        // The mode is `Off` if the override's `max_hedges` is 0.
        let mode = settings.config.common.mode();
        let deadline = own.and_then(|own| own.deadline);
        let expiry = protocol.expiry(&context);
        let deadline = deadline.unwrap_or(Deadline::NEVER).or_earlier(expiry);
        let mut watched = mode != Mode::Off && protocol.may_hedge(&context, &request);
        let (mut start, mut class, mut learned) = (settings.latencies.epoch, None, None);
        if watched {
            if settings.learns() {
                class = protocol.class(&request, &settings.latencies.classes);
                learned = settings.learned(settings.class(class.as_deref()));
            }
            start = Instant::now();
        }
        let (destination, losers) = self.parts.options.clone();
        let mut spare = None;
        // A call that will not be hedged needs no copy.
        if watched
            && mode == Mode::On
            && let Some(delay) = settings.due(0, learned)
            && deadline.leaves(delay)
        {
            destination.begin(&mut request);
            match protocol.save(&mut request) {
                Some(saved) => spare = Some((self.inner.clone(), saved)),
                None => watched = false,
            }
        }
        if !watched && mode != Mode::Off {
            settings.counters.ineligible.count();
        }
        let line = || protocol.request_line(&request);
        let name = &settings.config.common.name;
        let record = self.parts.observer.start(LayerKind::Hedge, name, line);
        let primary = record.enter(Attempt::PRIMARY, || self.inner.call(request));
        // The future is built last, so no panic in this method can unwind while it exists. The compiler then builds it
        // in place.
        ResponseFuture {
            primary: Some(losers.hold(primary)),
            failure: None,
            timer: None,
            race: Race {
                protocol,
                record,
                destination,
                losers,
                settings: Arc::clone(settings),
                context,
                deadline,
                watched,
                start,
                class,
                learned,
                spare,
                stage: 0,
                attempts: 1,
                hedges: Vec::new(),
                hurry: false,
                earliest: None,
                moved: None,
                unrecorded: false,
                failed_after: None,
                reason: StopReason::Fatal,
                ended: false,
            },
        }
    }
}

use std::sync::Arc;
use std::task::{Context, Poll};

use tower_attempt::layer::{Current, Parts};
use tower_attempt::{Generic, LayerKind, Mode, Observe, Outcomes, Record};
use tower_service::Service;

use crate::future::Call;
use crate::settings::Settings;
use crate::time_limit::{TimeLimit, Timer};
use crate::{Attempt, NoObserver, NoTimeLimit, ResponseFuture};

/// A service that retries failed calls; made by [`RetryLayer`](crate::RetryLayer).
///
/// The first attempt uses the instance of the service that was polled ready. The layer copies the request and the
/// service, unless it knows at the start that no retry is possible, as for CONNECT.
#[derive(Clone)]
pub struct Retry<S, P = Generic, O = NoObserver, T = NoTimeLimit> {
    pub(crate) inner: S,
    pub(crate) parts: Parts<P, O, T, Current<Settings>>,
}

impl<S, P, O, T, Req> Service<Req> for Retry<S, P, O, T>
where
    S: Service<Req> + Clone,
    P: Outcomes<Req, S::Response, S::Error> + Clone,
    O: Observe,
    T: TimeLimit<P, S::Response, S::Error> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, S, P, O, T, Req>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, mut request: Req) -> Self::Future {
        let settings = self.parts.settings.load();
        let protocol = self.parts.protocol.clone();
        if settings.mode == Mode::On {
            protocol.prepare(&mut request);
        }
        let context = protocol.context(&request);
        let own = protocol.retry_override(&context);
        let overridden = own.as_ref().map(|own| settings.overridden(own));
        let settings = overridden.as_ref().unwrap_or(settings);
        let can_retry = settings.can_retry
            && protocol.may_retry(&context)
            && !protocol.is_retried_above(&context);
        let deadline = own.and_then(|own| own.deadline);
        let expiry = protocol.expiry(&context);
        let timer = T::Timer::start(&settings.config, deadline, expiry);
        let last_start = deadline.unwrap_or_else(|| settings.last_start());
        let last_start = last_start.or_earlier(expiry);
        let saved = match can_retry {
            true => protocol.save(&mut request),
            false => None,
        };
        let service = saved.is_some().then(|| self.inner.clone());
        let limit = self.parts.options.clone();
        let line = || protocol.request_line(&request);
        let name = &settings.config.common.name;
        let record = self.parts.observer.start(LayerKind::Retry, name, line);
        let first = record.enter(Attempt::PRIMARY, || self.inner.call(request));
        // The future is built last, so no panic in this method can unwind while it exists. The compiler then builds it
        // in place.
        ResponseFuture {
            attempt: Some(first),
            timer,
            limit,
            call: Call {
                protocol,
                settings: Arc::clone(settings),
                service,
                wait: None,
                saved,
                context,
                last_start,
                attempt: Attempt::PRIMARY,
                record,
            },
        }
    }
}

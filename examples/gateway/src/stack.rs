//! The composition of the layers, in the order of a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::uri::Authority;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::rt::TokioExecutor;
use tower::timeout::TimeoutLayer;
use tower::{BoxError, Layer, Service, service_fn};
use tower_dist_ratelimit::backend::Backend;
use tower_dist_ratelimit::key::{self, KeyExtractor};
use tower_dist_ratelimit::{
    Consistency, Event, FailureMode, MetricsObserver as LimitMetrics, Observer, Policy, Quota,
    RateLimitLayer,
};
use tower_hedge_latency::{HedgeHandle, HedgeLayer, RequestHead};
use tower_jitter_retry::{Backoff, Budget, MetricsObserver, Mode, RetryHandle, RetryLayer};

use crate::admin::Board;
use crate::circuit_log::CircuitLog;
use crate::options::{LayerName, StackOptions};
use crate::proxy::Proxy;

/// The gateway's routes, and the handles of its layers.
pub(crate) struct Gateway {
    pub(crate) app: Router,
    /// The layers that count requests, of which one enforces the limit.
    pub(crate) limits: Vec<RateLimitLayer>,
    pub(crate) limit: LimitMode,
    pub(crate) retry: RetryHandle,
    pub(crate) hedge: HedgeHandle,
}

/// The receiver of the layers' events.
#[derive(Clone, Copy)]
pub(crate) enum Watch<'a> {
    Nobody,
    /// Changes of the circuit are lines on stderr.
    Log,
    /// Also counts for the live page and metrics.
    Page(&'a Arc<Board>),
}

/// The mode of the rate limit: one layer enforces it, another one counts. At most one of them applies to a request.
#[derive(Clone, Debug)]
pub(crate) struct LimitMode(Arc<AtomicU8>);

impl LimitMode {
    pub(crate) fn get(&self) -> Mode {
        match self.0.load(Relaxed) {
            0 => Mode::On,
            1 => Mode::Shadow,
            _ => Mode::Off,
        }
    }

    pub(crate) fn set(&self, mode: Mode) {
        let code = match mode {
            Mode::On => 0,
            Mode::Shadow => 1,
            _ => 2,
        };
        self.0.store(code, Relaxed);
    }
}

/// The gateway: rate limit → proxy handler → retry → hedge → timeout → client. Layers that are not in `layers` are off.
pub(crate) fn gateway(
    options: &StackOptions,
    layers: &[LayerName],
    backend: Arc<dyn Backend>,
    upstream: Authority,
    watch: Watch<'_>,
) -> Result<Gateway, BoxError> {
    let mode = |layer| match layers.contains(&layer) {
        true => Mode::On,
        false => Mode::Off,
    };
    let quota = Quota::per_second(options.limit).burst(options.burst);
    // The key is not validated here, so a caller gets a fresh bucket for every key it invents. Place authentication in
    // front of the limit, or limit by address alone.
    let caller = key::header("x-api-key").or(key::peer_addr());
    let policy = Policy::new("per-client", quota).by(caller);
    let limit_mode = LimitMode(Arc::default());
    limit_mode.set(mode(LayerName::Limit));
    let limit = |own_mode: Mode| {
        let limit_mode = limit_mode.clone();
        let builder = RateLimitLayer::builder(Arc::clone(&backend))
            .name("gateway")
            .limit(policy.clone())
            // If the backend is down, each gateway admits its share of the limit, so that the fleet stays near the
            // limit.
            .failure_mode(FailureMode::Local {
                instances: options.fleet,
            })
            .backend_timeout(options.backend_timeout)
            .consistency(
                options
                    .lease
                    .map_or(Consistency::Exact, Consistency::Leased),
            )
            .observer(LimitWatch {
                log: (!matches!(watch, Watch::Nobody)).then_some(CircuitLog {
                    fleet: options.fleet,
                }),
                layer: own_mode,
                page: match watch {
                    Watch::Page(board) => Some((Arc::clone(board), LimitMetrics::new())),
                    _ => None,
                },
            })
            .exempt(move |_| limit_mode.get() != own_mode);
        match own_mode {
            Mode::Shadow => builder.shadow().build(),
            _ => builder.build(),
        }
    };
    // One budget for all extra load. The outermost layer deposits into it.
    let budget = Budget::ratio(options.budget).per_second(10);
    let retry = RetryLayer::builder()
        .http()
        .max_attempts(options.attempts)
        // The upstream is near and answers in 15 ms, so the default of 100 ms would be most of a retried request's
        // latency.
        .backoff(Backoff::exponential(
            Duration::from_millis(25),
            Duration::from_secs(1),
        ))
        // Otherwise one `Retry-After: 60` would hold a client for a minute.
        .deadline(options.deadline)
        .budget(budget.clone())
        .mode(mode(LayerName::Retry))
        .name("gateway");
    let hedge = HedgeLayer::builder()
        .http()
        .shared_budget(budget)
        .mode(mode(LayerName::Hedge))
        .name("gateway");
    // With one delay for all paths, the requests to slow paths would receive most of the hedges.
    let hedge = match options.hedge_per_path {
        true => hedge.key(first_segment),
        false => hedge,
    };
    let hedge = match options.hedge_at.as_slice() {
        // Learned from live latency. No request is hedged before there are enough samples.
        [] => hedge.percentile(options.hedge_percentile),
        delays => hedge.delays(delays.iter().copied()),
    };
    // Innermost: bounds one attempt, so that a stalled attempt leaves time for another.
    let client = TimeoutLayer::new(options.attempt_timeout).layer(client());
    let enforcing = limit(Mode::On)?;
    let (app, limits, retry, hedge) = match watch {
        // Without a live page the mode of the limit does not change, and there are no metrics.
        Watch::Nobody | Watch::Log => {
            let (retry, hedge) = (retry.build()?, hedge.build()?);
            let handles = (retry.handle(), hedge.handle());
            let proxy = Proxy::service(upstream, (retry, hedge).layer(client))?;
            let app = Router::new().fallback_service(enforcing.layer(proxy));
            (app, vec![enforcing], handles.0, handles.1)
        }
        Watch::Page(_) => {
            let metrics = MetricsObserver::new();
            let retry = retry.observer(metrics.clone()).build()?;
            let hedge = hedge.observer(metrics).build()?;
            let handles = (retry.handle(), hedge.handle());
            let proxy = Proxy::service(upstream, (retry, hedge).layer(client))?;
            let counting = limit(Mode::Shadow)?;
            let app = enforcing.layer(counting.layer(proxy));
            let app = Router::new().fallback_service(app);
            (app, vec![enforcing, counting], handles.0, handles.1)
        }
    };
    Ok(Gateway {
        app,
        limits,
        limit: limit_mode,
        retry,
        hedge,
    })
}

/// The path up to its second slash.
fn first_segment(request: RequestHead<'_>) -> Option<&str> {
    let path = request.path();
    let end = path.match_indices('/').nth(1);
    Some(end.map_or(path, |(end, _)| &path[..end]))
}

/// The same proxy without layers, for comparison.
pub(crate) fn bare(options: &StackOptions, upstream: Authority) -> Result<Router, BoxError> {
    let outbound = TimeoutLayer::new(options.deadline).layer(client());
    Ok(Router::new().fallback_service(Proxy::service(upstream, outbound)?))
}

/// A client for clear-text HTTP. The layers clone their inner service in each call, so the client is shared: a clone of
/// its own copies all its settings.
#[must_use]
pub fn client() -> impl Service<
    Request<Body>,
    Response = Response<Incoming>,
    Error = hyper_util::client::legacy::Error,
    Future = ResponseFuture,
> + Clone {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build(connector);
    let client = Arc::new(client);
    service_fn(move |request| client.request(request))
}

/// The observers of the rate limit. Without a live page there are no counts to keep.
struct LimitWatch {
    log: Option<CircuitLog>,
    /// The mode of the observed layer.
    layer: Mode,
    page: Option<(Arc<Board>, LimitMetrics)>,
}

impl Observer for LimitWatch {
    fn on_event(&self, name: &Arc<str>, event: Event<'_>) {
        if let Some(log) = &self.log {
            log.on_event(name, event);
        }
        if let Some((board, metrics)) = &self.page {
            board.on_event(self.layer, event);
            metrics.on_event(name, event);
        }
    }
}

//! The composition of the layers, in the order of a request.

use std::sync::Arc;

use axum::Router;
use axum::http::uri::Authority;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tower::timeout::TimeoutLayer;
use tower::util::option_layer;
use tower::{BoxError, ServiceBuilder};
use tower_dist_ratelimit::backend::Backend;
use tower_dist_ratelimit::key::{self, KeyExtractor};
use tower_dist_ratelimit::{Consistency, FailureMode, Policy, Quota, RateLimitLayer};
use tower_hedge_latency::HedgeLayer;
use tower_jitter_retry::{Budget, RetryLayer};

use crate::options::StackOptions;
use crate::proxy::{Proxy, forward};
use crate::store_log::StoreLog;

/// The layers in use; the demo leaves some out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layers {
    pub(crate) limit: bool,
    pub(crate) retry: bool,
    pub(crate) hedge: bool,
}

impl Layers {
    pub(crate) const ALL: Self = Self {
        limit: true,
        retry: true,
        hedge: true,
    };
}

/// The gateway: rate limit → proxy handler → retry → hedge → timeout → client.
pub(crate) fn gateway(
    options: &StackOptions,
    layers: Layers,
    backend: Arc<dyn Backend>,
    upstream: Authority,
) -> Result<Router, BoxError> {
    let quota = Quota::per_second(options.limit).burst(options.burst);
    // The key is not validated here, so a caller gets a fresh bucket for every key it invents. Place authentication in
    // front of the limit, or limit by address alone.
    let caller = key::header("x-api-key").or(key::peer_addr());
    let limit = RateLimitLayer::builder(backend)
        .limit(Policy::new("per-client", quota).by(caller))
        // If the store is down, each gateway admits its share of the limit, so that the fleet stays near the limit.
        .failure_mode(FailureMode::Local {
            instances: options.fleet,
        })
        .backend_timeout(options.backend_timeout)
        .consistency(
            options
                .lease
                .map_or(Consistency::Exact, Consistency::Leased),
        )
        .observer(StoreLog {
            fleet: options.fleet,
        })
        .build()?;

    // One budget for all extra load. The outermost layer deposits into it.
    let budget = Budget::ratio(options.budget).per_second(10);
    let retry = RetryLayer::builder()
        .http()
        .max_attempts(options.attempts)
        // Otherwise one `Retry-After: 60` would hold a client for a minute.
        .deadline(options.deadline)
        .budget(budget.clone())
        .build()?;
    let hedge = HedgeLayer::builder().http();
    let hedge = match options.hedge_at.as_slice() {
        // Learned from live latency. No request is hedged before there are enough samples.
        [] => hedge.percentile(options.hedge_percentile),
        delays => hedge.delays(delays.iter().copied()),
    };
    let hedge = match layers.retry {
        true => hedge.shared_budget(budget),
        false => hedge.budget(budget),
    };
    let hedge = hedge.build()?;

    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);

    let outbound = ServiceBuilder::new()
        // Outermost: retries requests that still fail after hedging, and waits with nothing in flight.
        .option_layer(layers.retry.then_some(retry))
        // Inside the retry: each attempt is a race, whose losers are cancelled before the next attempt.
        .option_layer(layers.hedge.then_some(hedge))
        // Innermost: bounds one attempt, so that a stalled attempt leaves time for another.
        .layer(TimeoutLayer::new(options.attempt_timeout))
        .service(client);

    Ok(Router::new()
        .fallback(forward)
        .with_state(Proxy { upstream, outbound })
        // Around everything: a rejected request costs no body, no attempt and no upstream.
        .layer(option_layer(layers.limit.then_some(limit))))
}

//! The peers, built as in their documentation.

use std::time::Duration;

use governor::clock::QuantaInstant;
use governor::middleware::{NoOpMiddleware, RateLimitingMiddleware, StateInformationMiddleware};
use tower_governor::governor::{GovernorConfig, GovernorConfigBuilder};
use tower_governor::key_extractor::KeyExtractor;
use tower_governor::{GovernorError, GovernorLayer};
use tower_resilience_ratelimiter::{RateLimiterConfigBuilder, RateLimiterLayer};

use axum::body::Body;

use super::{PER_SECOND, inner::KEY};

/// A key extractor for a header field, as users of tower_governor write it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByHeader;

impl KeyExtractor for ByHeader {
    type Key = String;

    fn extract<T>(&self, request: &http::Request<T>) -> Result<String, GovernorError> {
        let key = request.headers().get(KEY).and_then(|key| key.to_str().ok());
        key.map(str::to_owned)
            .ok_or(GovernorError::UnableToExtractKey)
    }
}

/// tower_governor without fields.
pub(crate) fn tower_governor() -> GovernorLayer<ByHeader, NoOpMiddleware, Body> {
    layer(plenty().finish())
}

/// tower_governor with fields.
pub(crate) fn tower_governor_with_fields()
-> GovernorLayer<ByHeader, StateInformationMiddleware, Body> {
    layer(plenty().use_headers().finish())
}

/// tower_governor with a limit of one request an hour.
pub(crate) fn tower_governor_refusing() -> GovernorLayer<ByHeader, NoOpMiddleware, Body> {
    let mut builder = GovernorConfigBuilder::default();
    let mut builder = builder
        .period(Duration::from_secs(3600))
        .burst_size(1)
        .key_extractor(ByHeader);
    layer(builder.finish())
}

fn plenty() -> GovernorConfigBuilder<ByHeader, NoOpMiddleware> {
    let period = Duration::from_secs(1) / PER_SECOND;
    let mut builder = GovernorConfigBuilder::default();
    builder
        .period(period)
        .burst_size(PER_SECOND)
        .key_extractor(ByHeader)
}

fn layer<M>(config: Option<GovernorConfig<ByHeader, M>>) -> GovernorLayer<ByHeader, M, Body>
where
    M: RateLimitingMiddleware<QuantaInstant>,
{
    GovernorLayer::new(config.expect("valid"))
}

/// tower-resilience's fixed window.
pub(super) fn resilience_fixed() -> RateLimiterLayer {
    build(resilience())
}

/// tower-resilience's token bucket, of the same size as the limit.
pub(super) fn resilience_bucket() -> RateLimiterLayer {
    build(resilience().burst_size(0))
}

fn resilience() -> RateLimiterConfigBuilder {
    let limit = usize::try_from(PER_SECOND).expect("at least 32 bits");
    RateLimiterConfigBuilder::new()
        .limit_for_period(limit)
        .refresh_period(Duration::from_secs(1))
}

fn build(builder: RateLimiterConfigBuilder) -> RateLimiterLayer {
    builder.build().expect("valid")
}

use std::time::Duration;

use tests::{Probe, ProbeError, Request, Response};
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_dist_ratelimit::backend::Memory;
use tower_dist_ratelimit::{CallLimitLayer, Policy, Quota, RateLimitLayer, key};
use tower_hedge_latency::{Budget, HedgeLayer, Http as HedgeHttp};
use tower_jitter_retry::{Backoff, Http, Jitter, RetryLayer};

/// The wait before each retry, in milliseconds.
pub(crate) const BACKOFF: u32 = 50;
/// When a hedge is due, in milliseconds.
pub(crate) const TRIGGER: u32 = 10;

/// The stack that waits between `call` and the inner service's `call`, and so leaves a clone behind.
pub(crate) const WAITS: &str = "rate limit with a quota that is looked up";

/// Any stack, type-erased. A box calls exactly the instance that it holds.
pub(crate) type Stack = BoxCloneSyncService<Request, Response, ProbeError>;

/// A stack to test.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) stack: fn(Probe) -> Stack,
}

/// Every layer, and their compositions.
pub(crate) fn all() -> Vec<Subject> {
    let subject = |name, stack| Subject { name, stack };
    vec![
        subject("retry", |probe| boxed(retry().layer(probe))),
        subject("hedge", |probe| boxed(hedge().layer(probe))),
        subject("fan-out", |probe| boxed(fan_out().layer(probe))),
        subject("hedge with a percentile", |probe| {
            boxed(percentile().layer(probe))
        }),
        subject("retry over hedge", |probe| {
            boxed(retry().layer(hedge().layer(probe)))
        }),
        subject("hedge over retry", |probe| {
            boxed(hedge().layer(retry().layer(probe)))
        }),
        subject("retry over retry", |probe| {
            boxed(retry().layer(retry().layer(probe)))
        }),
        subject("hedge over hedge", |probe| {
            boxed(hedge().layer(hedge().layer(probe)))
        }),
        subject("rate limit", |probe| boxed(limit(1).layer(probe))),
        subject("rate limit with two policies", |probe| {
            boxed(limit(2).layer(probe))
        }),
        subject(WAITS, |probe| boxed(looked_up().layer(probe))),
        subject("rate limit of any request", |probe| {
            let limited = any_request().layer(probe);
            boxed(limited.map_err(|error| error.into_inner().unwrap()))
        }),
        subject("rate limit over retry over hedge", |probe| {
            boxed(limit(1).layer(retry().layer(hedge().layer(probe))))
        }),
        subject("hedge over retry over rate limit", |probe| {
            boxed(hedge().layer(retry().layer(limit(1).layer(probe))))
        }),
    ]
}

fn retry() -> RetryLayer<Http> {
    let backoff = Duration::from_millis(u64::from(BACKOFF));
    RetryLayer::builder()
        .backoff(Backoff::constant(backoff).jitter(Jitter::None))
        .budget(Budget::unlimited())
        .http()
        .build()
        .unwrap()
}

fn hedge() -> HedgeLayer<HedgeHttp> {
    let trigger = Duration::from_millis(u64::from(TRIGGER));
    HedgeLayer::builder().fixed(trigger).http().build().unwrap()
}

/// Hedges at the same time as the fixed trigger until it has learned a delay.
fn percentile() -> HedgeLayer<HedgeHttp> {
    let trigger = Duration::from_millis(u64::from(TRIGGER));
    let builder = HedgeLayer::builder()
        .initial_delay(trigger)
        .max_delay(trigger);
    let builder = builder.min_delay(trigger).budget(Budget::unlimited());
    builder.http().build().unwrap()
}

fn fan_out() -> HedgeLayer<HedgeHttp> {
    HedgeLayer::builder().fan_out(3).http().build().unwrap()
}

/// A limit that the tests never reach.
fn limit(policies: u32) -> RateLimitLayer {
    let policy = |n| {
        let policy = Policy::new(format!("policy-{n}"), Quota::per_second(1_000_000));
        policy.by(key::header("x-api-key"))
    };
    let builder = (0..policies).fold(RateLimitLayer::builder(Memory::default()), |builder, n| {
        builder.limit(policy(n))
    });
    builder.build().unwrap()
}

/// Decides later than `call`, but within the same poll.
fn looked_up() -> RateLimitLayer {
    let policy = Policy::new("policy", Quota::per_second(1));
    let policy = policy.quota_by_async(|_| std::future::ready(Some(Quota::per_second(1_000_000))));
    let builder = RateLimitLayer::builder(Memory::default());
    builder.limit(policy).build().unwrap()
}

fn any_request() -> CallLimitLayer<Request> {
    let policy = Policy::new("policy", Quota::per_second(1_000_000));
    let policy = policy.by_request(|request: &Request| request.headers().get("x-api-key").cloned());
    let builder = CallLimitLayer::builder(Memory::default());
    builder.limit(policy).build().unwrap()
}

fn boxed<S>(service: S) -> Stack
where
    S: Service<Request, Response = Response, Error = ProbeError>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    BoxCloneSyncService::new(ServiceBuilder::new().service(service))
}

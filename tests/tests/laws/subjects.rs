use std::time::Duration;

use tests::{Probe, ProbeError, Request, Response};
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_dist_ratelimit::backend::Memory;
use tower_dist_ratelimit::{
    CallLimitLayer, LimitError, Policy, Quota, RateLimitLayer, RequestPolicy, ThrottleLayer, key,
};
use tower_hedge_latency::{Budget, HedgeLayer, Http as HedgeHttp};
use tower_jitter_retry::{Backoff, Http, Jitter, RetryLayer};

/// The wait before each retry, in milliseconds.
pub(crate) const BACKOFF: u32 = 50;
/// When a hedge is due, in milliseconds.
pub(crate) const TRIGGER: u32 = 10;

/// Any stack, type-erased. A box calls exactly the instance that it holds.
pub(crate) type Stack = BoxCloneSyncService<Request, Response, ProbeError>;

/// A stack to test.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) stack: fn(Probe) -> Stack,
    pub(crate) readies: Readies,
}

/// When a stack makes the inner service ready.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readies {
    /// In `poll_ready`. The call uses this instance.
    InPollReady,
    /// In `poll_ready`. The call waits before it uses this instance, and so leaves a clone behind.
    BeforeItWaits,
    /// In the call, which makes a clone ready. The stack itself is always ready.
    InTheCall,
}

/// Every layer, and their compositions.
pub(crate) fn all() -> Vec<Subject> {
    let subject = |name, stack| Subject {
        name,
        stack,
        readies: Readies::InPollReady,
    };
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
        Subject {
            readies: Readies::BeforeItWaits,
            ..subject("rate limit with a quota that is looked up", |probe| {
                boxed(looked_up().layer(probe))
            })
        },
        subject("rate limit of any request", |probe| {
            boxed(any_request().layer(probe).map_err(inner))
        }),
        subject("rate limit over retry over hedge", |probe| {
            boxed(limit(1).layer(retry().layer(hedge().layer(probe))))
        }),
        subject("hedge over retry over rate limit", |probe| {
            boxed(hedge().layer(retry().layer(limit(1).layer(probe))))
        }),
        Subject {
            readies: Readies::InTheCall,
            ..subject("throttle", |probe| boxed(throttled(probe)))
        },
        Subject {
            readies: Readies::InTheCall,
            ..subject("retry over throttle", |probe| {
                boxed(retry().layer(throttled(probe)))
            })
        },
    ]
}

/// The subjects whose readiness is the readiness of the inner service.
pub(crate) fn all_but_throttles() -> impl Iterator<Item = Subject> {
    let subjects = all().into_iter();
    subjects.filter(|subject| subject.readies != Readies::InTheCall)
}

/// The subjects that are always ready.
pub(crate) fn throttles() -> impl Iterator<Item = Subject> {
    let subjects = all().into_iter();
    subjects.filter(|subject| subject.readies == Readies::InTheCall)
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
    let builder = CallLimitLayer::builder(Memory::default());
    builder.limit(by_api_key()).build().unwrap()
}

fn throttled(
    probe: Probe,
) -> impl Service<Request, Response = Response, Error = ProbeError, Future: Send> + Clone + Send + Sync
{
    let builder = CallLimitLayer::builder(Memory::default());
    let layer: ThrottleLayer<Request> = builder.limit(by_api_key()).waiting().build().unwrap();
    layer.layer(probe).map_err(inner)
}

/// A limit that the tests never reach.
fn by_api_key() -> RequestPolicy<Request> {
    let policy = Policy::new("policy", Quota::per_second(1_000_000));
    policy.by_request(|request: &Request| request.headers().get("x-api-key").cloned())
}

/// Returns the error of the inner service. The limit rejects no request.
fn inner(error: LimitError<ProbeError>) -> ProbeError {
    error.into_inner().unwrap()
}

fn boxed<S>(service: S) -> Stack
where
    S: Service<Request, Response = Response, Error = ProbeError>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
{
    BoxCloneSyncService::new(ServiceBuilder::new().service(service))
}

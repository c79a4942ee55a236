//! Rate-limit layers, over HTTP and over other services.

use tower::Layer;
use tower_dist_ratelimit::{
    CallLimitLayer, Policy, Quota, RateLimitLayer, RateLimitLayerBuilder, ResponseHeaders,
    backend::Memory, key,
};

use super::floor::{FLOOR, Floor};
use super::inner::{Inner, KEY, request};
use super::{KEYS, http_floor, peers, plenty};
use crate::measure::{Case, Figure, Subject};
use crate::report::{BARE, OURS};

pub(crate) const WITHOUT_FIELDS: &str = "layer over http, header key, without fields";
const WITH_FIELDS: &str = "layer over http, header key, with fields";
const REFUSAL: &str = "layer, refusal";
pub(crate) const FIXED: &str = "generic layer, fixed window";
pub(crate) const BUCKET: &str = "generic layer, token bucket";

const TOWER_GOVERNOR: &str = "tower_governor";
/// Our layer with the processor's counter as its clock, as in tower_governor.
pub(crate) const PROCESSOR_CLOCK: &str = "ours, processor";
const RESILIENCE: &str = "tower-resilience";

pub(super) fn cases() -> Vec<Case> {
    vec![
        without_fields(),
        with_fields(),
        refusal(),
        fixed(),
        bucket(),
    ]
}

fn http(name: &'static str, ours: Subject, peer: Subject) -> Case {
    let bare = Subject::new(BARE, Inner, request);
    Case::new(name, Figure::Call, vec![bare, ours, peer])
}

fn without_fields() -> Case {
    let ours = without_fields_in(Memory::default()).layer(Inner);
    let ours = Subject::new(OURS, ours, request);
    let peer = Subject::new(
        TOWER_GOVERNOR,
        peers::tower_governor().layer(Inner),
        request,
    );
    let mut case = http(WITHOUT_FIELDS, ours, peer.goal_over_bare(0.9));
    let processor = with_processor_clock().layer(Inner);
    case.subjects
        .push(Subject::new(PROCESSOR_CLOCK, processor, request));
    let floor = http_floor(Floor::plenty(KEYS), false, Inner);
    case.subjects.push(Subject::new(FLOOR, floor, request));
    case
}

fn with_fields() -> Case {
    let ours = by_header(plenty()).build().expect("valid");
    let ours = Subject::new(OURS, ours.layer(Inner), request);
    let peer = peers::tower_governor_with_fields().layer(Inner);
    let peer = Subject::new(TOWER_GOVERNOR, peer, request);
    let mut case = http(WITH_FIELDS, ours, peer.goal_over_bare(0.7));
    let floor = http_floor(Floor::plenty(KEYS), true, Inner);
    case.subjects.push(Subject::new(FLOOR, floor, request));
    case
}

/// Rejects all calls but the first.
fn refusal() -> Case {
    let ours = by_header(Quota::per_hour(1)).build().expect("valid");
    let ours = Subject::new(OURS, ours.layer(Inner), request);
    let peer = peers::tower_governor_refusing().layer(Inner);
    let peer = Subject::new(TOWER_GOVERNOR, peer, request).goal(0.03);
    let mut case = http(REFUSAL, ours, peer);
    let floor = http_floor(Floor::one_per_hour(KEYS), true, Inner);
    case.subjects.push(Subject::new(FLOOR, floor, request));
    case
}

/// Our layer, with one bucket per client.
pub(crate) fn by_header(quota: Quota) -> RateLimitLayerBuilder {
    by_header_in(Memory::default(), quota)
}

fn by_header_in(memory: Memory, quota: Quota) -> RateLimitLayerBuilder {
    let policy = Policy::new("per-client", quota).by(key::header(KEY.as_str()));
    RateLimitLayer::builder(memory).limit(policy)
}

/// Our layer, which sends no fields because it rejects no request.
pub(crate) fn without_fields_in(memory: Memory) -> RateLimitLayer {
    let layer = by_header_in(memory, plenty()).headers(ResponseHeaders::OnRejection);
    layer.build().expect("valid")
}

/// Our layer without fields, with the clock that tower_governor reads.
pub(crate) fn with_processor_clock() -> RateLimitLayer {
    without_fields_in(Memory::with_processor_clock(100_000))
}

fn fixed() -> Case {
    let policy = Policy::new("all", plenty()).fixed_window();
    generic(FIXED, policy, peers::resilience_fixed().layer(Inner))
}

fn bucket() -> Case {
    let policy = Policy::new("all", plenty());
    generic(BUCKET, policy, peers::resilience_bucket().layer(Inner))
}

fn generic(
    name: &'static str,
    policy: Policy,
    peer: tower_resilience_ratelimiter::RateLimiter<Inner>,
) -> Case {
    let request = || 7_u64;
    let ours = CallLimitLayer::builder(Memory::default()).limit(policy);
    let ours = ours.build().expect("valid");
    let subjects = vec![
        Subject::new(BARE, Inner, request),
        Subject::new(OURS, ours.layer(Inner), request),
        Subject::new(RESILIENCE, peer, request).goal(0.5),
    ];
    Case::new(name, Figure::Call, subjects)
}

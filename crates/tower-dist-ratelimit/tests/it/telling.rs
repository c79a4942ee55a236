//! Responses that are decided without the backend: from leases and from the deny cache.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use tokio::time::{Instant, sleep};
use tower::Layer;
use tower_dist_ratelimit::{
    Consistency, Decided, Event, FailureMode, Limiter, Observer, Policy, Quota, RateLimitLayer,
    RateLimitLayerBuilder, Source, key,
};

use crate::{
    support::{Probe, field, from, send},
    wan::Wan,
};

const LEASE: Duration = Duration::from_secs(1);

const AWAY: Duration = Duration::from_millis(10);

fn leasing(wan: &Wan, policy: Policy) -> RateLimitLayerBuilder {
    let builder = RateLimitLayer::builder(wan.clone()).limit(policy);
    let builder = builder.consistency(Consistency::leased_for(LEASE));
    builder.failure_mode(FailureMode::Closed)
}

/// Consistency of an instance, and the source of its rejections.
const SHARINGS: [(Consistency, Source); 2] = [
    (Consistency::Leased(LEASE), Source::Lease),
    (Consistency::Exact, Source::DenyCache),
];

fn day() -> Policy {
    Policy::new("day", Quota::per_day(1_000))
}

/// The numbers of a `RateLimit` field with one member.
fn state<B>(response: &http::Response<B>) -> (u64, u64) {
    let value = field(response, "ratelimit").unwrap();
    let number = |name: &str| {
        let mut parameters = value.split(';');
        let number = parameters.find_map(|one| one.strip_prefix(name));
        number.unwrap().parse().unwrap()
    };
    (number("r="), number("t="))
}

/// Outcomes and sources of decisions, in order.
#[derive(Clone, Default)]
struct Sources(std::sync::Arc<std::sync::Mutex<Vec<(&'static str, Source)>>>);

impl Sources {
    fn note(&self, what: &'static str, decided: &Decided<'_>) {
        let source = decided.iter().next().unwrap().1.source;
        self.0.lock().unwrap().push((what, source));
    }

    fn last(&self) -> Option<(&'static str, Source)> {
        self.0.lock().unwrap().last().copied()
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Observer for Sources {
    fn on_event(&self, _: &Arc<str>, event: Event<'_>) {
        match event {
            Event::Allowed(decided) => self.note("allowed", &decided),
            Event::Rejected(rejection) => self.note("rejected", &rejection.decided()),
            Event::Shadowed(rejection) => self.note("shadowed", &rejection.decided()),
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_fields_of_a_leased_response_report_remaining_tokens_and_reset_time() {
    let (wan, told) = (Wan::away(Duration::ZERO), Sources::default());
    let layer = leasing(&wan, day()).observer(told.clone()).build().unwrap();
    let mut service = layer.layer(Probe::default());
    let mut leased = 0;
    for used in 1..=500 {
        sleep(Duration::from_millis(2)).await;
        let response = send(&mut service, from("k")).await;
        assert_eq!(
            field(&response, "ratelimit-policy"),
            Some(r#""day";q=1000;w=86400"#)
        );
        let (left, full) = state(&response);
        assert_eq!(left, 1_000 - used);
        // The tokens debited in the backend: at least the used tokens, plus at most half of the remaining ones.
        let token = 86_400 / 1_000;
        assert!(full > (used - 1) * token && full <= (used + left / 2 + 16) * (token + 1));
        let (what, source) = told.last().unwrap();
        assert_eq!(what, "allowed");
        leased += u32::from(source == Source::Lease);
    }
    assert_eq!(told.count(), 500);
    assert!(leased > 350, "{leased}");
}

#[tokio::test(start_paused = true)]
async fn a_rejection_without_the_backend_names_the_time_to_retry() {
    for (sharing, by) in SHARINGS {
        let (wan, told) = (Wan::away(Duration::ZERO), Sources::default());
        let policy = Policy::new("hour", Quota::per_hour(100)).fixed_window();
        let layer = leasing(&wan, policy)
            .consistency(sharing)
            .observer(told.clone());
        let mut service = layer.build().unwrap().layer(Probe::default());
        let (created, mut without) = (Instant::now(), 0);
        for number in 0..400 {
            sleep(Duration::from_millis(1)).await;
            let response = send(&mut service, from("k")).await;
            if number < 100 {
                assert_eq!(response.status(), StatusCode::OK);
                continue;
            }
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
            // The end of the window in whole seconds from now, rounded up.
            let left = (Duration::from_secs(3_600) - created.elapsed()).as_millis();
            let wait = u64::try_from(left.div_ceil(1_000)).unwrap();
            assert_eq!(state(&response), (0, wait));
            assert_eq!(field(&response, "retry-after"), Some(&*wait.to_string()));
            let (what, source) = told.last().unwrap();
            assert_eq!(what, "rejected");
            without += u32::from(source == by);
        }
        assert!(without > 250, "{without} by {by:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shadow_over_leases_and_the_deny_cache_rejects_no_request_and_emits_every_event() {
    for (sharing, by) in SHARINGS {
        let (wan, told) = (Wan::away(AWAY), Sources::default());
        let policy = Policy::new("hour", Quota::per_hour(100));
        let layer = leasing(&wan, policy).consistency(sharing).shadow();
        let layer = layer.observer(told.clone()).build().unwrap();
        let (mut service, mut seen) = (layer.layer(Probe::default()), Vec::new());
        for number in 1..=600 {
            sleep(Duration::from_millis(1)).await;
            let response = send(&mut service, from("k")).await;
            assert_eq!(response.status(), StatusCode::OK);
            assert!(response.headers().is_empty(), "{response:?}");
            assert_eq!(told.count(), number);
            seen.push(told.last().unwrap());
        }
        let count = |one| seen.iter().filter(|&&seen| seen == one).count();
        let leased = count(("allowed", Source::Lease));
        assert_eq!(leased + count(("allowed", Source::Backend)), 100);
        assert_eq!(leased > 30, by == Source::Lease, "{leased}");
        let shadowed = count(("shadowed", by));
        assert_eq!(shadowed + count(("shadowed", Source::Backend)), 500);
        assert!(shadowed > 400, "{shadowed} by {by:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leased_decision_has_the_reset_time_of_the_backend() {
    let wan = Wan::away(Duration::ZERO);
    for policy in [
        || Policy::new("bucket", Quota::per_second(400)),
        || Policy::new("fixed", Quota::new(800, 2 * LEASE)).fixed_window(),
    ] {
        let limiter =
            Limiter::builder(wan.clone(), policy()).consistency(Consistency::leased_for(LEASE));
        let limiter = limiter.build().unwrap();
        let exact = Limiter::builder(wan.clone(), policy()).build().unwrap();
        let mut leased = 0;
        for _ in 0..3_000 {
            sleep(Duration::from_millis(3)).await;
            let before = wan.trips();
            let decision = limiter.check("k").await.unwrap();
            assert!(decision.remaining <= decision.limit, "{decision:?}");
            let asked = wan.trips() > before;
            let look = exact.peek("k").await.unwrap();
            // The backend has no state for a window without requests to it.
            if decision.source == Source::Lease && !asked && !look.reset_after.is_zero() {
                leased += 1;
                assert_eq!(decision.reset_after, look.reset_after);
            }
        }
        assert!(leased > 2_000, "{leased}");
    }
}

/// With exact requests, sets, corrections and refills in flight.
#[tokio::test(start_paused = true)]
async fn reported_remaining_tokens_never_exceed_the_actual_ones() {
    for away in [AWAY, 5 * AWAY] {
        let wan = Wan::away(away);
        let limiter =
            Limiter::builder(wan.clone(), day()).consistency(Consistency::leased_for(LEASE));
        let limiter = limiter.backend_timeout(LEASE).build().unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        let (mut used, mut leased) = (0, 0);
        for number in 0..700_u64 {
            sleep(Duration::from_millis(2)).await;
            let limiter = limiter.clone();
            tasks.spawn(async move {
                if number % 50 == 49 {
                    limiter.charge("k", 3).await.unwrap();
                    return None;
                }
                let cost = if number % 10 == 9 { 2 } else { 1 };
                Some(limiter.check_n("k", cost).await.unwrap())
            });
            tokio::task::yield_now().await;
            while let Some(done) = tasks.try_join_next() {
                let Some(decision) = done.unwrap() else {
                    used += 3;
                    continue;
                };
                used += decision.granted;
                leased += u32::from(decision.source == Source::Lease);
                assert!(
                    decision.remaining <= 1_000_u64.saturating_sub(used),
                    "{decision:?}: {used} used"
                );
            }
        }
        assert!(used >= 700 && leased > 300, "{used}, {leased}");
    }
}

#[test]
fn a_lease_of_several_policies_is_a_build_error() {
    let wan = Wan::away(Duration::ZERO);
    let by = |name: &'static str| Policy::new(name, Quota::per_day(5)).by(key::header(name));
    let error = leasing(&wan, by("a")).limit(by("b")).build().unwrap_err();
    assert_eq!(error.field(), "consistency");
    assert_eq!(
        error.to_string(),
        "consistency is leased, but must be exact or eventual with several policies"
    );
    assert!(leasing(&wan, by("a")).build().is_ok());
}

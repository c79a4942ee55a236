//! The limiter without HTTP.

mod watching;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tower_dist_ratelimit::{
    BuildError, Decision, FailureMode, Limiter, LimiterBuilder, Policy, Quota,
    backend::{Answer, Backend, BackendError, BoxFuture, Charge, JointDecision, Memory, PolicyId},
};

use crate::support::{Broken, Remote, slow};

fn limiter(quota: Quota) -> Limiter {
    Limiter::new(Memory::default(), Policy::new("p", quota)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn rejected_until_retry_after_and_allowed_at_it() {
    let limiter = limiter(Quota::per_second(3).burst(1));
    assert!(limiter.check("a").await.unwrap().allowed);
    let rejected = limiter.check("a").await.unwrap();
    let wait = rejected.retry_after.unwrap();
    assert_eq!(wait, Duration::from_nanos(333_333_334));
    tokio::time::advance(wait - Duration::from_nanos(1)).await;
    assert!(!limiter.check("a").await.unwrap().allowed);
    tokio::time::advance(Duration::from_nanos(1)).await;
    assert!(limiter.check("a").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_charges_no_tokens() {
    // Peers charge before they decide, so a client that keeps sending requests stays rejected.
    let limiter = limiter(slow(2));
    limiter.check_n("a", 2).await.unwrap();
    for _ in 0..1000 {
        assert!(!limiter.check("a").await.unwrap().allowed);
        assert!(!limiter.check_n("a", 3).await.unwrap().allowed);
        tokio::time::advance(Duration::from_nanos(999_999)).await;
    }
    tokio::time::advance(Duration::from_nanos(1000)).await;
    assert!(limiter.check("a").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn after_idle_time_there_is_one_burst_and_not_one_more() {
    let limiter = limiter(Quota::per_second(10).burst(5));
    for _ in 0..3 {
        let mut admitted = 0;
        while limiter.check("a").await.unwrap().allowed {
            admitted += 1;
        }
        assert_eq!(admitted, 5);
        tokio::time::advance(Duration::from_secs(3600)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_hour_at_333_a_second_loses_no_request() {
    let limiter = limiter(Quota::per_second(333).burst(400));
    let mut admitted = 0;
    for _ in 0..=3600 {
        while limiter.check("a").await.unwrap().allowed {
            admitted += 1;
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(admitted, 400 + 3600 * 333);
}

#[tokio::test(start_paused = true)]
async fn a_peek_takes_no_tokens_and_returns_the_remaining_tokens() {
    let limiter = limiter(slow(3));
    limiter.check("a").await.unwrap();
    for _ in 0..9 {
        let seen = limiter.peek("a").await.unwrap();
        assert_eq!(
            (seen.remaining, seen.reset_after),
            (2, Duration::from_secs(1))
        );
    }
    assert_eq!(limiter.peek("b").await.unwrap().remaining, 3);
}

#[tokio::test(start_paused = true)]
async fn a_refund_returns_tokens_up_to_the_burst() {
    let limiter = limiter(slow(3));
    limiter.check_n("a", 3).await.unwrap();
    limiter.refund("a", 2).await.unwrap();
    assert_eq!(limiter.peek("a").await.unwrap().remaining, 2);
    limiter.refund("a", u64::MAX).await.unwrap();
    assert_eq!(limiter.peek("a").await.unwrap().remaining, 3);
    limiter.refund("new", 1).await.unwrap();
    assert_eq!(limiter.peek("new").await.unwrap().remaining, 3);
}

#[tokio::test(start_paused = true)]
async fn a_reset_forgets_one_key() {
    let limiter = limiter(slow(1));
    limiter.check("a").await.unwrap();
    limiter.check("b").await.unwrap();
    limiter.reset("a").await.unwrap();
    assert!(limiter.check("a").await.unwrap().allowed);
    assert!(!limiter.check("b").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn clones_count_in_the_same_bucket() {
    let limiter = limiter(slow(1));
    assert!(limiter.clone().check("a").await.unwrap().allowed);
    assert!(!limiter.check("a").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn keys_of_all_types_are_distinct() {
    let limiter = limiter(slow(1));
    assert!(limiter.check("a").await.unwrap().allowed);
    assert!(limiter.check(7).await.unwrap().allowed);
    assert!(limiter.check(("a", 7)).await.unwrap().allowed);
    assert!(limiter.check(None::<&str>).await.unwrap().allowed);
    assert!(!limiter.check(String::from("a")).await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_check_waits_for_a_remote_backend_up_to_the_timeout() {
    let remote = |millis| {
        let remote = Remote::after(Duration::from_millis(millis));
        let limiter = Limiter::builder(remote, Policy::new("p", slow(2)));
        limiter.failure_mode(FailureMode::Closed).build().unwrap()
    };
    let near = remote(49);
    assert!(near.check("a").await.unwrap().allowed);
    near.refund("a", 1).await.unwrap();
    near.reset("a").await.unwrap();
    assert_eq!(near.peek("a").await.unwrap().remaining, 2);

    let far = remote(51);
    let started = tokio::time::Instant::now();
    assert!(far.check("a").await.unwrap_err().is_timeout());
    assert_eq!(started.elapsed(), Duration::from_millis(50));
    assert!(far.refund("a", 1).await.unwrap_err().is_timeout());
    assert!(far.reset("a").await.unwrap_err().is_timeout());
}

#[tokio::test(start_paused = true)]
async fn a_failing_backend_is_an_error_if_configured() {
    let limiter = Limiter::builder(Broken, Policy::new("p", slow(1)));
    let limiter = limiter.failure_mode(FailureMode::Closed).build().unwrap();
    let error = limiter.check("a").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the rate limit's backend did not decide: out of order"
    );
    assert!(!error.is_timeout());
    assert!(limiter.refund("a", 1).await.is_err());
    assert!(limiter.reset("a").await.is_err());
}

/// Fails the first reset. Resets take effect when they are polled, like requests over a network.
#[derive(Default)]
struct FirstResetFails(Arc<Memory>, AtomicBool);

impl Backend for FirstResetFails {
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.0.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        self.0.acquire(charges, out)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        self.0.settle(charges, delta)
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        let is_first = !self.1.swap(true, Relaxed);
        let (memory, key) = (Arc::clone(&self.0), key.to_vec());
        Box::pin(async move {
            match is_first {
                true => Err(BackendError::new("the first reset")),
                false => memory.reset(policy, &key).await,
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_fails_for_one_policy_clears_the_others_and_returns_the_first_error() {
    let limiter = Limiter::builder(FirstResetFails::default(), Policy::new("kept", slow(3)))
        .limit(Policy::new("cleared", slow(1)))
        .build()
        .unwrap();
    assert!(limiter.check("a").await.unwrap().allowed);
    assert!(!limiter.check("a").await.unwrap().allowed);
    let error = limiter.reset("a").await.unwrap_err();
    let text = "the rate limit's backend did not decide: the first reset";
    assert_eq!(error.to_string(), text);
    assert!(limiter.check("a").await.unwrap().allowed);
}

/// Allows each request without a decision.
struct NoDecisions;

impl Backend for NoDecisions {
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        Memory::default().register(policies)
    }

    fn acquire(&self, _: &[Charge<'_>], _: &mut [Decision]) -> Answer {
        let none = JointDecision {
            allowed: true,
            decisions: [].into_iter().collect(),
        };
        Answer::Later(Box::pin(async { Ok(none) }))
    }

    fn settle(&self, _: &[Charge<'_>], _: i64) -> Answer {
        Answer::Done(true)
    }

    fn reset(&self, _: PolicyId, _: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test(start_paused = true)]
async fn each_error_of_a_check_names_its_cause() {
    let policy = || Policy::new("p", slow(1));
    let closed = |builder: LimiterBuilder| {
        let builder = builder.failure_mode(FailureMode::Closed);
        builder.build().unwrap()
    };
    let silent = Remote::after(Duration::from_secs(1));
    let memory = |policy| closed(Limiter::builder(Memory::default(), policy));
    for (limiter, cause) in [
        (
            closed(Limiter::builder(silent, policy())),
            "no answer within 50ms",
        ),
        (
            closed(Limiter::builder(NoDecisions, policy())),
            "the answer does not have one decision per charge",
        ),
        (
            memory(policy()).with_quota(slow(2)),
            "a quota for a policy without dynamic_quotas",
        ),
        (
            memory(policy().dynamic_quotas()).with_quota(Quota::new(1, Duration::ZERO)),
            "window is 0ns, but must be at least 1ns",
        ),
    ] {
        let error = limiter.check("a").await.unwrap_err();
        let text = format!("the rate limit's backend did not decide: {cause}");
        assert_eq!(error.to_string(), text);
    }
}

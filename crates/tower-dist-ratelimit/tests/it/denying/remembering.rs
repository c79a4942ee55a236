//! Remembered rejections, and how long they last.

use super::*;

/// Only a request that takes tokens lowers the remaining tokens below the number in a rejection.
#[tokio::test(start_paused = true)]
async fn a_peek_removes_no_rejection() {
    let wan = Wan::away(AWAY);
    let limiter = limiter(&wan, two());
    use_up(&limiter).await;
    assert_eq!(limiter.peek("key").await.unwrap().source, Source::Backend);
    let rejected = limiter.check("key").await.unwrap();
    assert_eq!(rejected.source, Source::DenyCache);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_can_never_pass_is_rejected_without_a_round_trip() {
    let wan = Wan::away(AWAY);
    let limiter = limiter(&wan, two());
    for source in [Source::Backend, Source::DenyCache] {
        let hopeless = limiter.check_n("key", 3).await.unwrap();
        assert_eq!((hopeless.source, hopeless.retry_after), (source, None));
    }
}

/// The request is sent after the reset and decided before the reset arrives.
#[tokio::test(start_paused = true)]
async fn a_rejection_that_a_reset_overtakes_is_not_remembered() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = limiter(&wan, two());
    use_up(&limiter).await;
    advance(Duration::from_millis(1)).await;
    wan.is_off(2 * AWAY, AWAY);
    let reset = limiter.reset("key");
    let overtaking = async {
        sleep(Duration::from_millis(1)).await;
        wan.is_away(Duration::ZERO);
        let rejected = limiter.check("key").await.unwrap();
        assert_eq!(
            (rejected.allowed, rejected.source),
            (false, Source::Backend)
        );
    };
    let (reset, ()) = futures_util::future::join(reset, overtaking).await;
    reset.unwrap();
    assert!(limiter.check("key").await.unwrap().allowed);
}

/// A token takes a third of a second, which is not a whole number of nanoseconds.
#[tokio::test(start_paused = true)]
async fn the_wait_for_more_tokens_than_were_rejected_is_rounded_up() {
    let wan = Wan::away(Duration::ZERO);
    let limiter = limiter(&wan, Policy::new("three", Quota::per_second(3).burst(4)));
    assert!(limiter.check_n("key", 4).await.unwrap().allowed);
    let rejected = limiter.check_n("key", 3).await.unwrap();
    assert_eq!(rejected.retry_after, Some(Duration::from_secs(1)));
    let costly = limiter.check_n("key", 4).await.unwrap();
    assert_eq!(costly.source, Source::DenyCache);
    assert_eq!(
        costly.retry_after,
        Some(Duration::from_nanos(1_333_333_334))
    );
}

//! `Memory` by the processor's counter, in real time.

#![expect(
    clippy::disallowed_types,
    reason = "no clock of tokio measures the real time"
)]

use std::time::{Duration, Instant};

use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};

const WINDOW: Duration = Duration::from_millis(300);
/// The two clocks may differ a little.
const SKEW: Duration = Duration::from_millis(1);

fn limiter(window: Duration) -> Limiter {
    let policy = Policy::new("slow", Quota::new(1, window));
    Limiter::new(Memory::with_processor_clock(1), policy).unwrap()
}

#[tokio::test]
async fn a_token_returns_after_the_window_of_real_time() {
    let limiter = limiter(WINDOW);
    let start = Instant::now();
    assert!(limiter.check("a").await.unwrap().allowed);
    let full = Instant::now();
    let rejected = limiter.check("a").await.unwrap();
    assert!(!rejected.allowed);
    let wait = rejected.retry_after.unwrap();
    assert!(
        wait <= WINDOW && wait + start.elapsed() > WINDOW - SKEW,
        "{wait:?}"
    );

    while !limiter.check("a").await.unwrap().allowed {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(start.elapsed() > WINDOW - SKEW, "{:?}", start.elapsed());
    assert!(full.elapsed() < 20 * WINDOW, "{:?}", full.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_paused_clock_of_tokio_returns_no_tokens() {
    let limiter = limiter(Duration::from_secs(3600));
    assert!(limiter.check("a").await.unwrap().allowed);
    tokio::time::advance(Duration::from_secs(7200)).await;
    assert!(!limiter.check("a").await.unwrap().allowed);
}

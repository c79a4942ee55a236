//! Fleets of real processes whose backend fails and recovers: the number of requests that they admit around the outage.
#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod fleet;
mod member;

use std::time::Duration;

use tests::servers::{Memcached, Redis};
use tokio::time::sleep;

use self::fleet::{Fleet, MEMBERS, excess, in_window};

/// Tokens per second of the bucket, and its burst.
const RATE: u64 = 200;
const BURST: u64 = 20;

/// The limit of a window.
const LIMIT: u64 = 200;
const WINDOW: Duration = Duration::from_secs(20);

/// Long enough for the circuit breaker's pauses to reach their maximum, so that the processes return at different
/// times.
const OUTAGE: Duration = Duration::from_secs(3);

/// The maximum delay of the recorded times on a busy machine.
const LATE: Duration = Duration::from_millis(200);

#[tokio::test]
async fn processes_that_return_one_by_one_admit_no_more_than_three_bursts_beyond_the_rate() {
    let mut server = Redis::start();
    let mut fleet = Fleet::start(&server.url(), "bucket").await;
    sleep(Duration::from_secs(1)).await;
    server.kill();
    sleep(OUTAGE).await;
    server.restart();
    fleet.all_have_returned().await;
    sleep(Duration::from_secs(1)).await;
    let admitted = fleet.stop().await;
    assert!(admitted.len() > 1000, "the load reaches the rate");
    let late = RATE * u64::try_from(LATE.as_millis()).unwrap() / 1000;
    let excess = excess(&admitted, RATE);
    println!("{excess} tokens beyond the rate, with a burst of {BURST}");
    assert!(excess <= 3 * BURST + late, "{excess}");
}

/// A server counts the first limit and then loses it; the processes count the second limit.
#[tokio::test]
async fn a_fixed_window_with_an_outage_in_it_admits_at_most_two_limits() {
    for forgets in [true, false] {
        let mut server = Memcached::start();
        let mut fleet = Fleet::start(&server.url(), "window").await;
        let window = fleet::begin_of_a_window(WINDOW).await;
        sleep(Duration::from_secs(2)).await;
        if forgets {
            server.kill();
        } else {
            server.freeze();
        }
        sleep(OUTAGE).await;
        if forgets {
            server.restart();
        } else {
            server.thaw();
        }
        fleet.all_have_returned().await;
        sleep(Duration::from_secs(3)).await;
        let admitted = in_window(&fleet.stop().await, window, WINDOW);
        println!("{admitted} admitted, with a limit of {LIMIT}");
        // The probe of a returning process is not charged to its share. A busy machine can need several probes.
        assert!(
            (LIMIT..=2 * LIMIT + 5 * MEMBERS).contains(&admitted),
            "{admitted}"
        );
    }
}

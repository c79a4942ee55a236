use tokio::time::{Sleep, sleep};
use tower::retry::backoff::{Backoff as TowerBackoff, MakeBackoff};

use super::{Backoff, Schedule};

/// Gives each [`Schedule`] its own jitter. tower's `ExponentialBackoffMaker` copies its random generator instead, so
/// every request of a layer gets the same jitter. Copies of a `Backoff` with a seed give the same sequences.
impl MakeBackoff for Backoff {
    type Backoff = Schedule;

    fn make_backoff(&mut self) -> Schedule {
        let schedule = self.schedule();
        if let Some(seed) = &mut self.seed {
            *seed = seed.wrapping_add(1);
        }
        schedule
    }
}

impl TowerBackoff for Schedule {
    type Future = Sleep;

    fn next_backoff(&mut self) -> Sleep {
        sleep(self.next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tower_waits_for_the_delays_of_the_schedule() {
        let mut maker = Backoff::exponential(Duration::from_millis(100), Duration::from_secs(1));
        maker = maker.jitter(crate::Jitter::None);
        let mut backoff = maker.make_backoff();
        let start = Instant::now();
        for millis in [100, 300, 700] {
            backoff.next_backoff().await;
            assert_eq!(start.elapsed(), Duration::from_millis(millis));
        }
    }

    #[test]
    fn no_two_schedules_are_the_same_also_with_a_seed() {
        for mut maker in [Backoff::default(), Backoff::default().seed(7)] {
            let first: Vec<_> = maker.make_backoff().take(5).collect();
            let second: Vec<_> = maker.make_backoff().take(5).collect();
            assert_ne!(first, second);
        }
    }
}

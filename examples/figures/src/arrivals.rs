//! Arrival times of random traffic.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;

/// Draws a Poisson process of `per_second` arrivals per second until `end`.
pub(crate) fn poisson(per_second: f64, end: Duration, mut random: StdRng) -> Vec<Duration> {
    let mut at = Duration::ZERO;
    let next = || {
        // In (0, 1], where the logarithm is finite.
        let uniform = 1.0 - random.random::<f64>();
        at += Duration::from_secs_f64(-uniform.ln() / per_second);
        Some(at)
    };
    std::iter::from_fn(next)
        .take_while(|at| *at < end)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;

    #[test]
    fn arrivals_are_sorted_and_have_the_requested_rate_and_a_poisson_variance() {
        let seconds = 10_000;
        let end = Duration::from_secs(seconds);
        let arrivals = poisson(10.0, end, seeds::generator(1, [0; 3]));
        assert!(arrivals.is_sorted());
        assert!(arrivals.iter().all(|at| *at < end));
        let mut counts = vec![0.0; 10_000];
        for at in &arrivals {
            counts[usize::try_from(at.as_secs()).unwrap()] += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / 1e4;
        let variance = counts.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / 1e4;
        // Five standard errors each.
        assert!((mean - 10.0).abs() < 0.16, "{mean}");
        assert!((variance - 10.0).abs() < 0.75, "{variance}");
    }
}

//! Latency of reading a key.

use rand::RngExt as _;
use rand::rngs::StdRng;

use crate::normal;

/// Delay of the hedges in the published experiment, in milliseconds. 98 % of the reads complete earlier.
pub(crate) const TRIGGER: f64 = 10.0;
/// Share of the reads that take longer than the trigger.
const SLOW_SHARE: f64 = 0.02;

/// Median in milliseconds and σ of a lognormal distribution.
const FAST: (f64, f64) = (3.0, 0.4);
const SLOW: (f64, f64) = (4.825, 1.5207);
/// Fast reads take less than the trigger.
const FASTEST_SLOW: f64 = TRIGGER;
const SLOWEST_FAST: f64 = 9.9;

/// One read of one key. The latency of the first read is drawn in advance.
#[derive(Debug)]
pub(crate) enum Read {
    /// A read with this latency in milliseconds.
    Taking(f64),
    /// A read whose latency is drawn when it starts.
    Another,
}

/// A copy is another read, with a latency of its own.
impl Clone for Read {
    fn clone(&self) -> Self {
        Self::Another
    }
}

impl Read {
    /// Returns the latency in milliseconds.
    pub(crate) fn millis(&self, random: &mut StdRng) -> f64 {
        match self {
            Self::Taking(millis) => *millis,
            Self::Another => millis(random),
        }
    }
}

/// Draws the latency of a read, in milliseconds.
pub(crate) fn millis(random: &mut StdRng) -> f64 {
    let lognormal = |(median, sigma): (f64, f64), random: &mut StdRng| {
        let [normal, _] = normal::pair(random);
        median * (sigma * normal).exp()
    };
    match random.random_bool(SLOW_SHARE) {
        true => FASTEST_SLOW + lognormal(SLOW, random),
        false => lognormal(FAST, random).min(SLOWEST_FAST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latencies::Latencies;
    use crate::seeds;

    #[test]
    fn two_in_a_hundred_reads_pass_the_trigger() {
        let mut random = seeds::generator(1, [0; 3]);
        let reads: Vec<f64> = (0..200_000).map(|_| millis(&mut random)).collect();
        let slow = reads.iter().filter(|read| **read >= TRIGGER).count();
        // Five standard errors.
        assert!((slow as f64 / 2e5 - 0.02).abs() < 0.0016, "{slow}");
        assert!(reads.iter().all(|read| *read <= 9.9 || *read >= 10.0));
        let reads = Latencies::new(reads);
        assert!((reads.quantile(0.49) - 3.0).abs() < 0.03);
        assert!((reads.quantile(0.99) - 14.825).abs() < 0.5);
    }
}

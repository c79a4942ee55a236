//! Distributions of latencies.

use crate::plot::{Axis, Mark, Series};

/// Latencies in milliseconds, sorted.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Vec<f64>);

/// Points of a plotted tail per nine. They place a step within a few pixels.
const POINTS_PER_NINE: u32 = 60;
/// A plotted tail ends at 99.99 %.
const NINES: u32 = 4;

/// The x axis of a tail. Each tick leaves a tenth of the slower calls of the tick before.
pub(crate) const TAIL: Axis = Axis::nines("percentile", NINES as f64);

/// Returns published points of a tail, as pairs of nines and milliseconds.
pub(crate) fn published(points: impl Iterator<Item = (f64, f64)>) -> Series {
    Series {
        name: "published",
        mark: Mark::Rings,
        points: points.collect(),
    }
}

impl Latencies {
    /// Sorts one or more latencies.
    pub(crate) fn new(mut millis: Vec<f64>) -> Self {
        millis.sort_unstable_by(f64::total_cmp);
        Self(millis)
    }

    /// Returns the shortest time within which a share `quantile` of the calls completed.
    pub(crate) fn quantile(&self, quantile: f64) -> f64 {
        let rank = (quantile * self.0.len() as f64).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a length is not negative and not larger"
        )]
        let index = (rank as usize).clamp(1, self.0.len()) - 1;
        self.0[index]
    }

    /// Returns the quantiles from 0 to 99.99 %, over the number of nines.
    pub(crate) fn tail(&self, name: &'static str, colour: usize) -> Series {
        let point = |step: u32| {
            let nines = f64::from(step) / f64::from(POINTS_PER_NINE);
            (nines, self.quantile(1.0 - 10_f64.powf(-nines)))
        };
        Series {
            name,
            mark: Mark::Steps(colour),
            points: (0..=NINES * POINTS_PER_NINE).map(point).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let latencies = Latencies::new((1..=1000).rev().map(f64::from).collect());
        for (quantile, expected) in [
            (0.0, 1.0),
            (0.001, 1.0),
            (0.5, 500.0),
            (0.9, 900.0),
            (0.999, 999.0),
            (1.0, 1000.0),
        ] {
            let value = latencies.quantile(quantile);
            assert!((value - expected).abs() < f64::EPSILON, "{value}");
        }
    }

    #[test]
    fn a_tail_goes_nine_by_nine() {
        let latencies = Latencies::new((1..=10_000).map(f64::from).collect());
        let points = latencies.tail("all", 0).points;
        assert_eq!(points.len(), 241);
        let nine = |n: usize| points[n * 60];
        assert_eq!(nine(0), (0.0, 1.0));
        for (nines, expected) in [(1, 9_000.0), (2, 9_900.0), (3, 9_990.0), (4, 9_999.0)] {
            let (x, value) = nine(nines);
            assert!((x - nines as f64).abs() < 1e-9 && (value - expected).abs() <= 1.0);
        }
    }
}

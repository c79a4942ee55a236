//! A network with random delays.

use rand::rngs::StdRng;

use crate::normal;

/// Delay of one leg in milliseconds. The article states the deviation as a variance of 4.
const MEAN: f64 = 10.0;
const DEVIATION: f64 = 2.0;

/// Draws the delays of messages.
#[derive(Debug)]
pub(crate) struct Network(StdRng);

impl Network {
    pub(crate) fn new(random: StdRng) -> Self {
        Self(random)
    }

    /// Draws the delays of the four messages of one attempt, in milliseconds: the absolute values of normal numbers.
    pub(crate) fn legs(&mut self) -> [f64; 4] {
        let ([a, b], [c, d]) = (normal::pair(&mut self.0), normal::pair(&mut self.0));
        [a, b, c, d].map(|normal| (MEAN + DEVIATION * normal).abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;

    #[test]
    fn legs_have_a_mean_of_10_ms_and_a_deviation_of_2_ms() {
        let mut network = Network::new(seeds::generator(1, [0; 3]));
        let legs: Vec<f64> = (0..25_000).flat_map(|_| network.legs()).collect();
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / 1e5;
        let average = mean(&mut legs.iter().copied());
        let variance = mean(&mut legs.iter().map(|leg| (leg - average).powi(2)));
        // Five standard errors each.
        assert!((average - 10.0).abs() < 0.032, "{average}");
        assert!((variance - 4.0).abs() < 0.09, "{variance}");
        let beyond = mean(&mut legs.iter().map(|leg| f64::from((leg - 10.0).abs() > 4.0)));
        assert!((beyond - 0.0455).abs() < 0.0033, "{beyond}");
    }
}

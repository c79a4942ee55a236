//! A network with delays.

use rand::rngs::StdRng;

use crate::normal;

/// Of one leg, in milliseconds; from the article, which states the deviation as a variance of 4.
const MEAN: f64 = 10.0;
const DEVIATION: f64 = 2.0;

/// Draws the delays of messages.
#[derive(Debug)]
pub(crate) struct Network(StdRng);

impl Network {
    pub(crate) fn new(random: StdRng) -> Self {
        Self(random)
    }

    /// The delays of the four messages of one try, in milliseconds: normally distributed, and
    /// turned around should one be below zero.
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
    fn legs_take_10_ms_give_or_take_2() {
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

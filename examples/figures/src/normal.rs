//! Normally distributed numbers.

use std::f64::consts::TAU;

use rand::RngExt as _;
use rand::rngs::StdRng;

/// Draws two independent standard normal numbers (Box and Muller 1958).
pub(crate) fn pair(random: &mut StdRng) -> [f64; 2] {
    // In (0, 1], where the logarithm is finite.
    let uniform = 1.0 - random.random::<f64>();
    let radius = (-2.0 * uniform.ln()).sqrt();
    let (sin, cos) = (TAU * random.random::<f64>()).sin_cos();
    [radius * cos, radius * sin]
}

//! Reproducible random numbers.

use rand::SeedableRng;
use rand::rngs::StdRng;

/// Returns the generator of one piece of work. Its numbers depend only on the user's seed and the coordinates of the
/// piece, not on the thread or the time.
pub(crate) fn generator(seed: u64, piece: [u64; 3]) -> StdRng {
    let [a, b, c] = piece;
    let mut key = [0; 32];
    for (bytes, number) in key.chunks_exact_mut(8).zip([seed, a, b, c]) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    StdRng::from_seed(key)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::RngExt as _;

    use super::*;

    #[test]
    fn each_piece_draws_different_numbers() {
        let first = |seed, piece| generator(seed, piece).random::<u64>();
        let pieces = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]];
        let mut numbers: HashSet<u64> = pieces.iter().map(|piece| first(7, *piece)).collect();
        numbers.insert(first(8, [0, 0, 0]));
        assert_eq!(numbers.len(), 5);
        assert_eq!(first(7, [1, 2, 3]), first(7, [1, 2, 3]));
    }
}

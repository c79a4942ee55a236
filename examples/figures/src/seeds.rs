//! Random numbers that can be had again.

use rand::SeedableRng;
use rand::rngs::StdRng;

/// A generator for one piece of the work: what it draws depends on the user's seed and the piece's
/// coordinates alone, not on which thread does the piece or when.
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
    fn each_piece_has_numbers_of_its_own() {
        let first = |seed, piece| generator(seed, piece).random::<u64>();
        let pieces = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]];
        let mut numbers: HashSet<u64> = pieces.iter().map(|piece| first(7, *piece)).collect();
        numbers.insert(first(8, [0, 0, 0]));
        assert_eq!(numbers.len(), 5);
        assert_eq!(first(7, [1, 2, 3]), first(7, [1, 2, 3]));
    }
}

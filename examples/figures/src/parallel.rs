//! Independent pieces of work on all cores.

use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Applies `work` to every piece, on one thread per core. Returns the results in the order of the pieces.
pub(crate) fn map<T: Sync, R: Send>(pieces: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            match pieces.get(index) {
                Some(piece) => done.push((index, work(piece))),
                None => return done,
            }
        }
    };
    let mut results: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    });
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_pieces() {
        let pieces: Vec<u32> = (0..1000).collect();
        assert_eq!(map(&pieces, |piece| *piece), pieces);
        assert!(map(&[], |piece: &u32| *piece).is_empty());
    }
}

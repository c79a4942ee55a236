//! The parts of a hedge with a learned delay and a budget that no correct layer can omit: a read of the clock, a deposit
//! into the budget, for one call in 16 a latency counted in a histogram, and a timer while the answer is pending. All
//! calls share budget and histogram. It sends no hedge.

use std::array;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tower::{Service, service_fn};

use super::inner::{Inner, Overflow};

/// One call in this number is measured, as in our layer at the rate of the bench.
const MEASURED: u64 = 16;

/// The state that all calls share.
struct Shared {
    calls: AtomicU64,
    budget: AtomicU64,
    /// One counter for each number of significant bits in the nanoseconds.
    latencies: [AtomicU64; 65],
}

pub(super) fn floor<S: Inner>(
    mut inner: S,
    delay: Duration,
) -> impl Service<u64, Response = u64, Error = Overflow, Future: Future> + Clone {
    let shared = Arc::new(Shared {
        calls: AtomicU64::new(0),
        budget: AtomicU64::new(0),
        latencies: array::from_fn(|_| AtomicU64::new(0)),
    });
    service_fn(move |request| {
        let (start, shared) = (Instant::now(), Arc::clone(&shared));
        let call = inner.call(request);
        async move {
            let (mut call, mut timer) = (pin!(call), pin!(None));
            let outcome = poll_fn(|cx| {
                let outcome = call.as_mut().poll(cx);
                if outcome.is_pending() {
                    if timer.is_none() {
                        timer.set(Some(sleep_until(start + delay)));
                    }
                    // The answer arrives before the timer fires.
                    let _ = timer.as_mut().as_pin_mut().map(|timer| timer.poll(cx));
                }
                outcome
            });
            let outcome = outcome.await;
            shared.budget.fetch_add(1, Relaxed);
            if shared.calls.fetch_add(1, Relaxed).is_multiple_of(MEASURED) {
                let nanos = start.elapsed().as_nanos();
                let bits =
                    usize::try_from(u128::BITS - nanos.leading_zeros()).expect("at most 128");
                shared.latencies[bits].fetch_add(1, Relaxed);
            }
            outcome
        }
    })
}

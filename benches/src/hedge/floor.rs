//! The parts of a hedge with a learned delay that no correct layer can omit: two reads of the clock, a latency counted in
//! a histogram that all calls share, and a timer while the answer is pending. It sends no hedge.

use std::array;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tower::{Service, service_fn};

use super::inner::{Inner, Overflow};

/// One counter for each number of significant bits in the nanoseconds.
type Histogram = [AtomicU64; 65];

pub(super) fn floor<S: Inner>(
    mut inner: S,
    delay: Duration,
) -> impl Service<u64, Response = u64, Error = Overflow, Future: Future> + Clone {
    let latencies: Arc<Histogram> = Arc::new(array::from_fn(|_| AtomicU64::new(0)));
    service_fn(move |request| {
        let (start, latencies) = (Instant::now(), Arc::clone(&latencies));
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
            let nanos = start.elapsed().as_nanos();
            let bits = u128::BITS - nanos.leading_zeros();
            latencies[usize::try_from(bits).expect("at most 128")].fetch_add(1, Relaxed);
            outcome
        }
    })
}

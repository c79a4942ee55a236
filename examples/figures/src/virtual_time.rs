//! A clock that jumps from one event to the next, and its scale.

use std::io;
use std::time::Duration;

/// Virtual milliseconds per millisecond of the figure. tokio rounds every timer up to 1 ms, a tenth of a network leg;
/// at this scale the error is a thousandth.
const SCALE: f64 = 100.0;

/// Returns the virtual time for `ms` milliseconds of the figure.
pub(crate) fn virtual_ms(ms: f64) -> Duration {
    Duration::from_secs_f64(ms * SCALE / 1e3)
}

/// Returns the milliseconds of the figure for a virtual time.
pub(crate) fn figure_ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3 / SCALE
}

/// Runs a future on a new runtime with a paused clock, so that earlier work on this thread cannot shift its timers.
pub(crate) fn block_on<F: Future>(future: F) -> io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()?;
    Ok(runtime.block_on(future))
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[test]
    fn an_hour_passes_immediately_with_a_precision_of_10_us() {
        let elapsed = block_on(async {
            let start = Instant::now();
            sleep(virtual_ms(3_600_000.01)).await;
            figure_ms(start.elapsed())
        });
        assert!((elapsed.unwrap() - 3_600_000.01).abs() < 0.005);
    }
}

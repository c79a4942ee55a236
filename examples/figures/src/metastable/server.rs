//! The simulated server.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tower::BoxError;

use super::per_second::PerSecond;

/// Requests that the server completes per second.
pub(crate) const CAPACITY: u32 = 1000;
/// Time to process one request.
const SERVICE_TIME: Duration = Duration::from_nanos(1_000_000_000 / CAPACITY as u64);
/// Time to process a full queue of 3,000 requests.
const FULL_QUEUE: Duration = Duration::from_secs(3);

/// A single server that processes requests in the order of their arrival and stops during an outage.
///
/// It rejects a request immediately while its queue is full. It processes every other request to the end, also after
/// the caller has given up.
#[derive(Debug)]
pub(crate) struct Server {
    start: Instant,
    outage: Range<Duration>,
    /// When the last accepted request completes, in working time, which stands still during the outage.
    busy_until: Mutex<Duration>,
    offered: PerSecond,
}

impl Server {
    /// Starts now. The outage is relative to the start.
    pub(crate) fn new(outage: Range<Duration>, seconds: u32) -> Self {
        Self {
            start: Instant::now(),
            outage,
            busy_until: Mutex::default(),
            offered: PerSecond::new(seconds),
        }
    }

    /// Counts an arriving request, and completes when the server has processed it.
    pub(crate) fn serve(&self) -> impl Future<Output = Result<(), BoxError>> + Send + use<> {
        let now = self.start.elapsed();
        self.offered.count(now);
        let done = self.accept(now).map(|done| self.start + done);
        async move {
            sleep_until(done.ok_or("the queue is full")?).await;
            Ok(())
        }
    }

    /// Requests that arrived in each second, the rejected ones included.
    pub(crate) fn offered(&self) -> Vec<f64> {
        self.offered.counts()
    }

    /// Queues a request; returns when it completes, or `None` if the queue is full.
    fn accept(&self, now: Duration) -> Option<Duration> {
        let worked = self.working_time(now);
        let mut busy_until = self
            .busy_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let start = worked.max(*busy_until);
        if start - worked >= FULL_QUEUE {
            return None;
        }
        *busy_until = start + SERVICE_TIME;
        Some(self.time_of(*busy_until))
    }

    fn working_time(&self, now: Duration) -> Duration {
        if now < self.outage.end {
            now.min(self.outage.start)
        } else {
            now - (self.outage.end - self.outage.start)
        }
    }

    /// The inverse of `working_time`.
    fn time_of(&self, worked: Duration) -> Duration {
        if worked <= self.outage.start {
            worked
        } else {
            worked + (self.outage.end - self.outage.start)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtual_time::block_on;

    const SECOND: Duration = Duration::from_secs(1);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn server() -> Server {
        Server::new(2 * SECOND..5 * SECOND, 10)
    }

    #[test]
    fn the_server_processes_one_request_per_millisecond_in_order() {
        block_on(async {
            let server = server();
            let at = |millis| server.accept(ms(millis));
            assert_eq!([at(0), at(0), at(1)], [1, 2, 3].map(|n| Some(ms(n))));
            assert_eq!(at(50), Some(ms(51)));
        })
        .unwrap();
    }

    #[test]
    fn the_server_does_no_work_during_the_outage() {
        block_on(async {
            let server = server();
            assert_eq!(server.accept(ms(1_999)), Some(ms(2_000)));
            assert_eq!(server.accept(ms(2_000)), Some(ms(5_001)));
            assert_eq!(server.accept(ms(4_000)), Some(ms(5_002)));
            assert_eq!(server.accept(ms(6_000)), Some(ms(6_001)));
        })
        .unwrap();
    }

    #[test]
    fn a_full_queue_rejects_requests_until_the_server_has_completed_one() {
        block_on(async {
            let server = server();
            for _ in 0..3_000 {
                assert!(server.accept(SECOND).is_some());
            }
            assert_eq!(server.accept(SECOND), None);
            assert_eq!(server.accept(ms(1_001)), Some(ms(7_001)));
            assert_eq!(server.accept(ms(1_001)), None);
        })
        .unwrap();
    }

    #[test]
    fn an_abandoned_request_is_processed_all_the_same() {
        block_on(async {
            let server = server();
            drop(server.serve());
            server.serve().await.unwrap();
            assert_eq!(server.start.elapsed(), ms(2));
            assert_eq!(server.offered()[..2], [2.0, 0.0]);
        })
        .unwrap();
    }

    #[test]
    fn a_rejected_request_fails_immediately_and_counts_as_offered() {
        block_on(async {
            let server = server();
            for _ in 0..3_000 {
                drop(server.serve());
            }
            assert!(server.serve().await.is_err());
            assert_eq!(server.start.elapsed(), Duration::ZERO);
            assert_eq!(server.offered()[..2], [3_001.0, 0.0]);
        })
        .unwrap();
    }
}

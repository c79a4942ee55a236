use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Extensions;
use tokio::time::Instant;

use super::Request;

/// The events of a probe and its clones.
#[derive(Debug)]
pub struct Record {
    start: Instant,
    clones: AtomicU32,
    readied: AtomicU32,
    in_flight: AtomicU32,
    peak: AtomicU32,
    responses: AtomicU32,
    calls: Mutex<Vec<(Duration, Extensions)>>,
}

impl Default for Record {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            clones: AtomicU32::new(0),
            readied: AtomicU32::new(0),
            in_flight: AtomicU32::new(0),
            peak: AtomicU32::new(0),
            responses: AtomicU32::new(0),
            calls: Mutex::default(),
        }
    }
}

impl Record {
    /// The number of calls.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.calls.lock().expect("no panic while locked").len()
    }

    /// The times of the calls, in milliseconds since the probe was built.
    #[must_use]
    pub fn call_times(&self) -> Vec<u128> {
        let calls = self.calls.lock().expect("no panic while locked");
        calls.iter().map(|(time, _)| time.as_millis()).collect()
    }

    /// The extensions of each call's request.
    #[must_use]
    pub fn extensions(&self) -> Vec<Extensions> {
        let calls = self.calls.lock().expect("no panic while locked");
        calls
            .iter()
            .map(|(_, extensions)| extensions.clone())
            .collect()
    }

    /// The number of clones.
    #[must_use]
    pub fn clones(&self) -> u32 {
        self.clones.load(SeqCst)
    }

    /// The number of attempts in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(SeqCst)
    }

    /// The highest number of attempts that were in flight concurrently.
    #[must_use]
    pub fn peak(&self) -> u32 {
        self.peak.load(SeqCst)
    }

    /// The number of responses, pending ones included, that have not been dropped.
    #[must_use]
    pub fn live_responses(&self) -> u32 {
        self.responses.load(SeqCst)
    }

    pub(super) fn cloned(&self) {
        self.clones.fetch_add(1, SeqCst);
    }

    pub(super) fn readied(&self) -> u32 {
        self.readied.fetch_add(1, SeqCst) + 1
    }

    pub(super) fn called(&self, request: &Request) -> u32 {
        let mut calls = self.calls.lock().expect("no panic while locked");
        calls.push((self.start.elapsed(), request.extensions().clone()));
        u32::try_from(calls.len()).expect("a test makes few calls")
    }
}

/// Counts an attempt in flight.
pub(super) struct InFlight(Arc<Record>);

impl InFlight {
    pub(super) fn new(record: &Arc<Record>) -> Self {
        let now = record.in_flight.fetch_add(1, SeqCst) + 1;
        record.peak.fetch_max(now, SeqCst);
        Self(Arc::clone(record))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, SeqCst);
    }
}

/// Counts a response from the call on; travels in the response's extensions.
#[derive(Clone)]
pub(super) struct LiveResponse(#[expect(dead_code, reason = "its drop counts")] Arc<Counted>);

struct Counted(Arc<Record>);

impl LiveResponse {
    pub(super) fn new(record: &Arc<Record>) -> Self {
        record.responses.fetch_add(1, SeqCst);
        Self(Arc::new(Counted(Arc::clone(record))))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.responses.fetch_sub(1, SeqCst);
    }
}

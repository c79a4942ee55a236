use std::convert::Infallible;
use std::future::{Pending, pending};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tower::{Layer, Service};
use tower_hedge_latency::HedgeLayer;
use tower_jitter_retry::RetryLayer;

use crate::alloc::heap_of;
use crate::hedge::runtime;
use crate::report::{BARE, Row};

/// The calls in flight at the same time.
const CALLS: u32 = 10_000;

/// Never answers.
#[derive(Clone, Copy, Debug)]
struct Silent;

impl Service<u64> for Silent {
    type Response = u64;
    type Error = Infallible;
    type Future = Pending<Result<u64, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: u64) -> Self::Future {
        pending()
    }
}

/// The heap bytes of a call that waits for its response, its boxed future included; hedges are armed.
pub(super) fn rows() -> Vec<Row> {
    let retry = || RetryLayer::builder().build().expect("defaults are valid");
    let delay = Duration::from_secs(60);
    let hedge = || HedgeLayer::builder().fixed(delay).build().expect("valid");
    vec![
        row(BARE, Silent),
        row("retry", retry().layer(Silent)),
        row("hedge", hedge().layer(Silent)),
        row("both", retry().layer(hedge().layer(Silent))),
    ]
}

fn row<S: Service<u64>>(subject: &'static str, mut service: S) -> Row {
    let runtime = runtime();
    let _timers = runtime.enter();
    let mut context = Context::from_waker(Waker::noop());
    let mut calls = Vec::with_capacity(usize::try_from(CALLS).expect("at least 32 bits"));
    let heap = heap_of(|| {
        for number in 0..CALLS {
            assert!(service.poll_ready(&mut context).is_ready(), "not ready");
            let mut call = Box::pin(service.call(number.into()));
            assert!(call.as_mut().poll(&mut context).is_pending(), "answered");
            calls.push(call);
        }
    });
    let per_call = |count| Some(f64::from(count) / f64::from(CALLS));
    Row {
        allocs: per_call(heap.allocations),
        bytes: per_call(heap.bytes),
        ..Row::new("growth, bytes per call in flight", subject)
    }
}

//! One piece of work: queries in turn, each with concurrent reads of its keys.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::util::option_layer;
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn};
use tower_hedge_latency::HedgeHandle;

use super::key::{self, Read, TRIGGER};
use super::mode::Mode;
use crate::virtual_time::{self, figure_ms, virtual_ms};

const KEYS: u32 = 1000;

/// Results of a piece.
#[derive(Debug)]
pub(crate) struct Trial {
    /// Latency of each query in milliseconds.
    pub(crate) latencies: Vec<f64>,
    pub(crate) hedges: u64,
    /// All keys, including the keys that did not go through the layer.
    pub(crate) keys: u64,
}

/// Runs a piece. `random` draws the first reads and `others` the hedges, so that all modes have the same first reads.
pub(crate) fn trial(
    mode: Mode,
    queries: u32,
    [mut random, others]: [StdRng; 2],
) -> Result<Trial, BoxError> {
    virtual_time::block_on(async {
        let others = Arc::new(Mutex::new(others));
        let service = service_fn(move |read: Read| {
            let millis = read.millis(&mut others.lock().unwrap_or_else(PoisonError::into_inner));
            async move {
                sleep(virtual_ms(millis)).await;
                Ok::<_, Infallible>(())
            }
        });
        let layer = mode.layer()?;
        let handle = layer.as_ref().map(|layer| layer.handle());
        let hedges = || {
            handle
                .as_ref()
                .map_or(0, |handle: &HedgeHandle| handle.counts().hedges)
        };
        let service = option_layer(layer).layer(service);
        let (mut latencies, mut before) = (Vec::new(), 0);
        for query in 0..mode.warm_up() + queries {
            if query == mode.warm_up() {
                before = hedges();
            }
            let start = Instant::now();
            let mut reads = JoinSet::new();
            // The slowest key that did not go through the layer.
            let mut rest = 0.0_f64;
            for key in 0..KEYS {
                let millis = key::millis(&mut random);
                if millis >= TRIGGER || key % mode.one_of() == 0 {
                    reads.spawn(service.clone().oneshot(Read::Taking(millis)));
                } else {
                    rest = rest.max(millis);
                }
            }
            while let Some(read) = reads.join_next().await {
                read??;
            }
            if query >= mode.warm_up() {
                latencies.push(figure_ms(start.elapsed()).max(rest));
            }
        }
        Ok(Trial {
            latencies,
            hedges: hedges() - before,
            keys: u64::from(queries) * u64::from(KEYS),
        })
    })?
}

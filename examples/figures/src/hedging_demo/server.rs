//! The simulated service and its callers.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::util::option_layer;
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn};

use super::mode::Mode;
use super::row::Row;
use crate::virtual_time::{self, figure_ms, virtual_ms};

/// Share in the article's code, which draws a number below 100 and is slow above 96. The text of the article states 5
/// %.
const SLOW_SHARE: f64 = 0.03;
/// Latencies in milliseconds.
const FAST: f64 = 15.0;
const SLOW: f64 = 115.0;
/// Each caller sends one request after the other.
const CALLERS: u32 = 20;

/// State that all attempts share.
struct Server {
    random: StdRng,
    attempts: u32,
}

impl Server {
    /// Draws the latency of the next attempt, in milliseconds.
    fn attempt(&mut self) -> f64 {
        self.attempts += 1;
        if self.random.random_bool(SLOW_SHARE) {
            SLOW
        } else {
            FAST
        }
    }
}

/// Sends the requests. Each caller sends the next one when it has the response.
pub(crate) fn run(mode: Mode, requests: u32, random: StdRng) -> Result<Row, BoxError> {
    virtual_time::block_on(async {
        let attempts = 0;
        let server = Arc::new(Mutex::new(Server { random, attempts }));
        let service = {
            let server = Arc::clone(&server);
            service_fn(move |()| {
                let millis = server
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .attempt();
                async move {
                    sleep(virtual_ms(millis)).await;
                    Ok::<_, Infallible>(())
                }
            })
        };
        let service = option_layer(mode.layer()?).layer(service);
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let service = service.clone();
            let requests = requests / CALLERS + u32::from(caller < requests % CALLERS);
            callers.spawn(async move {
                let mut latencies = Vec::new();
                for _ in 0..requests {
                    let start = Instant::now();
                    service.clone().oneshot(()).await?;
                    latencies.push(figure_ms(start.elapsed()));
                }
                Ok::<_, BoxError>(latencies)
            });
        }
        let mut latencies = Vec::new();
        while let Some(caller) = callers.join_next().await {
            latencies.extend(caller??);
        }
        let attempts = server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .attempts;
        Ok(Row::new(mode, latencies, requests, attempts))
    })?
}

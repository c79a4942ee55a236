//! One run of the simulation.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rand::RngExt as _;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tower::{BoxError, ServiceExt as _};

use super::mode::Mode;
use super::per_second::PerSecond;
use super::server::{CAPACITY, Server};
use crate::{arrivals, seeds, virtual_time};

/// Times of the outage and of the end of the run, in seconds from the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) outage_start: u32,
    pub(crate) outage_end: u32,
    pub(crate) end: u32,
}

/// Events in each second of a run.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    /// Calls that clients made.
    pub(crate) arrivals: Vec<f64>,
    /// Attempts that reached the server.
    pub(crate) offered: Vec<f64>,
    /// Calls that succeeded.
    pub(crate) goodput: Vec<f64>,
}

impl Scenario {
    pub(crate) const PUBLISHED: Self = Self {
        outage_start: 20,
        outage_end: 30,
        end: 125,
    };

    /// Sends calls at `load` times the server's capacity. All modes get the same arrivals.
    ///
    /// The clock runs at the scale of the layers' defaults: a timer is at most 1 ms late, a thousandth of the timeout.
    pub(crate) fn run(self, load: f64, mode: Mode, seed: u64) -> Result<Traffic, BoxError> {
        let random = |stream| seeds::generator(seed, [load.to_bits(), stream, 0]);
        let end = Duration::from_secs(self.end.into());
        let times = arrivals::poisson(load * f64::from(CAPACITY), end, random(0));
        virtual_time::block_on(async {
            let start = Instant::now();
            let server = Arc::new(Server::new(self.outage(), self.end));
            let client = mode.client(Arc::clone(&server), random(1).random())?;
            let arrivals = PerSecond::new(self.end);
            let goodput = Arc::new(PerSecond::new(self.end));
            let mut calls = JoinSet::new();
            for at in times {
                sleep_until(start + at).await;
                arrivals.count(start.elapsed());
                let (call, goodput) = (client.clone().oneshot(()), Arc::clone(&goodput));
                calls.spawn(async move {
                    if call.await.is_ok() {
                        goodput.count(start.elapsed());
                    }
                });
                while let Some(ended) = calls.try_join_next() {
                    ended?;
                }
            }
            Ok(Traffic {
                arrivals: arrivals.counts(),
                offered: server.offered(),
                goodput: goodput.counts(),
            })
        })?
    }

    fn outage(self) -> Range<Duration> {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        seconds(self.outage_start)..seconds(self.outage_end)
    }
}

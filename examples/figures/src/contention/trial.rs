//! One run of the simulation.

use std::sync::Arc;

use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::task::JoinSet;
use tower::{BoxError, Layer as _, ServiceExt as _, service_fn};
use tower_jitter_retry::{Budget, RetryLayer};

use super::server::Server;
use super::strategy::Strategy;
use crate::virtual_time;

/// Events of a trial, in milliseconds from its start.
#[derive(Debug)]
pub(crate) struct Trial {
    /// Arrival times of all writes at the server, the failed ones included.
    pub(crate) writes: Vec<f64>,
    /// When the last client received its success.
    pub(crate) completion: f64,
}

impl Trial {
    /// Starts all clients at the same time. Each retries until it succeeds.
    pub(crate) fn run(
        clients: u32,
        strategy: Strategy,
        mut random: StdRng,
    ) -> Result<Self, BoxError> {
        let backoff = strategy.backoff().seed(random.random());
        let layer = RetryLayer::builder()
            .max_attempts(u32::MAX)
            .backoff(backoff)
            .budget(Budget::unlimited())
            .build()?;
        virtual_time::block_on(async {
            let server = Arc::new(Server::start(random));
            let mut calls = JoinSet::new();
            for _ in 0..clients {
                let server = Arc::clone(&server);
                let client = service_fn(move |()| {
                    let server = Arc::clone(&server);
                    async move { server.update().await }
                });
                calls.spawn(layer.layer(client).oneshot(()));
            }
            while let Some(succeeded) = calls.join_next().await {
                succeeded??;
            }
            Ok(Self {
                writes: server.writes(),
                completion: server.elapsed(),
            })
        })?
    }
}

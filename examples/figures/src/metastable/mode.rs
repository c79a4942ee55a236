//! Client stacks.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tower::timeout::Timeout;
use tower::util::BoxCloneService;
use tower::{BoxError, Layer as _, service_fn};
use tower_hedge_latency::HedgeLayer;
use tower_jitter_retry::{Backoff, Budget, RetryLayer};

use super::server::Server;
use super::tower_policy::TowerPolicy;

/// Timeout of each attempt.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) type Client = BoxCloneService<(), (), BoxError>;

/// How clients send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// One attempt.
    None,
    /// The default retry with an unlimited budget.
    NoBudget,
    /// The default retry.
    Budget,
    /// The default retry over the default hedge.
    Hedge,
    /// tower's retry with its default `TpsBudget`.
    TowerBudget,
}

impl Mode {
    pub(crate) const ALL: [Self; 5] = [
        Self::None,
        Self::NoBudget,
        Self::Budget,
        Self::Hedge,
        Self::TowerBudget,
    ];

    /// The name in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::NoBudget => "no-budget",
            Self::Budget => "budget",
            Self::Hedge => "hedge",
            Self::TowerBudget => "tower-budget",
        }
    }

    /// Builds the client; `seed` seeds the jitter of its retries.
    pub(crate) fn client(self, server: Arc<Server>, seed: u64) -> Result<Client, BoxError> {
        let server = service_fn(move |()| server.serve());
        let attempt = Timeout::new(server, ATTEMPT_TIMEOUT);
        let backoff = Backoff::default().seed(seed);
        let retry = RetryLayer::builder().backoff(backoff);
        Ok(match self {
            Self::None => BoxCloneService::new(attempt),
            Self::NoBudget => {
                let retry = retry.budget(Budget::unlimited()).build()?;
                BoxCloneService::new(retry.layer(attempt))
            }
            Self::Budget => BoxCloneService::new(retry.build()?.layer(attempt)),
            Self::Hedge => {
                let hedge = HedgeLayer::builder().build()?;
                BoxCloneService::new(retry.build()?.layer(hedge.layer(attempt)))
            }
            Self::TowerBudget => {
                let retry = tower::retry::RetryLayer::new(TowerPolicy::new(backoff));
                BoxCloneService::new(retry.layer(attempt))
            }
        })
    }
}

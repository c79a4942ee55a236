use serde::Serialize;
use tower_hedge_latency::{BuildError, HedgeLayer};

use crate::virtual_time::virtual_ms;

/// How clients call the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// One attempt.
    None,
    /// A second attempt after 21 ms and a third after 42 ms.
    Hedged,
    /// Three concurrent attempts.
    FanOut,
    /// A second attempt if the first is slower than the 95th percentile, for at most 5 % of the requests.
    Percentile,
}

/// Window of the learned delay in milliseconds, the default.
const WINDOW: f64 = 10_000.0;

impl Mode {
    pub(crate) const ALL: [Self; 4] = [Self::None, Self::Hedged, Self::FanOut, Self::Percentile];

    /// Name in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Hedged => "hedged",
            Self::FanOut => "fan-out",
            Self::Percentile => "percentile",
        }
    }

    /// Builds the layer in virtual time, or `None` for no layer.
    pub(crate) fn layer(self) -> Result<Option<HedgeLayer>, BuildError> {
        let builder = HedgeLayer::builder();
        let builder = match self {
            Self::None => return Ok(None),
            Self::Hedged => builder.delays([21.0, 42.0].map(virtual_ms)),
            Self::FanOut => builder.fan_out(3),
            Self::Percentile => builder.percentile(0.95).window(virtual_ms(WINDOW)),
        };
        builder.build().map(Some)
    }

    /// The published 99th percentile in milliseconds.
    pub(crate) fn published(self) -> Option<f64> {
        match self {
            Self::None => Some(116.9),
            Self::Hedged => Some(40.8),
            Self::FanOut => Some(20.0),
            Self::Percentile => None,
        }
    }
}

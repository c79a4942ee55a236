use serde::Serialize;
use tower_hedge_latency::{BuildError, HedgeLayer};

use crate::virtual_time::virtual_ms;

/// How the service is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// One attempt.
    None,
    /// A second after 21 ms and a third after 42 ms.
    Hedged,
    /// Three at once.
    FanOut,
    /// A second when the first is slower than the 95th percentile, for at most 5 % of the requests.
    Percentile,
}

/// Of a learned trigger, in milliseconds: the default.
const WINDOW: f64 = 10_000.0;

impl Mode {
    pub(crate) const ALL: [Self; 4] = [Self::None, Self::Hedged, Self::FanOut, Self::Percentile];

    /// As in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Hedged => "hedged",
            Self::FanOut => "fan-out",
            Self::Percentile => "percentile",
        }
    }

    /// The layer in virtual time, if there is one.
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

    /// The 99th percentile that was published, in milliseconds.
    pub(crate) fn published(self) -> Option<f64> {
        match self {
            Self::None => Some(116.9),
            Self::Hedged => Some(40.8),
            Self::FanOut => Some(20.0),
            Self::Percentile => None,
        }
    }
}

use serde::Serialize;
use tower_hedge_latency::{Budget, BuildError, HedgeLayer};

use super::key::TRIGGER;
use crate::virtual_time::virtual_ms;

/// How a query reads its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Reads each key once.
    None,
    /// Reads a key again after 10 ms.
    Fixed,
    /// Reads a key again after the 98th percentile of the reads.
    Percentile,
}

/// Window of the learned delay in milliseconds, the default.
const WINDOW: f64 = 10_000.0;

impl Mode {
    /// Name in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fixed => "fixed",
            Self::Percentile => "percentile",
        }
    }

    /// Builds the layer in virtual time, or `None` for no layer.
    pub(crate) fn layer(self) -> Result<Option<HedgeLayer>, BuildError> {
        let builder = HedgeLayer::builder();
        let builder = match self {
            Self::None => return Ok(None),
            Self::Fixed => builder.fixed(virtual_ms(TRIGGER)),
            Self::Percentile => {
                let builder = builder.percentile(0.98).window(virtual_ms(WINDOW));
                builder.budget(Budget::unlimited())
            }
        };
        builder.build().map(Some)
    }

    /// Returns n if one in n of the fast keys goes through the layer. A sample shows that the layer does not hedge
    /// them. A learned delay needs all of them.
    pub(crate) fn one_of(self) -> u32 {
        match self {
            Self::None | Self::Fixed => 100,
            Self::Percentile => 1,
        }
    }

    /// Number of queries before the measurement.
    pub(crate) fn warm_up(self) -> u32 {
        match self {
            Self::None | Self::Fixed => 0,
            Self::Percentile => 50,
        }
    }

    /// The published 99.9th percentile in milliseconds, and the extra load.
    pub(crate) fn published(self) -> Option<(f64, f64)> {
        match self {
            Self::None => Some((1800.0, 0.0)),
            Self::Fixed => Some((74.0, 0.02)),
            Self::Percentile => None,
        }
    }
}

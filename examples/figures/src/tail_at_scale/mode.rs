use serde::Serialize;
use tower_hedge_latency::{Budget, BuildError, HedgeLayer};

use super::key::TRIGGER;
use crate::virtual_time::virtual_ms;

/// How keys are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Once.
    None,
    /// Again after 10 ms.
    Fixed,
    /// Again after the 98th percentile.
    Percentile,
}

/// Of a learned trigger, in milliseconds: the default.
const WINDOW: f64 = 10_000.0;

impl Mode {
    /// As in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fixed => "fixed",
            Self::Percentile => "percentile",
        }
    }

    /// The layer in virtual time, if there is one.
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

    /// Of the keys that can't pass the trigger, one in so many goes through the layer all the same, to
    /// show that it is left alone. What is learned is learned from all of them.
    pub(crate) fn one_of(self) -> u32 {
        match self {
            Self::None | Self::Fixed => 100,
            Self::Percentile => 1,
        }
    }

    /// Queries before those that count.
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

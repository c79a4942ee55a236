use std::sync::Arc;

use crate::{BuildError, key::RequestParts};

type CostFn = dyn Fn(RequestParts<'_>) -> u64 + Send + Sync;

/// What a request costs, in tokens.
#[derive(Clone)]
pub(crate) enum Cost {
    Fixed(u64),
    Of(Arc<CostFn>),
}

impl Cost {
    pub(crate) fn of(&self, head: RequestParts<'_>) -> u64 {
        match self {
            Self::Fixed(tokens) => *tokens,
            Self::Of(cost) => cost(head),
        }
    }

    /// Checks it against the `most` that a request can cost, which is called `largest`.
    pub(crate) fn check(&self, largest: &str, most: u64) -> Result<(), BuildError> {
        match *self {
            Self::Fixed(0) => Err(BuildError::new("cost", 0, "at least 1")),
            Self::Fixed(tokens) if tokens > most => Err(BuildError::new(
                "cost",
                tokens,
                format_args!("at most the {largest}, {most}"),
            )),
            _ => Ok(()),
        }
    }
}

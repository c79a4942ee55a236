mod answer;

use std::error::Error;
use std::fmt;
use std::time::Duration;

pub use self::answer::{TimedOut, TimeoutAnswer};

/// A time limit ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Elapsed {
    /// An attempt's: it took longer than this.
    Attempt(Duration),
    /// The whole call's, with its attempts and waits: it ended after this time.
    Call(Duration),
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attempt(limit) => write!(f, "no answer to an attempt within {limit:?}"),
            Self::Call(time) => write!(f, "the call's time limit ran out after {time:?}"),
        }
    }
}

impl Error for Elapsed {}

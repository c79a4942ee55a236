mod answer;

use std::error::Error;
use std::fmt;
use std::time::Duration;

pub use self::answer::{TimedOut, TimeoutAnswer};

/// The error of a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Elapsed {
    /// An attempt took longer than this timeout.
    Attempt(Duration),
    /// A deadline or the end of a `grpc-timeout` ended the call after this time, which covers all attempts and the
    /// waits between them.
    Call(Duration),
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Attempt(limit) => write!(f, "the attempt timed out after {limit:?}"),
            Self::Call(time) => write!(f, "the call timed out after {time:?}"),
        }
    }
}

impl Error for Elapsed {}

//! The arithmetic of limits. Pure: no clock and no I/O; the time is an argument.

mod ratio;
mod token_bucket;

pub(crate) use token_bucket::{TokenBucket, saturating_nanos};

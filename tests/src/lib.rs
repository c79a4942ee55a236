//! What the tests share.

mod probe;

pub use self::probe::{Answer, Probe, ProbeError, Readiness, Record, Request, Response};

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

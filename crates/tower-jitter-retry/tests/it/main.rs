//! The behaviour of the retry layer at its public interface.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

#[cfg(feature = "http")]
mod budgets;
#[cfg(feature = "grpc")]
mod grpc;
mod handle;
#[cfg(feature = "hyper-util-01")]
mod http;
mod limits;
mod modes;
#[cfg(feature = "http")]
mod nested;
#[cfg(feature = "grpc")]
mod promises;
mod retry;
#[cfg(feature = "http")]
mod stops;
mod support;
mod tokens;

//! The attempts of a hedge layer and their exact times.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

#[cfg(feature = "http")]
mod bodies;
mod budgets;
mod building;
mod cancel;
mod counts;
mod deadline;
#[cfg(feature = "drain")]
mod drain;
#[cfg(feature = "http")]
mod hops;
mod learned;
#[cfg(feature = "http")]
mod methods;
mod modes;
mod on_failure;
mod permits;
mod pushback;
mod race;
mod readiness;
mod support;
mod throttle;

//! Hedging over real connections, and in stacks with other layers.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod answers;
mod balancing;
mod budgets;
mod connections;
mod destination;
mod drained;
mod hops;
mod stacks;

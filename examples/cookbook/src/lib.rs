//! Recipes for the three layers. Each module is one recipe: the code to paste, and below it a test of its effect.

pub mod behind_a_proxy;
pub mod charge_by_size;
pub mod compiler_errors;
pub mod grpc;
pub mod idempotency_keys;
pub mod json_errors;
pub mod login_throttling;
pub mod paused_clock;
pub mod per_host_budgets;
pub mod per_route_user_and_ip;
pub mod plans;
pub mod replicas;
pub mod shadow_first;
pub mod uploads;

#[cfg(test)]
mod testing;

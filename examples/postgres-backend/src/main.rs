//! Rate limits in PostgreSQL: [`postgres`] is the whole backend.

mod postgres;
#[cfg(test)]
mod tests;

use std::{env, error::Error};

use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::CasBackend};

use crate::postgres::Postgres;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::args()
        .nth(1)
        .ok_or("usage: example-postgres-backend postgres://..")?;
    let postgres = Postgres::connect(&url).await?;
    println!("deleted {} expired rows", postgres.delete_expired().await?);
    let policy = Policy::new("login", Quota::per_minute(5)).sliding_window_log();
    let limiter = Limiter::new(CasBackend::new(postgres), policy)?;
    for number in 1..=7 {
        let decision = limiter.check("alice").await?;
        let (outcome, rest) = match decision.retry_after {
            Some(wait) if !decision.allowed => ("rejected, retry after", format!("{wait:.1?}")),
            _ => ("allowed, remaining", decision.remaining.to_string()),
        };
        println!("{number}: {outcome} {rest}");
    }
    Ok(())
}

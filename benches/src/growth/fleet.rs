use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tests::servers::Redis as Server;
use tokio::time::{Instant, timeout_at};
use tower_dist_ratelimit::{Consistency, Limiter, Policy, Quota};
use tower_dist_ratelimit_redis::Redis;

use crate::report::Row;

const INSTANCES: [(&str, u32); 4] = [("1", 1), ("4", 4), ("16", 16), ("64", 64)];

/// Concurrent requests of the whole fleet.
const TASKS: u32 = 256;

const LENGTH: Duration = if cfg!(test) {
    Duration::from_millis(50)
} else {
    Duration::from_secs(2)
};

/// One hot key of a fleet, whose instances have a connection each to one Redis server.
///
/// # Errors
///
/// Returns an error if no server starts.
pub(super) fn rows() -> Result<Vec<Row>, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut rows = Vec::new();
        for (name, consistency) in [
            ("growth, instances, exact", Consistency::Exact),
            ("growth, instances, leased", Consistency::leased()),
        ] {
            for (subject, instances) in INSTANCES {
                eprintln!("{name}: {subject}");
                let row = Row::new(name, subject);
                rows.push(measure(row, instances, consistency).await?);
            }
        }
        Ok(rows)
    })
}

async fn measure(
    row: Row,
    instances: u32,
    consistency: Consistency,
) -> Result<Row, Box<dyn Error>> {
    let server = Server::start();
    let mut limiters = Vec::new();
    for _ in 0..instances {
        let policy = Policy::new("bench", Quota::per_second(1_000_000_000));
        let limiter = Limiter::builder(Redis::connect(&server.url()).await?, policy);
        limiters.push(Arc::new(limiter.consistency(consistency).build()?));
    }
    // Leases adapt their size first.
    load(&limiters, LENGTH / 4).await?;
    let (commands, cpu) = (commands(&server)?, server.cpu_micros());
    let decisions = load(&limiters, LENGTH).await? as f64;
    let cpu = Duration::from_micros(server.cpu_micros() - cpu).as_secs_f64() * 1e6;
    let commands = self::commands(&server)? - commands;
    Ok(Row {
        ns_min: Some(LENGTH.as_secs_f64() * 1e9 / decisions),
        per_second: Some(decisions / LENGTH.as_secs_f64()),
        round_trips: Some(commands / decisions),
        server_cpu_us: Some(cpu / decisions),
        ..row
    })
}

/// The number of admitted requests, of all tasks together.
async fn load(limiters: &[Arc<Limiter>], length: Duration) -> Result<u64, Box<dyn Error>> {
    let end = Instant::now() + length;
    let in_turn = limiters.iter().cycle().cloned();
    let tasks: Vec<_> = (0..TASKS)
        .zip(in_turn)
        .map(|(_, limiter)| {
            tokio::spawn(async move {
                let mut admitted = 0;
                // A decision from a lease is ready at once, so the timeout alone would never end the loop.
                while Instant::now() < end
                    && let Ok(decision) = timeout_at(end, limiter.check("everyone")).await
                {
                    admitted += u64::from(decision.is_ok_and(|decision| decision.allowed));
                }
                admitted
            })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await?;
    }
    Ok(admitted)
}

/// The commands that the server has executed; a script counts as one.
fn commands(server: &Server) -> Result<f64, Box<dyn Error>> {
    let statistics = server.call(&["INFO", "stats"]).text();
    let line = statistics
        .lines()
        .find_map(|line| line.strip_prefix("total_commands_processed:"));
    Ok(line.ok_or("no number of commands")?.trim().parse()?)
}

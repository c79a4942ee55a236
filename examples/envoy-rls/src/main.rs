//! Envoy's global rate limit service on a [`Limiter`]: see the README.

mod bench;
mod config;
mod proto;
mod server;
mod service;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum, value_parser};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tonic::server::NamedService as _;
use tonic::transport::{Server, server::TcpIncoming};
use tonic_health::ServingStatus;
use tower::BoxError;
use tower_dist_ratelimit::backend::{Backend, Memory};
use tower_dist_ratelimit::{FailureMode, Limiter, Policy, Quota};
use tower_dist_ratelimit_redis::Redis;

use self::config::Domains;
use self::proto::Unit;
use self::server::RateLimitServer;
use self::service::{Limiters, RateLimiter};

/// Envoy's global rate limit service.
///
/// It serves until Ctrl-C or SIGTERM, and then lets the calls in flight finish.
#[derive(Debug, Parser)]
#[command(subcommand_negates_reqs = true)]
struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    /// Limits of one domain, in YAML; can be given several times.
    #[arg(long, value_name = "FILE", required = true)]
    config: Vec<PathBuf>,
    /// Address to listen on.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    listen: SocketAddr,
    #[command(flatten)]
    limits: LimitOptions,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures calls per second over loopback connections, without decisions of the failure mode.
    Bench(bench::BenchOptions),
}

#[derive(Clone, Debug, clap::Args)]
struct LimitOptions {
    /// Where hits are counted: `memory` for this process, or `redis://host:port` for several services together.
    #[arg(long, global = true, value_name = "BACKEND", default_value = "memory")]
    backend: String,
    /// How to decide while Redis is unavailable.
    #[arg(long, global = true, value_enum, default_value = "local")]
    failure_mode: Failure,
    /// Maximum wait for a decision of Redis, in milliseconds.
    #[arg(long, global = true, value_name = "MS", default_value = "50", value_parser = value_parser!(u64).range(1..=60_000))]
    backend_timeout: u64,
    /// How many of these services share Redis; with `--failure-mode local` each enforces its share of the limits.
    #[arg(long, global = true, value_name = "N", default_value = "1", value_parser = value_parser!(u32).range(1..))]
    instances: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Failure {
    /// In this process, with its share of each limit.
    Local,
    /// Allow everything.
    Open,
    /// Fail every call with UNAVAILABLE, so that Envoy's `failure_mode_deny` decides.
    Closed,
}

impl LimitOptions {
    async fn limiters(&self) -> Result<Limiters, BoxError> {
        let backend: Arc<dyn Backend> = match self.backend.as_str() {
            "memory" => Arc::new(Memory::default()),
            url => Arc::new(connect(url).await?),
        };
        let failure_mode = match self.failure_mode {
            Failure::Local => FailureMode::Local {
                instances: self.instances,
            },
            Failure::Open => FailureMode::Open,
            Failure::Closed => FailureMode::Closed,
        };
        let timeout = Duration::from_millis(self.backend_timeout);
        let limiter = |unit: Unit| {
            // Fixed windows, as in envoyproxy/ratelimit. Rules replace the limit, but not the window.
            let policy = Policy::new(format!("envoy-{unit:?}"), Quota::new(1, unit.window()))
                .fixed_window()
                .dynamic_quotas();
            let builder = Limiter::builder(Arc::clone(&backend), policy);
            let limiter = builder
                .failure_mode(failure_mode)
                .backend_timeout(timeout)
                .build()?;
            Ok((unit.into(), limiter))
        };
        Unit::ALL.into_iter().map(limiter).collect()
    }
}

/// Connects to Redis. If it is down, connects in the background.
async fn connect(url: &str) -> Result<Redis, BoxError> {
    Redis::connect(url).await.or_else(|error| {
        eprintln!("envoy-rls: {error}");
        Ok(Redis::connect_lazy(url)?)
    })
}

/// Serves until `shutdown`, and then lets the calls in flight finish.
async fn serve(
    domains: Domains,
    limiters: Limiters,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), BoxError> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<RateLimitServer>().await;
    let shutdown = async {
        shutdown.await;
        for name in ["", RateLimitServer::NAME] {
            reporter
                .set_service_status(name, ServingStatus::NotServing)
                .await;
            // Ends the calls that watch the status.
            reporter.clone().clear_service_status(name).await;
        }
    };
    Server::builder()
        .add_service(health)
        .add_service(RateLimitServer(Arc::new(RateLimiter { domains, limiters })))
        .serve_with_incoming_shutdown(
            TcpIncoming::from(listener).with_nodelay(Some(true)),
            shutdown,
        )
        .await?;
    Ok(())
}

async fn run(mut options: Options) -> Result<(), BoxError> {
    if let Some(Command::Bench(bench)) = options.command {
        // Only decisions of the backend count: a call that it does not decide ends the measurement with an error.
        options.limits.failure_mode = Failure::Closed;
        options.limits.backend_timeout = 60_000;
        return bench.run(options.limits.limiters().await?).await;
    }
    let limiters = options.limits.limiters().await?;
    let domains = config::load(&options.config)?;
    let listener = TcpListener::bind(options.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", options.listen))?;
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let shutdown = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    eprintln!("envoy-rls: listening on {}", listener.local_addr()?);
    serve(domains, limiters, listener, shutdown).await
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("envoy-rls: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests;

//! Envoy's global rate limit service on a [`Limiter`]: see the README.

mod bench;
mod config;
mod proto;
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
use tower_dist_ratelimit::backend::{Memory, Redis};
use tower_dist_ratelimit::{Limiter, OnError, Policy, Quota};

use self::config::Domains;
use self::proto::RateLimitServer;
use self::service::RateLimiter;

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
    /// Measures calls per second over a loopback connection.
    Bench(bench::BenchOptions),
}

#[derive(Clone, Debug, clap::Args)]
struct LimitOptions {
    /// Where hits are counted: `memory` for this process, or `redis://host:port` for several services together.
    #[arg(long, global = true, value_name = "BACKEND", default_value = "memory")]
    backend: String,
    /// What decides while Redis is unavailable.
    #[arg(long, global = true, value_enum, default_value = "local")]
    failure_mode: FailureMode,
    /// Maximum wait for a decision of Redis, in milliseconds.
    #[arg(long, global = true, value_name = "MS", default_value = "50", value_parser = value_parser!(u64).range(1..=60_000))]
    backend_timeout: u64,
    /// How many of these services share Redis; with `--failure-mode local` each enforces its share of the limits.
    #[arg(long, global = true, value_name = "N", default_value = "1", value_parser = value_parser!(u32).range(1..))]
    instances: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FailureMode {
    /// This process, with its share of each limit.
    Local,
    /// Every call is OK.
    Open,
    /// Envoy's `failure_mode_deny`: every call fails with UNAVAILABLE.
    Closed,
}

impl LimitOptions {
    fn limiter(&self) -> Result<Limiter, BoxError> {
        // The quota is that of each rule. Fixed windows are what envoyproxy/ratelimit counts.
        let policy = Policy::new("envoy", Quota::per_second(1))
            .fixed_window()
            .dynamic_quotas();
        let builder = match self.backend.as_str() {
            "memory" => Limiter::builder(Memory::default(), policy),
            url => Limiter::builder(Redis::connect_lazy(url)?, policy),
        };
        let on_error = match self.failure_mode {
            FailureMode::Local => OnError::LocalFallback {
                fleet: self.instances,
            },
            FailureMode::Open => OnError::Allow,
            FailureMode::Closed => OnError::Deny,
        };
        let timeout = Duration::from_millis(self.backend_timeout);
        Ok(builder
            .on_backend_error(on_error)
            .backend_deadline(timeout)
            .build()?)
    }
}

/// Serves until `shutdown`, and then lets the calls in flight finish.
async fn serve(
    domains: Domains,
    limiter: Limiter,
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
        .add_service(RateLimitServer(Arc::new(RateLimiter { domains, limiter })))
        .serve_with_incoming_shutdown(
            TcpIncoming::from(listener).with_nodelay(Some(true)),
            shutdown,
        )
        .await?;
    Ok(())
}

async fn run(options: Options) -> Result<(), BoxError> {
    let limiter = options.limits.limiter()?;
    if let Some(Command::Bench(bench)) = options.command {
        return bench.run(limiter).await;
    }
    let domains = config::load(&options.config)?;
    let listener = TcpListener::bind(options.listen).await?;
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
    serve(domains, limiter, listener, shutdown).await
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

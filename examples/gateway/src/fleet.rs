//! The demo of a fleet: several gateway processes, one client, one limit.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use indicatif::ProgressBar;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tower::BoxError;

use crate::backend::{BackendUrl, Choice};
use crate::load::{Callers, Load};
use crate::options::StackOptions;
use crate::profile::Profile;
use crate::redis_server::RedisServer;
use crate::report::Row;
use crate::server::Server;
use crate::upstream::Flaky;

/// The number of processes.
pub(crate) const GATEWAYS: usize = 4;
/// The runs of this scenario: each process counts for itself, then all in one backend.
pub(crate) const RUNS: u64 = 2;

/// A busy machine may answer late, and this demo does not measure that. With the usual timeout, single processes would
/// decide some requests alone.
const STORE_DEADLINE_MS: u64 = 5_000;
const DRAIN: Duration = Duration::from_secs(5);

/// The result of the scenario.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) rows: Vec<Row>,
    /// The reason why the row of a shared backend is missing.
    pub(crate) left_out: Option<&'static str>,
}

/// Measures a fleet with separate counts and a fleet with common counts. The common counts are in the backend of the
/// options, or on a Redis server that the demo starts.
pub(crate) async fn measure(
    load: &Load,
    stack: &StackOptions,
    progress: &ProgressBar,
) -> Result<Report, BoxError> {
    let apart = run(&BackendUrl::Memory, load, stack, progress).await?;
    let mut report = Report {
        rows: vec![apart],
        left_out: None,
    };
    let server;
    let url = match &stack.backend {
        Choice::Given(BackendUrl::Memory) | Choice::OwnRedis => {
            let Some(started) = RedisServer::start().await? else {
                report.left_out = Some(
                    "fleet-redis is left out: it needs redis-server on the PATH \
                     (apt install redis-server, brew install redis), or --backend redis://host:port",
                );
                return Ok(report);
            };
            server = started;
            BackendUrl::Redis(server.url())
        }
        Choice::Given(url) => url.clone(),
    };
    report.rows.push(run(&url, load, stack, progress).await?);
    Ok(report)
}

async fn run(
    url: &BackendUrl,
    load: &Load,
    stack: &StackOptions,
    progress: &ProgressBar,
) -> Result<Row, BoxError> {
    let profile = Profile::Tail;
    let flaky = Flaky::new(profile, stack.seed);
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let upstream = Server::start(any_port, flaky.app()).await?;
    let mut gateways = Vec::new();
    for _ in 0..GATEWAYS {
        gateways.push(Gateway::start(url, stack, upstream.addr()).await?);
    }
    let addrs: Vec<SocketAddr> = gateways.iter().map(|gateway| gateway.addr).collect();
    // The backend may remember the clients of earlier runs.
    let load = Load {
        callers: Callers::One(format!("fleet-{:016x}", rand::random::<u64>())),
        ..load.clone()
    };
    let answers = load.run(&addrs, progress).await?;
    for gateway in &mut gateways {
        gateway.child.kill().await?;
    }
    upstream.drain(DRAIN).await;
    let name = format!("fleet-{}", url.name());
    let row = Row::new(&name, profile, load.requests, flaky.served(), &answers);
    Ok(row.of_fleet(&answers, stack.burst, stack.limit))
}

/// This program again, as a server. Dropping it kills the process.
struct Gateway {
    child: Child,
    addr: SocketAddr,
    /// Keeps the pipe open that the process writes to.
    _stdout: BufReader<ChildStdout>,
}

impl Gateway {
    /// Starts the process on a free port, and waits until it listens. Its stderr is inherited.
    async fn start(
        url: &BackendUrl,
        stack: &StackOptions,
        upstream: SocketAddr,
    ) -> Result<Self, BoxError> {
        let mut command = Command::new(std::env::current_exe()?);
        if let Some(lease) = stack.lease {
            command.args(["--lease", &lease.as_millis().to_string()]);
        }
        let mut child = command
            .args(["--listen", "127.0.0.1:0", "--admin", "off"])
            .args(["--upstream", &format!("http://{upstream}")])
            .args(["--backend", url.argument()])
            .args(["--fleet", &GATEWAYS.to_string()])
            .args(["--backend-timeout", &STORE_DEADLINE_MS.to_string()])
            .args(["--limit", &stack.limit.to_string()])
            .args(["--burst", &stack.burst.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().ok_or("no pipe to a gateway")?;
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        stdout.read_line(&mut line).await?;
        let addr = line
            .strip_prefix("listening on http://")
            .and_then(|rest| rest.split(',').next())
            .and_then(|addr| addr.parse().ok())
            .ok_or("a gateway of the fleet did not start")?;
        Ok(Self {
            child,
            addr,
            _stdout: stdout,
        })
    }
}

//! A gateway as a child process, and the resources that it uses.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::BodyExt as _;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;
use tower::BoxError;

use crate::load::{self, LoadClient};

/// Log lines of all gateways.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;

/// A serving gateway, which is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) addr: SocketAddr,
    pub(crate) meter: Meter,
    child: Child,
    // Kept open, so that the gateway can write to it.
    _stdout: Lines<BufReader<ChildStdout>>,
}

/// Reads the resources of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    metrics: String,
    pid: u32,
}

/// The resources of a gateway at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) memory_mib: u64,
    pub(crate) tasks: u64,
    pub(crate) files: u64,
    /// Requests that the backend did not decide, since the start.
    pub(crate) undecided: u64,
}

impl Gateway {
    /// Starts a gateway and returns when it listens.
    pub(crate) async fn start(
        binary: &Path,
        args: &[&str],
        env: &[(&str, String)],
        log: &Log,
    ) -> Result<Self, BoxError> {
        let mut child = Command::new(binary)
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(args)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{}: {error}", binary.display()))?;
        let stderr = child.stderr.take().ok_or("no stderr")?;
        let log = Arc::clone(log);
        tokio::spawn(async move {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                log.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(line);
            }
        });
        let stdout = child.stdout.take().ok_or("no stdout")?;
        let mut stdout = BufReader::new(stdout).lines();
        let mut next = async |what: &str| {
            let line = stdout.next_line().await?.unwrap_or_default();
            let url = line.split_once("http://").map(|(_, rest)| rest.to_owned());
            url.ok_or_else(|| BoxError::from(format!("{what} is missing in {line:?}")))
        };
        let listening = next("the address").await?;
        let addr = listening.split(',').next().unwrap_or_default().parse()?;
        let metrics = format!("http://{}/metrics", next("the live page").await?);
        let pid = child.id().ok_or("the gateway has ended")?;
        Ok(Self {
            addr,
            meter: Meter { metrics, pid },
            child,
            _stdout: stdout,
        })
    }

    /// Sends SIGTERM, and returns whether the gateway was running until then and exits with success.
    pub(crate) async fn stop(mut self) -> Result<bool, BoxError> {
        if self.child.try_wait()?.is_some() {
            return Ok(false);
        }
        let pid = self.meter.pid.to_string();
        Command::new("kill").args(["-TERM", &pid]).status().await?;
        let ended = timeout(Duration::from_secs(20), self.child.wait()).await;
        Ok(ended.is_ok_and(|status| status.is_ok_and(|status| status.success())))
    }
}

impl Meter {
    pub(crate) async fn sample(&self, client: &LoadClient) -> Result<Sample, BoxError> {
        let request = load::request("GET", &self.metrics, None, None)?;
        let body = client.request(request).await?.into_body();
        let metrics = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
        let sum = |name: &str| -> u64 {
            let lines = metrics.lines().filter(|line| line.starts_with(name));
            let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
            values.sum()
        };
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = resident.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(Sample {
            memory_mib: kib.ok_or("no VmRSS")? / 1024,
            tasks: sum("tokio_alive_tasks"),
            files: fs::read_dir(format!("/proc/{}/fd", self.pid))?.count() as u64,
            undecided: sum("ratelimit_backend_failures_total"),
        })
    }
}

//! A Redis server for the demo, on a free local port, without persistence.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use tower::BoxError;

/// A running server. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct RedisServer {
    addr: SocketAddr,
    child: Child,
    is_frozen: bool,
}

/// Maximum time until the server listens.
const START: Duration = Duration::from_secs(10);

/// Maximum number of ports to try: another program can take a port before the server does.
const PORTS: u32 = 5;

impl RedisServer {
    /// Starts the server and waits until it listens. Returns `None` if `redis-server` is not installed.
    pub(crate) async fn start() -> Result<Option<Self>, BoxError> {
        for _ in 0..PORTS {
            let Some(mut server) = Self::on(unused_addr().await?)? else {
                return Ok(None);
            };
            if server.listens_in_time().await? {
                return Ok(Some(server));
            }
        }
        Err("redis-server ends as soon as it is started".into())
    }

    fn on(addr: SocketAddr) -> Result<Option<Self>, BoxError> {
        let port = addr.port().to_string();
        let started = Command::new("redis-server")
            .args(["--port", &port, "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        match started {
            Ok(child) => Ok(Some(Self {
                addr,
                child,
                is_frozen: false,
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("redis-server cannot be started: {error}").into()),
        }
    }

    /// Ends the server. Its keys are lost.
    pub(crate) async fn kill(&mut self) -> Result<(), BoxError> {
        Ok(self.child.kill().await?)
    }

    /// Stops the process without ending it: connections stay open and nothing is answered.
    pub(crate) async fn freeze(&mut self) -> Result<(), BoxError> {
        self.signal("-STOP").await?;
        self.is_frozen = true;
        Ok(())
    }

    /// Continues a frozen server, and starts a server that has ended on the same port.
    pub(crate) async fn restart(&mut self) -> Result<(), BoxError> {
        self.signal("-CONT").await?;
        self.is_frozen = false;
        if self.child.try_wait()?.is_some() {
            *self = Self::on(self.addr)?.ok_or("redis-server is gone")?;
            self.listens_in_time().await?;
        }
        Ok(())
    }

    /// The state that the page shows.
    pub(crate) fn state(&mut self) -> &'static str {
        match self.child.try_wait() {
            Ok(None) if self.is_frozen => "frozen",
            Ok(None) => "running",
            _ => "stopped",
        }
    }

    /// Does nothing if the server has ended.
    async fn signal(&self, signal: &str) -> io::Result<()> {
        if let Some(id) = self.child.id() {
            Command::new("kill")
                .args([signal, &id.to_string()])
                .status()
                .await?;
        }
        Ok(())
    }

    /// The URL of the server.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Waits until the server listens. Returns `false` if its process has ended, and an error after [`START`].
    async fn listens_in_time(&mut self) -> Result<bool, BoxError> {
        let listens = timeout(START, self.listens()).await;
        let late = || format!("redis-server does not listen after {} s", START.as_secs());
        Ok(listens.map_err(|_| late())?)
    }

    /// Waits until the server listens. Returns `false` if its process has ended.
    async fn listens(&mut self) -> bool {
        while TcpStream::connect(self.addr).await.is_err() {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            sleep(Duration::from_millis(10)).await;
        }
        true
    }
}

/// A local address without a listener.
async fn unused_addr() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await?
        .local_addr()
}

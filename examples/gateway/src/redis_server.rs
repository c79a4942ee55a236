//! A Redis server for the demo, on a free port of this machine, that keeps nothing on disk.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use tower::BoxError;

/// A running server; it is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct RedisServer {
    addr: SocketAddr,
    child: Child,
}

/// How long it may take to listen.
const START: Duration = Duration::from_secs(10);

impl RedisServer {
    /// Starts it and waits until it listens; none where there is no `redis-server`.
    pub(crate) async fn start() -> Result<Option<Self>, BoxError> {
        let addr = unused_addr().await?;
        let port = addr.port().to_string();
        let started = Command::new("redis-server")
            .args(["--port", &port, "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        let child = match started {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            started => started.map_err(|error| format!("redis-server: {error}"))?,
        };
        let mut server = Self { addr, child };
        let listens = timeout(START, server.listens()).await;
        match listens.unwrap_or(false) {
            true => Ok(Some(server)),
            false => Err(format!("redis-server does not listen on {addr}").into()),
        }
    }

    /// How to reach it.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Whether it does, sooner or later.
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

/// Where nobody listens now.
async fn unused_addr() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await?
        .local_addr()
}

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

/// How many ports are tried: another program can take one before the server does.
const PORTS: u32 = 5;

impl RedisServer {
    /// Starts it and waits until it listens; none where there is no `redis-server`.
    pub(crate) async fn start() -> Result<Option<Self>, BoxError> {
        for _ in 0..PORTS {
            let Some(mut server) = Self::on(unused_addr().await?)? else {
                return Ok(None);
            };
            if timeout(START, server.listens()).await? {
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
            .kill_on_drop(true)
            .spawn();
        match started {
            Ok(child) => Ok(Some(Self { addr, child })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("redis-server: {error}").into()),
        }
    }

    /// How to reach it.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Whether it does, sooner or later; not if it has ended.
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
